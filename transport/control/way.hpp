// By which way data go between two islands: directly, through a proxy, through a hole that both punched into their routers,
// or over a relay.
// Threads: plain values.
#pragma once

#include <cstdint>
#include <string>

namespace atl {

// Why no hole was punched on the way to a peer.
enum class NotPunched : std::uint8_t {
  not_tried,
  own_router,    // gives each connection another port: a peer cannot know which
  peers_router,  // does so
  nothing_came,  // both dialled at the same moment, again and again, and one's router let nothing in
  switched_off,  // by the island's owner
};

struct Way {
  std::string relay;     // its name; empty: none
  bool punched = false;  // neither: directly
  NotPunched not_punched = NotPunched::not_tried;
  std::string address = {};  // directly: that of the peer's that this side dialled, "tcp://host:port"; empty: the peer dialled
  bool proxied = false;      // directly, but through the proxy that this side dials over
  [[nodiscard]] bool is_direct() const { return relay.empty() && !punched; }
  friend bool operator==(const Way&, const Way&) = default;
};

// "direct", "proxy", "punched", or "relay frankfurt".
inline std::string to_string(const Way& way) {
  return way.punched ? "punched" : !way.relay.empty() ? "relay " + way.relay : way.proxied ? "proxy" : "direct";
}

}  // namespace atl
