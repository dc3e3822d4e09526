// Islands that meet in pairs, on virtual time: PairExchange over simulated bulk links, with everything that can go wrong drawn from a
// seed: loss, repetition, replay, reordering, one-way cuts, deaths, slow islands, and a coordinator that keeps the membership,
// is away at times, and drops who is silent, dead or not.
//
// The checker looks from outside: of two islands that are in the run to the end, never does one take a round's step with the
// other while the other takes it alone; and where both met, both used the same bytes.
// Threads: one.
#pragma once

#include <cstdint>
#include <string>

namespace atl::sim {

struct PairWorldCounts {
  std::uint64_t met = 0;
  std::uint64_t alone = 0;
  std::uint64_t doubts = 0;     // promises that a membership or the coordinator's word ended
  std::uint64_t deaths = 0;
  std::uint64_t joins = 0;
};

// Runs the story of a seed to its end. Empty: all is well; else what is wrong. `counts` are added to.
std::string run_pair_world(std::uint64_t seed, PairWorldCounts& counts);

}  // namespace atl::sim
