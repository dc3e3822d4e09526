// How long an agent's arithmetic takes, for the planner: measured on this machine with the functions that agents use, or given.
// Threads: any; measuring takes a core for some tens of milliseconds.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "strategies/composition.hpp"
#include "strategies/planning/forecast.hpp"
#include "transport/base/result.hpp"

namespace atl {

// What a round costs an agent besides: messages, digests, the ledger's sync. From bench_coordinator on 2 cores of an AMD EPYC.
inline constexpr double kRoundOverheadSeconds = 0.010;

// The costs of a composition among `islands`, with fragments of at most `values` values, and where they are from.
struct CostSource {
  std::string name;  // "measured on this machine", "given"
  std::function<AgentCosts(const Composition& composition, std::size_t islands, std::uint64_t values)> of;
};

// Form: the outer gradient, its norm and its encoding. Apply: decoding, summing and encoding as a shard's owner does, the outer step and
// the copy into the arena. In time of one core's processor, over arrays of up to four million values, the best of some repeats, rounded to
// ten figures a decade; a setting that was measured is remembered.
CostSource measured_costs();

// "FORM,APPLY" in nanoseconds a value, as "0.4,1.2". Errors: invalid_argument saying what is meant.
Result<CostSource> given_costs(std::string_view text);

}  // namespace atl
