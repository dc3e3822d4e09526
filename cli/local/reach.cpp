#include "cli/local/reach.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <memory>

#include "agent/service/own_port.hpp"

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
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) {
    return found;
  }
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  for (const ifaddrs* item = list; item != nullptr; item = item->ifa_next) {
    if (item->ifa_addr == nullptr || (item->ifa_flags & IFF_UP) == 0) {
      continue;
    }
    std::array<char, INET6_ADDRSTRLEN> text{};
    const int family = item->ifa_addr->sa_family;
    const void* bytes = family == AF_INET    ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(item->ifa_addr)->sin_addr)
                        : family == AF_INET6 ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in6*>(item->ifa_addr)->sin6_addr)
                                             : nullptr;
    if (bytes != nullptr && ::inet_ntop(family, bytes, text.data(), text.size()) != nullptr) {
      found.emplace_back(text.data());
    }
  }
  return found;
}

}  // namespace atl
