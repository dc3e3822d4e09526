#include "transport/relay/socks_door.hpp"

#include <algorithm>

namespace atl {
namespace {

constexpr std::byte kVersion{5};
constexpr std::byte kNoAuthentication{0};
constexpr std::byte kName{3};
constexpr std::size_t kRequestHead = 5;  // up to the name's length
constexpr std::size_t kPortBytes = 2;

}  // namespace

std::array<std::byte, 10> socks_answer(SocksAnswer code) {
  std::array<std::byte, 10> answer{};
  answer[0] = kVersion;
  answer[1] = static_cast<std::byte>(code);
  answer[3] = std::byte{1};  // an IPv4 address follows, which says nothing
  return answer;
}

Bytes socks_request(const std::string& name, SocksCommand command) {
  Bytes request(kRequestHead + name.size() + kPortBytes);
  request[0] = kVersion;
  request[1] = static_cast<std::byte>(command);
  request[3] = kName;
  request[4] = static_cast<std::byte>(name.size());
  std::ranges::copy(as_bytes(name), request.begin() + kRequestHead);
  request.back() = std::byte{1};  // a port, which says nothing
  return request;
}

SocksDoor::Step SocksDoor::take(ByteView bytes) {
  if (over_) {
    return Step::wrong;
  }
  kept_.insert(kept_.end(), bytes.begin(), bytes.end());
  const Step step = greeted_ ? request() : greeting();
  over_ = step == Step::asks || step == Step::wrong;
  return step;
}

SocksDoor::Step SocksDoor::greeting() {
  if (kept_.empty()) {
    return Step::more;
  }
  if (kept_[0] != kVersion) {
    return Step::wrong;
  }
  const std::size_t methods = kept_.size() < 2 ? 0 : std::to_integer<std::size_t>(kept_[1]);
  if (kept_.size() < 2 || kept_.size() < 2 + methods) {
    return Step::more;
  }
  const bool fits = kept_.size() == 2 + methods && std::find(kept_.begin() + 2, kept_.end(), kNoAuthentication) != kept_.end();
  kept_.clear();
  greeted_ = fits;
  return fits ? Step::greet : Step::wrong;
}

SocksDoor::Step SocksDoor::request() {
  const bool binds = kept_.size() > 1 && kept_[1] == static_cast<std::byte>(SocksCommand::bind);
  command_ = binds ? SocksCommand::bind : SocksCommand::connect;
  const std::array head = {kVersion, static_cast<std::byte>(command_), std::byte{0}, kName};
  const std::size_t there = std::min(kept_.size(), head.size());
  if (!std::equal(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(there), head.begin())) {
    return Step::wrong;
  }
  if (kept_.size() < kRequestHead) {
    return Step::more;
  }
  const auto length = std::to_integer<std::size_t>(kept_[kRequestHead - 1]);
  const std::size_t whole = kRequestHead + length + kPortBytes;
  if (kept_.size() < whole) {
    return Step::more;
  }
  if (kept_.size() > whole || length == 0) {
    return Step::wrong;
  }
  name_ = as_text(ByteView(kept_).subspan(kRequestHead, length));
  kept_.clear();
  return Step::asks;
}

}  // namespace atl
