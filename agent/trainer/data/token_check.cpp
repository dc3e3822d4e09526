#include "agent/trainer/data/token_check.hpp"

#include <algorithm>
#include <stop_token>
#include <utility>

namespace atl {
namespace {

constexpr std::uint64_t kBlock = std::uint64_t{1} << 16;

Status look_at(const TokenStream& stream, const std::vector<TokenRange>& ranges, std::uint64_t vocabulary, const std::stop_token& stop) {
  std::vector<std::int64_t> tokens(kBlock);
  for (const TokenRange& range : ranges) {
    for (std::uint64_t at = 0; at < range.count && !stop.stop_requested(); at += kBlock) {
      const std::uint64_t count = std::min(kBlock, range.count - at);
      ATOLL_TRY(stream.read(range.begin + at, vocabulary, std::span(tokens).first(static_cast<std::size_t>(count))));
    }
  }
  return {};
}

}  // namespace

Result<TokenCheck> TokenCheck::make(std::shared_ptr<const TokenStream> stream, std::vector<TokenRange> ranges, std::uint64_t vocabulary,
                                    std::uint64_t at_once) {
  TokenCheck check;
  if (stream->all_known(vocabulary)) {
    return check;
  }
  std::uint64_t count = 0;
  for (const TokenRange& range : ranges) {
    count += range.count;
  }
  if (count <= at_once) {
    ATOLL_TRY(look_at(*stream, ranges, vocabulary, {}));
    return check;
  }
  check.thread_ = std::jthread(
      [outcome = check.outcome_, stream = std::move(stream), ranges = std::move(ranges), vocabulary](const std::stop_token& stop) {
        if (Status status = look_at(*stream, ranges, vocabulary, stop); !status) {
          const std::lock_guard lock(outcome->mutex);
          outcome->status = std::move(status);
        }
      });
  return check;
}

Status TokenCheck::found() const {
  const std::lock_guard lock(outcome_->mutex);
  return outcome_->status;
}

void TokenCheck::wait() {
  if (thread_.joinable()) {
    thread_.join();
  }
}

}  // namespace atl
