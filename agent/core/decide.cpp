#include "agent/core/decide.hpp"

#include <algorithm>

#include "transport/base/planted.hpp"

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
    return input.has_state ? Activity{"waiting", "waits to be let in at the next round" + away}
                           : Activity{"waiting", "waits for a peer's state" + away};
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

// The second try shows that it was no accident; the third that no server was just starting.
constexpr unsigned kAlike = 3;

constexpr unsigned kShortOfMemory = 2;

bool ran_out_of_memory(std::string_view words) { return words.find("out of memory") != std::string_view::npos; }

bool ends_alike(std::string_view words, std::string_view before) {
  return !words.empty() && (words == before || (ran_out_of_memory(words) && ran_out_of_memory(before)));
}

RestartDecision decide_restart(unsigned crashes, unsigned alike, unsigned limit, bool permanent, Duration first_delay,
                               std::string_view progress, bool out_of_memory) {
  if (permanent) {
    return {false, {}, "trying again cannot help"};
  }
  if (out_of_memory && alike >= kShortOfMemory) {
    return {false, {}, "it ran out of memory " + std::to_string(alike) + " times"};
  }
  if (alike >= kAlike) {
    return {false, {}, "it ended " + std::to_string(alike) + " times with the same words"};
  }
  if (crashes >= limit) {
    return {false, {}, "it ended " + std::to_string(crashes) + " times without " + std::string(progress) + " in between"};
  }
  return {true, first_delay * (1U << std::min(crashes == 0 ? 0U : crashes - 1, 6U)), ""};
}

bool evaluation_due(Round round, Round last, std::uint32_t every) {
  return (every > 0 && round.value % every == 0) || round == Round(1) || round == last;
}

bool checkpoint_due(Round round, Round last, std::uint64_t every) {
  return round == last || (every > 0 && round.value > 0 && round.value % every == 0);
}

Round decide_horizon(const Schedule& schedule, Round committed, std::uint64_t ahead) {
  const Round last(schedule.rounds());
  const Result<RoundPlan> next = schedule.round_at(committed.next());
  if (!next) {
    return last;
  }
  Round newest = committed.next();
#ifndef ATOLL_PLANTED_OVERLAP_BUG
  while (newest < last && newest.value < committed.value + kRoundsInFlight) {
    const Result<RoundPlan> after = schedule.round_at(newest.next());
    if (!after || (after->start > next->apply && !ATOLL_PLANTED(runs_ahead))) {
      break;
    }
    newest = newest.next();
  }
#endif
  return std::min({Round(newest.value + ahead), Round(committed.value + kRoundsInFlight), last});
}

namespace {

MergeOrder merge_of(const RoundPlan& plan, Step step, Round last, const PlanSettings& settings) {
  return MergeOrder{plan.round,
                    plan.fragment,
                    step,
                    settings.alpha,
                    evaluation_due(plan.round, last, settings.evaluate_every),
                    settings.lockstep,
                    checkpoint_due(plan.round, last, settings.checkpoint_every)};
}

}  // namespace

PlanDecision decide_plan(const Schedule& schedule, Round planned, Round until_round, const PlanSettings& settings,
                         const std::set<Round>& formed) {
  PlanDecision decision;
  const Round last(schedule.rounds());
  for (Round round = planned.next(); round <= std::min(until_round, last); round = round.next()) {
    const Result<RoundPlan> plan = schedule.round_at(round);
    if (!plan) {
      break;
    }
    if (!formed.contains(round)) {
      decision.publish.push_back(PublishOrder{round, plan->fragment, plan->start, evaluation_due(round, last, settings.evaluate_every)});
    }
    const Step merged = ATOLL_PLANTED(runs_ahead) ? schedule.round_at(last).value().apply : plan->apply;
    decision.merge.push_back(merge_of(*plan, merged, last, settings));
    decision.until = std::max(decision.until, plan->apply);
  }
#ifndef ATOLL_PLANTED_OVERLAP_BUG
  if (const Result<RoundPlan> unplanned = schedule.round_at(until_round.next())) {
    decision.until = std::min(decision.until, unplanned->start);
  }
#endif
  return decision;
}

WholePlan decide_whole_plan(const Schedule& schedule, const WholePlanInput& input, const PlanSettings& settings) {
  WholePlan whole{input.planned, {}};
  const Round last(schedule.rounds());
  const Round until = std::min(input.until, last);
  const auto plan_of = [&](Round round) { return schedule.round_at(round).value(); };
  const auto waits = [&](const RoundPlan& plan) {  // is looked at again once the contribution before it is formed
    const std::optional<Round> before = schedule.round_before(plan);
    return before && *before > input.committed && !input.formed.contains(*before);
  };
  while (whole.newest < until) {
    // All that start at one step are ordered together, so that their merges come in the order of the rounds.
    const Step start = plan_of(whole.newest.next()).start;
    std::vector<RoundPlan> together;
    for (Round round = whole.newest.next(); round <= last && plan_of(round).start == start; round = round.next()) {
      together.push_back(plan_of(round));
    }
    if (together.back().round > until || std::ranges::any_of(together, waits)) {
      break;
    }
    std::vector<RoundPlan> merged;
    for (const RoundPlan& plan : together) {
      if (!input.in_hand.contains(plan.round)) {
        whole.orders.publish.push_back(
            PublishOrder{plan.round, plan.fragment, plan.start, evaluation_due(plan.round, last, settings.evaluate_every)});
      }
      if (const std::optional<Round> before = schedule.round_before(plan); before && *before > input.loaded) {
        merged.push_back(plan_of(*before));
      }
      if (plan.apply == plan.start) {  // the fragment's last
        merged.push_back(plan);
      }
    }
    std::ranges::sort(merged, {}, &RoundPlan::round);
    for (const RoundPlan& plan : merged) {
      whole.orders.merge.push_back(merge_of(plan, plan.apply, last, settings));
    }
    whole.newest = together.back().round;
  }
  whole.orders.until = whole.newest < last ? plan_of(whole.newest.next()).start : plan_of(last).apply;
  return whole;
}

}  // namespace atl::agent
