#include "transport/bulk/address_choice.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "transport/base/address.hpp"

namespace atl {
namespace {

enum class Rank : std::uint8_t { preferred, neighbour, elsewhere, tunnel };

// Bridges that container engines and hypervisors make: behind them are this machine's own guests, and each such machine has the same
// addresses there. A bridge of another name may be the machine's way into its network.
bool is_for_guests(const std::string& interface) {
  static constexpr std::array<std::string_view, 12> kBegins = {"docker", "br-",   "virbr",  "cni",   "flannel", "cali",
                                                               "lxcbr",  "lxdbr", "podman", "vmnet", "vboxnet", "incusbr"};
  return std::ranges::any_of(kBegins, [&](std::string_view begins) { return interface.starts_with(begins); });
}

}  // namespace

bool InterfaceRules::bars(const std::string& interface) const {
  return !interface.empty() && std::ranges::find(never_over, interface) != never_over.end();
}

std::string addresses_to_offer(std::span<const std::string> named, std::span<const InterfaceAddress> own, std::uint16_t port, bool ipv6,
                               const InterfaceRules& rules) {
  std::vector<std::string> offered(named.begin(), named.end());
  // Those of tunnels are last: others reach the same machine without, where they can.
  for (const bool tunnels : {false, true}) {
    for (const InterfaceAddress& address : own) {
      const bool six = address.host.find(':') != std::string::npos;
      if (port != 0 && address.overlay == tunnels && !address.loopback && (ipv6 || !six) && !is_for_guests(address.interface) &&
          !rules.bars(address.interface)) {
        offered.push_back(to_string(Address{address.host, port}));
      }
    }
  }
  return address_text(offered);
}

std::vector<std::string> addresses_to_dial(std::string_view offered, std::span<const InterfaceAddress> own, std::uint16_t own_port,
                                           const InterfaceRules& rules, const std::function<std::string(const std::string& host)>& route) {
  std::vector<std::pair<Rank, std::string>> ranked;
  for (const std::string& text : addresses_in(offered)) {
    const Result<Address> address = parse_address(text);
    const bool is_own = address && own_port != 0 && address->port == own_port &&
                        std::ranges::find(own, address->host, &InterfaceAddress::host) != own.end();
    if (!address || is_own || ranked.size() == kMostAddresses) {
      continue;
    }
    const std::string interface = route(address->host);
    if (rules.bars(interface)) {
      continue;
    }
    const auto is_tunnel = [&](const InterfaceAddress& one) { return one.interface == interface && one.overlay; };
    const auto is_near = [&](const InterfaceAddress& one) { return !one.overlay && is_neighbour(one, address->host); };
    const Rank rank = std::ranges::find(rules.prefer, interface) != rules.prefer.end() ? Rank::preferred
                      : std::ranges::any_of(own, is_near)                              ? Rank::neighbour
                      : std::ranges::any_of(own, is_tunnel)                            ? Rank::tunnel
                                                                                       : Rank::elsewhere;
    ranked.emplace_back(rank, to_string(*address));
  }
  std::ranges::stable_sort(ranked, {}, &std::pair<Rank, std::string>::first);
  std::vector<std::string> ordered;
  for (auto& [rank, address] : ranked) {
    ordered.push_back(std::move(address));
  }
  return ordered;
}

}  // namespace atl
