#include "transport/relay/hole_words.hpp"

#include <arpa/inet.h>

#include <algorithm>

#include "transport/identity/hmac.hpp"

namespace atl {
namespace {

constexpr std::array kAnswerHead = {std::byte{5}, std::byte{0}, std::byte{0}, std::byte{4}};  // SOCKS: an IPv6 address follows
constexpr std::uint16_t kLeastPort = 1024;
constexpr std::array kIpv4Mapped = {std::byte{0}, std::byte{0}, std::byte{0}, std::byte{0}, std::byte{0},    std::byte{0},
                                    std::byte{0}, std::byte{0}, std::byte{0}, std::byte{0}, std::byte{0xff}, std::byte{0xff}};

void put(Bytes& bytes, std::uint64_t value, unsigned count) {
  for (unsigned i = count; i > 0; --i) {
    bytes.push_back(static_cast<std::byte>(value >> (8 * (i - 1))));
  }
}

std::uint64_t number(ByteView bytes) {
  std::uint64_t value = 0;
  for (const std::byte byte : bytes) {
    value = value << 8U | std::to_integer<std::uint64_t>(byte);
  }
  return value;
}

Error no_answer() { return {Code::corrupt, "the relay said something else than an answer to BIND"}; }

bool is_nobody_or_everybody(const SeenAddress& address) {
  const auto first = std::to_integer<unsigned>(address.host[address.is_ipv4() ? 12 : 0]);
  return std::ranges::all_of(address.host, [](std::byte byte) { return byte == std::byte{0}; }) ||
         (address.is_ipv4() ? first == 0 || first >= 224 : first == 0xff);
}

}  // namespace

bool SeenAddress::is_ipv4() const { return std::equal(kIpv4Mapped.begin(), kIpv4Mapped.end(), host.begin()); }

bool SeenAddress::is_loopback() const {
  const bool own = std::all_of(host.begin(), host.end() - 1, [](std::byte byte) { return byte == std::byte{0}; });
  return is_ipv4() ? host[12] == std::byte{127} : own && host[15] == std::byte{1};
}

Address to_address(const SeenAddress& seen) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const bool four = seen.is_ipv4();
  (void)::inet_ntop(four ? AF_INET : AF_INET6, seen.host.data() + (four ? 12 : 0), text.data(), text.size());
  return {text.data(), seen.port};
}

Bytes to_bytes(const SeenAddress& address) {
  Bytes bytes(address.host.begin(), address.host.end());
  put(bytes, address.port, 2);
  return bytes;
}

Result<SeenAddress> read_seen_address(ByteView bytes) {
  if (bytes.size() != kSeenAddressBytes) {
    return no_answer();
  }
  SeenAddress address;
  std::ranges::copy(bytes.first(address.host.size()), address.host.begin());
  address.port = static_cast<std::uint16_t>(number(bytes.subspan(address.host.size())));
  return address;
}

Bytes to_bytes(const HoleSeen& seen) {
  Bytes bytes(kAnswerHead.begin(), kAnswerHead.end());
  const Bytes address = to_bytes(seen.self);
  bytes.insert(bytes.end(), address.begin(), address.end());
  put(bytes, seen.second_port, 2);
  return bytes;
}

Result<HoleSeen> read_hole_seen(ByteView bytes) {
  if (bytes.size() != kHoleSeenBytes || !std::equal(kAnswerHead.begin(), kAnswerHead.end(), bytes.begin())) {
    return no_answer();
  }
  ATOLL_ASSIGN(const SeenAddress self, read_seen_address(bytes.subspan(kAnswerHead.size(), kSeenAddressBytes)));
  return HoleSeen{self, static_cast<std::uint16_t>(number(bytes.last(2)))};
}

Bytes to_bytes(const HoleBegin& begin) {
  Bytes bytes(kAnswerHead.begin(), kAnswerHead.end());
  bytes[1] = static_cast<std::byte>(begin.code);
  const Bytes address = to_bytes(begin.peer);
  bytes.insert(bytes.end(), address.begin(), address.end());
  put(bytes, static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(begin.wait).count()), 4);
  bytes.insert(bytes.end(), begin.token.begin(), begin.token.end());
  return bytes;
}

Result<HoleBegin> read_hole_begin(ByteView bytes, bool from_here) {
  if (bytes.size() != kHoleBeginBytes || bytes[0] != kAnswerHead[0] || bytes[3] != kAnswerHead[3]) {
    return no_answer();
  }
  HoleBegin begin;
  begin.code = static_cast<SocksAnswer>(bytes[1]);
  ATOLL_ASSIGN(begin.peer, read_seen_address(bytes.subspan(kAnswerHead.size(), kSeenAddressBytes)));
  begin.wait = std::chrono::microseconds(number(bytes.subspan(kAnswerHead.size() + kSeenAddressBytes, 4)));
  std::ranges::copy(bytes.last(kHoleTokenBytes), begin.token.begin());
  if (begin.code == SocksAnswer::joined && (begin.wait > kLongestHoleWait || begin.peer.port < kLeastPort ||
                                            is_nobody_or_everybody(begin.peer) || (begin.peer.is_loopback() && !from_here))) {
    return Error{Code::corrupt, "the relay named an address or a moment that cannot be the other island's"};
  }
  return begin;
}

HoleMoments moments_of(Duration first_round_trip, Duration second_round_trip) {
  const Duration apart = std::clamp<Duration>((first_round_trip - second_round_trip) / 2, -kLongestHoleWait, kLongestHoleWait);
  return {std::max<Duration>(-apart, Duration::zero()), std::max<Duration>(apart, Duration::zero())};
}

Digest hole_proof(ByteView token, const IslandId& island) { return hmac_sha256(token, as_bytes("atoll punched hole\n" + island.text)); }

}  // namespace atl
