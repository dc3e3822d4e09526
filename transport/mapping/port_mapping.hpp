// A port of this machine's router that the router passes on to this machine, so that others can dial an island at home.
//
// Asked for by NAT-PMP (RFC 6886), which the router answers within milliseconds, else by UPnP (Internet Gateway Device: AddPortMapping,
// WANIPConnection:1), with the libraries libnatpmp and libminiupnpc. The same port is asked for outside; a router that has given it away
// gives another one. A mapping is lent for 20 minutes and renewed after half of them, so that one of an island that is gone ends by itself;
// at the end it is given back. A router that forgot it, or has another public address, is noticed at the next renewal. Where no router
// answers it is asked again after a time that doubles from 10 seconds to 15 minutes, and when this machine's networks change.
// What a router says is not believed: an address at which others do not find this island's key costs them a dial, no more.
// Cost: a thread that sleeps; some packets on this machine's own network (to the gateway, and a multicast to 239.255.255.250).
// Threads: the owner's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace atl {

class PortMapping {
 public:
  // From now on, for a port of TCP that this machine listens on.
  explicit PortMapping(std::uint16_t port);
  // Gives it back: may last a second, or five where a router does not answer any more.
  ~PortMapping();
  PortMapping(const PortMapping&) = delete;
  PortMapping& operator=(const PortMapping&) = delete;

  // "tcp://203.0.113.7:4401": where others dial. Empty: no router passes anything on.
  [[nodiscard]] std::string address() const;
  // True once for each change of it.
  bool changed();
  // This machine's networks have changed: there may be another router.
  void look_again();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// As a router names its public address: an IPv4 address that another machine may have. Not 0.0.0.0, which says that it has none, loopback,
// link-local, multicast or reserved.
bool can_be_public(std::string_view host);

}  // namespace atl
