#include "coordinator/service/relay_passes.hpp"

#include "transport/relay/relay_pass.hpp"

namespace atl::coordinator {
namespace {

constexpr Duration kRenew = kPassLifetime / 3;

}  // namespace

std::optional<Relays> RelayPasses::welcome(const IslandId& island, TimePoint now) {
  if (tickets_.empty()) {
    return std::nullopt;
  }
  made_[island] = now;
  return made_for(island, now);
}

Relays RelayPasses::made_for(const IslandId& island, TimePoint now) const {
  Relays relays;
  for (const RelayTicket& ticket : tickets_) {
    relays.relays.push_back({ticket.name, ticket.address, make_pass(ticket.secret, island, now), ticket.carries});
  }
  return relays;
}

std::optional<Relays> RelayPasses::renewed(const IslandId& island, TimePoint now) {
  const auto made = made_.find(island);
  return made == made_.end() || now - made->second < kRenew ? std::nullopt : welcome(island, now);
}

}  // namespace atl::coordinator
