// What an island shows at a relay: a pass that its coordinator made, for a while.
//
// Relay and coordinator share a secret (relay_ticket.hpp). A pass names the island and says until when it is good, and has an
// HMAC-SHA-256 of both with the secret. Whom an island wants to meet it says itself: the relay joins two islands only where each has asked
// for the other, so a pass lets nobody in whom the other side did not ask for.
//
//   request  ISLAND "." EXPIRES "." MAC "." PEER     a name in SOCKS's sense: lower-case letters, digits and dashes between dots
// EXPIRES are seconds since 1970, MAC the first 16 bytes in hexadecimal. The pass is the first three parts.
// A pass travels in the clear: who listens on the way to a relay can take the island's place there until it expires. The sessions of the
// bulk link then fail, for who took the place has no key of the island's.
// Threads: pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "transport/base/bytes.hpp"
#include "transport/base/ids.hpp"
#include "transport/base/result.hpp"
#include "transport/base/time.hpp"

namespace atl {

inline constexpr Duration kPassLifetime = std::chrono::hours(1);
inline constexpr std::size_t kMaxRequestBytes = 255;  // that SOCKS has room for

struct RelayPass {
  IslandId island;
  std::uint64_t expires = 0;  // seconds since 1970
  friend bool operator==(const RelayPass&, const RelayPass&) = default;
};

struct MeetingRequest {
  IslandId island;
  IslandId peer;
  bool punches = false;  // they do not meet here: each is told the other's address
  friend auto operator<=>(const MeetingRequest&, const MeetingRequest&) = default;
  friend bool operator==(const MeetingRequest&, const MeetingRequest&) = default;
};

// Good for kPassLifetime.
std::string make_pass(ByteView secret, const IslandId& island, TimePoint now);
// What an island with this pass asks a relay for.
std::string request_with(const std::string& pass, const IslandId& peer);
// Who asks for whom. Errors: corrupt for what is no request; unauthorized for a pass that was made with another secret, or is over.
Result<MeetingRequest> read_request(ByteView secret, std::string_view request, TimePoint now);

}  // namespace atl
