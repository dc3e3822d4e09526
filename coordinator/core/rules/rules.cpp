#include "coordinator/core/rules/rules.hpp"

#include <algorithm>

#include "coordinator/core/core_state.hpp"
#include "strategies/specification/run_rules.hpp"

namespace atl::coordinator {
namespace {

// Which round is of which fragment, where that follows from the specification: the number of its rounds shows whether there are as many
// fragments as it says. (The embeddings may be one more.)
std::optional<Schedule> schedule_in(const RunSpec& spec) {
  const Result<Composition> composition = compose(spec.strategy);
  if (!composition) {
    return std::nullopt;
  }
  const Result<Schedule> schedule = schedule_of(*composition, spec.training.steps, std::max<std::uint32_t>(1, spec.strategy.fragments));
  return schedule && schedule->rounds() + spec.merge_rounds == spec.rounds ? std::optional(*schedule) : std::nullopt;
}

}  // namespace

Rules::Rules(Core::State& core)
    : all_(core),
      quorum_(core),
      buffer_(core),
      shared_(core, all_),
      shared_with_quorum_(core, quorum_),
      shared_with_buffer_(core, buffer_),
      lockstep_(core, all_),
      gossip_(core, all_),
      own_(core, all_),
      tasks_(core) {}

Rule& Rules::of(const RunSpec& spec) {
  const RunRounds rounds(spec.strategy, spec.rounds, spec.merge_rounds);
  switch (rounds.rule()) {
    case RunRule::gossip:
      return gossip_;
    case RunRule::own:
      return own_;
    case RunRule::tasks:
      return tasks_;
    case RunRule::shared:
      break;
  }
  if (rounds.closes_with_quorum()) {
    return spec.strategy.quorum_of == QuorumOf::any_age ? shared_with_buffer_ : shared_with_quorum_;
  }
  return rounds.lockstep() ? lockstep_ : shared_;
}

void Rules::adopt(Run& run, RunSpec spec) {
  run.spec = std::move(spec);
  run.rule = &of(run.spec);
  run.data.belong_to(run.about.id, classes_of_data(run.spec), sequences_of_a_round(run.spec));
  run.guards.set(run.spec.guards.norm_factor, run.spec.guards.quarantine_after);
  switch (rule_of(run.spec.strategy.group)) {
    case RunRule::tasks:
      run.work = Tasks{};
      break;
    case RunRule::shared:
      run.schedule = schedule_in(run.spec);
      break;
    case RunRule::gossip:
    case RunRule::own:
      break;
  }
}

}  // namespace atl::coordinator
