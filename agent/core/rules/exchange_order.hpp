// What an order to exchange says of one island.
// Threads: pure functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "transport/control/message.hpp"

namespace atl::agent {

// What an island contributes to the exchange; 0: nothing, or it is no member.
inline std::uint64_t tokens_of(const Exchange& order, const IslandId& island) {
  const auto place = std::ranges::find(order.members, island);
  return place == order.members.end() ? 0 : order.terms.tokens[static_cast<std::size_t>(place - order.members.begin())];
}

// Whether it is this contribution of the island that counts, and none that it made before.
inline bool counts(const Exchange& order, const IslandId& island, const ContributionFacts& facts) {
  const auto place = static_cast<std::size_t>(std::ranges::find(order.members, island) - order.members.begin());
  return tokens_of(order, island) == std::max<std::uint64_t>(1, facts.tokens) &&
         (place >= order.terms.norms.size() || order.terms.norms[place] == facts.norm);
}

}  // namespace atl::agent
