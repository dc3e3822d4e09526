// Over what each two islands of a run would exchange, and what its relays would carry.
//
// Of an exchange of P islands each sends every other one 1/(P−1) of what it sends in all, whether as a shard and its result, or as one of
// the pairs that are drawn by lot. So a relay carries, of two islands a and b that meet there,
//   bytes = (sent(a) + sent(b)) / (P − 1)
// and sends as many as it receives. Of two islands alone, N parameters and b bytes a value that is 2·N·b a round.
// Threads: pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace atl {

// The names in a document of islands, or in a plan.
std::vector<std::string> island_names(const nlohmann::json& islands);
// Of the coordinator's document of islands: each two of `members` with the way that they take now, as measured, the slowest first.
nlohmann::json pair_ways(const nlohmann::json& islands, const std::vector<std::string>& members);
// Of such pairs and a plan (planner.hpp): each relay, how many pairs it carries, and how many bytes in a round and in the run.
nlohmann::json relay_loads(const nlohmann::json& pairs, const nlohmann::json& plan);

}  // namespace atl
