// At which addresses an island says that it is reached, and in which order one dials those of another.
//
// An island offers what its owner named (--advertise) and the addresses of its interfaces; the coordinator adds the address that it sees
// (transport/base/address.hpp has the form). Whoever dials a peer dials all of its addresses at once and takes the best of those at which
// the peer proves its key. All at once and not one after the other (RFC 8305 waits 250 ms between two): there are eight at most, no packet
// of parameters goes before the choice, and an address that is dead costs no time. The best has a head start all the same: another one is
// taken only 250 ms after its handshake, that of the RFC, so that two islands of one network do not meet through their router because it
// answered first.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/bulk/interface_addresses.hpp"

namespace atl {

// What an island's owner says of its interfaces, by name.
struct InterfaceRules {
  std::vector<std::string> prefer;      // what is reached over one of these goes before anything else
  std::vector<std::string> never_over;  // nothing goes from island to island over one of these
  [[nodiscard]] bool bars(const std::string& interface) const;
};

// As one text. `named`: as the owner named them, or as it was found towards the coordinator; they are in front. `port`: that all interfaces
// listen on; `ipv6`: of those, too. Left out: loopback, the bridges of containers and virtual machines on this machine, barred ones.
std::string addresses_to_offer(std::span<const std::string> named, std::span<const InterfaceAddress> own, std::uint16_t port, bool ipv6,
                               const InterfaceRules& rules);

// Those of `offered`, a peer's, that are worth dialling, the best first: over an interface that the owner prefers; in a network of this
// machine's; any other one; through a tunnel. Among equals as the peer has them. `route`: interface_towards, for tests another one.
// Left out: this machine's own with `own_port`, those behind a barred interface.
std::vector<std::string> addresses_to_dial(std::string_view offered, std::span<const InterfaceAddress> own, std::uint16_t own_port,
                                           const InterfaceRules& rules, const std::function<std::string(const std::string& host)>& route);

}  // namespace atl
