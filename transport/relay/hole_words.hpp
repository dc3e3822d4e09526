// What two islands and a relay say to each other so that the two can dial each other through their routers (hole punching over TCP).
//
// Each island asks the relay from the very port that it will dial the other one from (SO_REUSEPORT), so the address that the relay sees is
// the one that its router gave to that port. It asks for the same at a second port of the relay: a router that gives each connection
// another port cannot be punched, for the other island would have to dial a port that nobody knows. Then the relay tells both, at moments
// that are apart by the difference of their round trips to it, so that both dial at the same instant.
//   relay   u8 5, u8 0, u8 0, u8 4, address that it sees, u16 its second port, or 0         SOCKS's first answer to BIND (socks_door.hpp)
//   island  u8 1: ready, or u8 2: its router gives each connection another port
//   relay   u8 5, u8 code, u8 0, u8 4, address of the other, u32 µs to wait, token          SOCKS's second answer; code 2: one's router
//   does relay   address that it sees, and the end                                               to whoever comes to the second port
// An address has 16 bytes of IPv6 (IPv4 as ::ffff:a.b.c.d) and a u16 port; the token 16 bytes; numbers are big-endian.
// Once the two are connected each says 32 bytes, an HMAC-SHA-256 of its own id with the token, and nothing passes before the other's has
// come. The relay knows the token, too, and it travels in the clear: it keeps strangers out, and the bulk link's sessions everybody else.
// Threads: pure.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>

#include "transport/base/address.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/ids.hpp"
#include "transport/base/result.hpp"
#include "transport/base/time.hpp"
#include "transport/relay/socks_door.hpp"

namespace atl {

inline constexpr std::size_t kSeenAddressBytes = 18;
inline constexpr std::size_t kHoleTokenBytes = 16;
inline constexpr std::size_t kHoleSeenBytes = 4 + kSeenAddressBytes + 2;
inline constexpr std::size_t kHoleBeginBytes = 4 + kSeenAddressBytes + 4 + kHoleTokenBytes;
inline constexpr Duration kLongestHoleWait = std::chrono::seconds(2);

struct SeenAddress {
  std::array<std::byte, 16> host{};
  std::uint16_t port = 0;
  [[nodiscard]] bool is_ipv4() const;
  [[nodiscard]] bool is_loopback() const;
  friend bool operator==(const SeenAddress&, const SeenAddress&) = default;
};
Address to_address(const SeenAddress& seen);
Bytes to_bytes(const SeenAddress& address);
// Errors: corrupt.
Result<SeenAddress> read_seen_address(ByteView bytes);

struct HoleSeen {
  SeenAddress self;
  std::uint16_t second_port = 0;
};
Bytes to_bytes(const HoleSeen& seen);
// Errors: corrupt.
Result<HoleSeen> read_hole_seen(ByteView bytes);

enum class HoleReady : std::uint8_t { ready = 1, other_ports = 2 };

struct HoleBegin {
  SocksAnswer code = SocksAnswer::joined;
  SeenAddress peer;
  Duration wait{};
  std::array<std::byte, kHoleTokenBytes> token{};
};
Bytes to_bytes(const HoleBegin& begin);
// Errors: corrupt, also for an address that no router gives: a port below 1024, nobody's or everybody's host, this machine's unless
// `from_here`: the relay is on it. So a relay cannot have an island knock at the services of its own network.
Result<HoleBegin> read_hole_begin(ByteView bytes, bool from_here);

// When each of two islands has to begin after it has heard so: the farther one at once.
struct HoleMoments {
  Duration first{};
  Duration second{};
};
HoleMoments moments_of(Duration first_round_trip, Duration second_round_trip);

Digest hole_proof(ByteView token, const IslandId& island);

}  // namespace atl
