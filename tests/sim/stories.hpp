// What the stories begin with: a calm world, in which nothing is lost but by the test's hand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tests/sim/cluster.hpp"

namespace atl::sim {

// A run of DiLoCo of four inner steps a round, a checkpoint every two.
Scenario calm(std::uint32_t islands, std::uint32_t min, std::uint64_t rounds = 8);
// The same in pairs (NoLoCo), with a merge at the end.
Scenario calm_pairs(std::uint32_t islands, std::uint32_t min, std::uint64_t rounds);
// How many events of this kind the coordinator's ledger has.
std::size_t events(const Cluster& cluster, const std::string& kind);
// The run completes, and nothing that was promised was broken.
void finish(Cluster& cluster);

}  // namespace atl::sim
