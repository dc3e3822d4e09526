#include "cli/local/reach.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <utility>

#include "agent/service/own_port.hpp"
#include "transport/bulk/interface_addresses.hpp"

namespace atl {
namespace {

bool is_literal(const std::string& host) {
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  return ::inet_pton(AF_INET, host.c_str(), bytes.data()) == 1 || ::inet_pton(AF_INET6, host.c_str(), bytes.data()) == 1;
}

}  // namespace

std::string reach_text(const Address& advertised, std::span<const std::string> own) {
  const std::string& host = advertised.host;
  const std::string port = std::to_string(advertised.port);
  const std::string ports = "TCP ports " + port + " and, between islands, " + std::to_string(agent::kAgentPort);
  if (advertised.is_loopback()) {
    return "only this machine reaches " + host + "; for others give --advertise HOST, a name or address of this machine";
  }
  const bool literal = is_literal(host);
  if (literal && std::ranges::find(own, host) == own.end()) {
    return host + " is no address of this machine: a router has to pass " + ports +
           " on to here; if it is an old one, give --advertise HOST";
  }
  if (literal && advertised.is_private()) {
    return "machines of this network reach " + host + ", unless a firewall stops " + ports +
           "; for machines elsewhere let the router pass those ports on to here, and give --advertise with the router's public address";
  }
  return (literal ? "machines anywhere reach " + host : "who finds this machine by the name " + host + " reaches it") +
         ", unless a firewall stops " + ports;
}

std::vector<std::string> own_addresses() {
  std::vector<std::string> found;
  for (InterfaceAddress& address : interface_addresses()) {
    found.push_back(std::move(address.host));
  }
  return found;
}

}  // namespace atl
