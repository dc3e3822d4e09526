// The planner: what a run file will cost on given islands, before anything is started, as a document for people and programs.
//
// It puts together what is pure elsewhere: the fragments that agents would lay out (agent/engine/parameter_layout.hpp), the schedule
// and the event simulation on virtual time (strategies/planning/forecast.hpp, whose header says its equations).
// Every document has `schema` 1; cli/views/plan_views.cpp renders them.
// Threads: pure functions, but for measuring costs (agent_costs.hpp).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/island_link/messages.hpp"
#include "cli/planning/agent_costs.hpp"
#include "strategies/planning/forecast.hpp"
#include "strategies/specification/run_spec.hpp"
#include "transport/base/result.hpp"

namespace atl {

inline constexpr std::string_view kTried = "tried";

struct PlanIsland {
  ForecastIsland figures;
  std::string source;  // where they are from, for people: "given", "measured", kTried
};

// NAME=STEP_TIME,UPLINK[,DOWNLINK[,ROUND_TRIP]], as "lyon=250ms,50mbit,200mbit,30ms". A step time of "tried" is 0, and the
// island's source kTried: a trial (trial_trainer.hpp) says how long a step takes. A downlink left out is as fast as the
// uplink; a round trip left out is `round_trip_seconds`. Errors: invalid_argument saying what is wrong and what is meant.
Result<PlanIsland> parse_plan_island(std::string_view text, double round_trip_seconds);

// What is taken where nobody has measured it.
struct PlanAssumptions {
  double round_trip_seconds = 0;
  double step_seconds = 0;  // 0: no step time is assumed
};

// The connected islands of a coordinator's `islands` document. Their links are those that were measured by themselves (the fastest path to
// and from each, the longest round trip to it), else what their last exchange moved (within the owners' budgets); the time per inner step
// is that which runs of the same model took (`statuses`: newest first), scaled by tokens to this run's batch.
// Errors: not_found without a connected island; unavailable naming the islands and the figure that nobody has measured, and
// how to give it.
Result<std::vector<PlanIsland>> measured_islands(const nlohmann::json& islands, const std::vector<nlohmann::json>& statuses,
                                                 const RunSpec& spec, const PlanAssumptions& assumed);

// The run as its file says it, each island with its own τ where [islands].overlap_steps gives it one. `utilisation`, in (0, 1], is what the
// sustained bounds are for. `declared`: the parameters, where a trainer of the run's own has told them. Errors: invalid_argument naming
// what is impossible.
Result<nlohmann::json> plan_document(const RunSpec& spec, const std::vector<PlanIsland>& islands, double utilisation,
                                     const CostSource& costs, const std::optional<island_link::Manifest>& declared = std::nullopt);

// The same run with other inner_steps, fragments, overlap_steps and codecs, and the cheapest setting (fewest bytes sent by all,
// then the lowest peak) that reaches `utilisation`, for each inner_steps and of all. An island's own τ stays what the file says.
// Errors: invalid_argument where the strategy does not send outer gradients.
Result<nlohmann::json> sweep_document(const RunSpec& spec, const std::vector<PlanIsland>& islands, double utilisation,
                                      const CostSource& costs, const std::optional<island_link::Manifest>& declared = std::nullopt);

// Table 4 of Streaming DiLoCo, printed and ours.
Result<nlohmann::json> table_4_document();
// `plan --paper noloco-latency`: what gossip saves in time, by the number of islands.
Result<nlohmann::json> gossip_timing_document();
// `plan --paper decoupled-diloco-goodput`: what interruptions leave of all chips' time, by method and number of chips.
Result<nlohmann::json> goodput_document();

}  // namespace atl
