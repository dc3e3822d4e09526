// The addresses of this machine's network interfaces, and over which of them another address is reached.
//
// Asked of the kernel each time: interfaces come and go. No packet is sent.
// Threads: any.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace atl {

struct InterfaceAddress {
  std::string interface;  // "eth0"
  std::string host;       // "192.168.1.7", "2001:db8::7"
  unsigned prefix = 0;    // bits that all addresses of its network have in common
  bool loopback = false;
  bool overlay = false;  // leads into a tunnel (WireGuard, Tailscale, OpenVPN, PPP): what goes over it goes over another interface, too
  friend bool operator==(const InterfaceAddress&, const InterfaceAddress&) = default;
};

// Of the interfaces that are up, without IPv6 addresses that have a meaning on one link only.
std::vector<InterfaceAddress> interface_addresses();

// The first of IPv4 that is not loopback: where others find this machine when no route says more; none without one.
std::optional<std::string> first_host(std::span<const InterfaceAddress> own);

// True if `host` is an address of the network that `own` belongs to. Of a name nothing is known: false.
bool is_neighbour(const InterfaceAddress& own, const std::string& host);

// The interface that packets to `host`, an address and no name, leave by; empty: it is not known, or there is no route.
std::string interface_towards(const std::string& host, std::span<const InterfaceAddress> own);

// The interface that a connected socket's packets leave by, by its own address; empty: it is not known.
std::string interface_of_socket(int descriptor, std::span<const InterfaceAddress> own);

}  // namespace atl
