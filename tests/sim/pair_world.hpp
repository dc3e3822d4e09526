// Islands that meet in pairs, on virtual time: PairExchange over simulated bulk links, with everything that can go wrong drawn from a
// seed: loss, repetition, replay, reordering, one-way cuts, deaths, slow islands, and a coordinator that keeps the membership,
// is away at times, and drops who is silent, dead or not.
//
// In half of the stories they meet in groups of three or four. The checker looks from outside: of two islands that are in the run to the
// end, never does one take a round's step with the other while the other takes it alone; and where both met, both used the same bytes.
// Threads: one.
#pragma once

#include <cstdint>
#include <string>

namespace atl::sim {

struct PairWorldCounts {
  std::uint64_t met = 0;
  std::uint64_t alone = 0;
  std::uint64_t doubts = 0;     // promises that an answer by way of the coordinator ended
  std::uint64_t handed_on = 0;  // of them: the answer of another promiser, which knew what was decided
  std::uint64_t forgotten = 0;  // of them, in groups of more than two: that nobody knows
  std::uint64_t deaths = 0;
  std::uint64_t joins = 0;
};

// Runs the story of a seed to its end. Empty: all is well; else what is wrong. `counts` are added to.
std::string run_pair_world(std::uint64_t seed, PairWorldCounts& counts);

}  // namespace atl::sim
