// Checkpoints of a run of rounds are copied to a store.
#include <algorithm>

#include "coordinator/core/core_state.hpp"
#include "coordinator/core/rules/round_rule.hpp"
#include "transport/base/store_address.hpp"

namespace atl::coordinator {

bool RoundRule::may_copy(const Run& run, const IslandId& id) const {
  const Island* island = islands_.find(id);
  return island != nullptr &&
         std::ranges::any_of(island->copies, [&](const std::string& place) { return is_below(run.spec.checkpoint.copy, place); });
}

void RoundRule::ask_for_copy(Run& run, Round round, const std::vector<IslandId>& holders, const std::vector<DataRange>& data) {
  if (run.spec.checkpoint.copy.empty()) {
    return;
  }
  std::vector<CopyCandidate> candidates;
  candidates.reserve(holders.size());
  for (const IslandId& id : holders) {
    candidates.push_back({id, islands_.alive(id) && may_copy(run, id)});
  }
  if (!run.copies.ask(round, candidates, data)) {
    event(run.about.id, {}, "warning", "checkpoint_not_copied",
          "no island of run " + run.about.name + " may copy checkpoints to " + run.spec.checkpoint.copy +
              ": let one by `atoll agent --allow-copy " + run.spec.checkpoint.copy + "`; the run goes on without copies");
  }
}

Commit RoundRule::commit_of(const Run& run, const IslandId& island, const Committed& round) const {
  Commit message{
      run.about.id,        run.epoch, round.round, round.attempt, round.digest, round.checkpoint, run.life.pauses_after() == round.round,
      run.lineage.tokens()};
  if (const std::vector<DataRange>* data = run.copies.asked(island, round.round)) {
    message.copy = true;
    message.data = *data;
  }
  return message;
}

}  // namespace atl::coordinator
