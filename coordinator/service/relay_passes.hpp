// What the coordinator's islands show at its relays: a pass for each island and relay, made anew before it runs out.
// Threads: one.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "transport/base/ids.hpp"
#include "transport/base/time.hpp"
#include "transport/control/message.hpp"
#include "transport/relay/relay_ticket.hpp"

namespace atl::coordinator {

class RelayPasses {
 public:
  // In the order in which islands try them.
  explicit RelayPasses(std::vector<RelayTicket> tickets) : tickets_(std::move(tickets)) {}

  // What to say to an island that has become welcome; nothing: there are no relays.
  std::optional<Relays> welcome(const IslandId& island, TimePoint now);
  // What to say to an island that is heard; nothing: its passes are good for long, or it is not welcome.
  std::optional<Relays> renewed(const IslandId& island, TimePoint now);
  // Passes for one that asks with the island's key beside the island itself, which gets its own all the same.
  [[nodiscard]] Relays made_for(const IslandId& island, TimePoint now) const;
  [[nodiscard]] bool any() const { return !tickets_.empty(); }

 private:
  std::vector<RelayTicket> tickets_;
  std::map<IslandId, TimePoint> made_;
};

}  // namespace atl::coordinator
