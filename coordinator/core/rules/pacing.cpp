// Islands of different speeds: how they come to a round together.
#include <algorithm>

#include "coordinator/core/core_state.hpp"
#include "coordinator/core/rules/round_rule.hpp"

namespace atl::coordinator {

// Adaptive pace: once the first island has come to the synchronisation point the others are told to come as they are.
void RoundRule::keep_pace(Run& run, Round number) {
  OpenRound& round = run.rounds().at(number);
  const auto on_time = [&](const auto& item) { return !closing_.late(run, round, item.first); };
  if (run.spec.strategy.pace != Pace::adaptive || !trains() || std::ranges::none_of(round.contributions(), on_time)) {
    return;
  }
  const bool again = round.cut_is_due(out_);
  for (const IslandId& id : run.members) {
    if (again && round.contribution_of(id) == nullptr) {
      send(id, Cut{run.about.id, run.epoch, number});
    }
  }
  wake_at(round.next_cut());
}

}  // namespace atl::coordinator
