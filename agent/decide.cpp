#include "agent/decide.hpp"

#include <algorithm>

namespace atl::agent {

Activity decide_activity(const ActivityInput& input) {
  if (input.failed) {
    return {"finished", "cannot take part; waits for the coordinator to hear of it"};
  }
  if (input.ended) {
    return {"finished", "waits for the coordinator to end the run"};
  }
  if (input.catching_up) {
    return {"catching-up", "copies the state from its peers"};
  }
  if (input.restoring) {
    return {"catching-up", "loads its checkpoint"};
  }
  if (input.trainer_crashed) {
    return {"starting", "the trainer ended; it is started again in a moment"};
  }
  if (!input.trainer_up) {
    return {"starting", "the trainer is starting"};
  }
  const std::string away = input.link ? "" : "; the coordinator does not answer";
  if (!input.active) {
    return input.has_state ? Activity{"waiting", "waits to be let in at the next round" + away} : Activity{"waiting", "waits for a peer's state" + away};
  }
  if (input.checkpointing && !input.training) {
    return {"checkpointing", "writes a checkpoint"};
  }
  if (input.exchanging) {
    return {"exchanging", ""};
  }
  if (input.training) {
    return {"training", ""};
  }
  if (input.waiting) {
    return {"waiting", "round " + std::to_string(*input.waiting) + " waits for the others" + away};
  }
  return {"waiting", "waits for the others to start" + away};
}

RestartDecision decide_restart(unsigned crashes, unsigned limit, bool permanent, Duration first_delay) {
  if (permanent) {
    return {false, {}, "trying again cannot help"};
  }
  if (crashes >= limit) {
    return {false, {}, "it ended " + std::to_string(crashes) + " times without a committed round in between"};
  }
  return {true, first_delay * (1U << std::min(crashes == 0 ? 0U : crashes - 1, 6U)), ""};
}

bool checkpoint_due(Round round, Round last, std::uint32_t every) {
  return round == last || (every > 0 && round.value > 0 && round.value % every == 0);
}

PlanDecision decide_plan(const Schedule& schedule, Round planned, Round until_round, const PlanSettings& settings) {
  PlanDecision decision;
  const Round last(schedule.rounds());
  for (Round round = planned.next(); round <= std::min(until_round, last); round = round.next()) {
    const Result<RoundPlan> plan = schedule.round_at(round);
    if (!plan) {
      break;
    }
    const bool every = settings.evaluate_every > 0 && round.value % settings.evaluate_every == 0;
    const bool evaluate = every || round == last || round == Round(1);
    decision.publish.push_back(PublishOrder{round, plan->fragment, plan->start, evaluate});
    decision.merge.push_back(MergeOrder{round, plan->fragment, plan->apply, settings.alpha, evaluate, settings.lockstep,
                                        checkpoint_due(round, last, settings.checkpoint_every)});
    decision.until = std::max(decision.until, plan->apply);
  }
  return decision;
}

}  // namespace atl::agent
