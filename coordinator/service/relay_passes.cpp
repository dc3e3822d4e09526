#include "coordinator/service/relay_passes.hpp"

#include <algorithm>
#include <span>

#include "transport/base/address.hpp"
#include "transport/relay/relay_pass.hpp"

namespace atl::coordinator {
namespace {

constexpr Duration kRenew = kPassLifetime / 3;

std::string where_others_dial(const std::string& said, const std::string& seen_host) {
  Result<Address> address = parse_address(said);
  const Address seen{seen_host, 0};
  const bool of_own_network = address && (address->is_private() || address->is_loopback());
  if (!of_own_network || seen.host.empty() || seen.is_private() || seen.is_loopback()) {
    return said;
  }
  address->host = seen.host;
  return to_string(*address);
}

}  // namespace

std::optional<Relays> RelayPasses::welcome(const IslandId& island, TimePoint now) {
  made_[island] = now;
  return tickets_.empty() && own_.empty() && told_at_ == TimePoint() ? std::nullopt : std::optional(made_for(island, now));
}

Relays RelayPasses::made_for(const IslandId& island, TimePoint now) const {
  Relays relays;
  const auto add = [&](const RelayTicket& ticket) {
    relays.relays.push_back({ticket.name, ticket.address, make_pass(ticket.secret, island, now), ticket.carries});
  };
  std::ranges::for_each(tickets_, add);
  for (const auto& [owner, ticket] : of_islands()) {
    if (owner != island) {
      add(ticket);
    }
  }
  return relays;
}

std::optional<Relays> RelayPasses::renewed(const IslandId& island, TimePoint now) {
  const auto made = made_.find(island);
  return made == made_.end() || now - made->second < kRenew ? std::nullopt : welcome(island, now);
}

void RelayPasses::offer(const IslandId& island, const std::string& name, const OwnRelay& relay, const std::string& seen_host) {
  // No ticket in a file has a name with a space, so this one is nobody else's: "relay of reef".
  auto own = std::ranges::find(own_, island, &OfIsland::island);
  own = own == own_.end() ? own_.insert(own, {island, {}}) : own;
  own->ticket = {"of " + name, where_others_dial(relay.address, seen_host), Bytes(relay.secret.bytes.begin(), relay.secret.bytes.end())};
}

RelayPasses::OfIslands RelayPasses::of_islands() const {
  OfIslands relays;
  for (const OfIsland& relay : std::span(own_).first(std::min(own_.size(), kMostIslandRelays))) {
    relays.emplace_back(relay.island, relay.ticket);
  }
  return relays;
}

bool RelayPasses::look_at_islands(const std::function<Presence(const IslandId&)>& presence_of, TimePoint now) {
  for (OfIsland& relay : own_) {
    const Presence presence = presence_of(relay.island);
    relay.here = presence == Presence::here ? now : presence == Presence::gone ? TimePoint() : relay.here;
  }
  std::erase_if(own_, [&](const OfIsland& relay) { return now - relay.here >= kRelayKept; });
  looked_ = now;
  if (now - told_at_ < kTellRelaysAgain || of_islands() == told_) {
    return false;
  }
  told_ = of_islands();
  told_at_ = now;
  return true;
}

std::optional<Relays> RelayPasses::told_again(const IslandId& island, TimePoint now) {
  return made_.contains(island) ? welcome(island, now) : std::nullopt;
}

std::optional<TimePoint> RelayPasses::next_look() const {
  return own_.empty() && told_.empty() ? std::nullopt : std::optional(looked_ + kTellRelaysAgain);
}

}  // namespace atl::coordinator
