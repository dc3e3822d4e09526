// What is allowed and seldom wanted: said by `validate`, `plan` and `status`, refused by nobody.
// Threads: pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "strategies/specification/run_spec.hpp"

namespace atl {

// One line each, for a person: what, why, and what to set instead. Empty if there is nothing to say.
//   outer momentum   0.7 and 0.9 belong to runs of hundreds of rounds: the first step moves by 1.33 times the islands' mean, later ones by
//   7
//                    times. With a momentum above 0.5 and fewer than kRoundsForMomentum synchronisations of a fragment a small model ended
//                    16 % above data-parallel; with a learning rate of 1 and no momentum, 6 % above (README.md, "Results"). Not of pairs,
//                    whose momentum and pull belong together.
//   trimmed-mean     leaves out none of three contributions: a quorum or an islands.min below four lets rounds close with so few.
std::vector<std::string> notes_on(const RunSpec& spec);

inline constexpr std::uint64_t kRoundsForMomentum = 100;

}  // namespace atl
