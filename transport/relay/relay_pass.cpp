#include "transport/relay/relay_pass.hpp"

#include <openssl/crypto.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "transport/identity/hmac.hpp"

namespace atl {
namespace {

constexpr std::size_t kMacBytes = 16;
constexpr std::string_view kPurpose = "atoll relay pass\n";

std::uint64_t unix_seconds(TimePoint time) { return static_cast<std::uint64_t>(std::max<std::int64_t>(unix_ms(time), 0)) / 1000; }

std::string signed_part(std::string_view island, std::string_view expires) {
  return std::string(kPurpose) + std::string(island) + "." + std::string(expires);
}

Bytes mac_of(ByteView secret, const std::string& text) {
  const Digest whole = hmac_sha256(secret, as_bytes(text));
  return Bytes(whole.bytes.begin(), whole.bytes.begin() + kMacBytes);
}

bool is_plain_id(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; });
}

}  // namespace

std::string make_pass(ByteView secret, const IslandId& island, TimePoint now) {
  const std::string expires = std::to_string(unix_seconds(now + kPassLifetime));
  return island.text + "." + expires + "." + to_hex(mac_of(secret, signed_part(island.text, expires)));
}

std::string request_with(const std::string& pass, const IslandId& peer) { return pass + "." + peer.text; }

Result<MeetingRequest> read_request(ByteView secret, std::string_view request, TimePoint now) {
  const Error none{Code::corrupt, "it asks for something else than a meeting of islands"};
  std::array<std::string_view, 4> parts;
  if (request.size() > kMaxRequestBytes) {
    return none;
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::size_t dot = request.find('.');
    if ((dot == std::string_view::npos) != (i + 1 == parts.size())) {
      return none;
    }
    parts[i] = request.substr(0, dot);
    request.remove_prefix(dot == std::string_view::npos ? request.size() : dot + 1);
    if (!is_plain_id(parts[i])) {
      return none;
    }
  }
  const auto& [island, expires, mac, peer] = parts;
  std::uint64_t until = 0;
  const auto [end, problem] = std::from_chars(expires.data(), expires.data() + expires.size(), until);
  const Result<Bytes> shown = from_hex(mac);
  if (problem != std::errc() || end != expires.data() + expires.size() || !shown || shown->size() != kMacBytes || island == peer) {
    return none;
  }
  const Bytes right = mac_of(secret, signed_part(island, expires));
  if (CRYPTO_memcmp(right.data(), shown->data(), kMacBytes) != 0) {
    return Error{Code::unauthorized, "its pass was not made with this relay's ticket: give the coordinator the newest one"};
  }
  if (until <= unix_seconds(now)) {
    return Error{Code::unauthorized, "the pass of island " + std::string(island) + " is over"};
  }
  return MeetingRequest{IslandId(std::string(island)), IslandId(std::string(peer)), false};
}

}  // namespace atl
