// Islands of different speeds: how they come to a round together, and how long one that has its quorum waits for the slower ones.
#include <algorithm>
#include <utility>

#include "coordinator/core/core_state.hpp"
#include "strategies/specification/run_rules.hpp"

namespace atl::coordinator {

// Adaptive pace: once the first island has come to the synchronisation point the others are told to come as they are.
void Core::State::keep_pace(Run& run, Round number) {
  OpenRound& round = run.rounds().at(number);
  const auto on_time = [&](const auto& item) { return !late(run, round, item.first); };
  if (run.spec.strategy.pace != Pace::adaptive || run.has_own_outer_state() || std::ranges::none_of(round.contributions(), on_time)) {
    return;
  }
  const bool again = round.cut_is_due(out);
  for (const IslandId& id : run.members) {
    if (again && round.contribution_of(id) == nullptr) {
      send(id, Cut{run.about.id, run.epoch, number});
    }
  }
  wake_at(round.next_cut());
}

// How long an island takes for an inner step, as it said last; nothing: it has not said.
std::optional<Duration> Core::State::step_of(const Run& run, const IslandId& id) const {
  const Island* island = islands.find(id);
  if (island == nullptr) {
    return std::nullopt;
  }
  const auto report = island->reports.find(run.about.id);
  if (report == island->reports.end() || !(report->second.tokens_per_second > 0)) {
    return std::nullopt;
  }
  const auto tokens = static_cast<double>(run.spec.training.batch * tokens_per_sequence(run.spec));
  return from_seconds(tokens / report->second.tokens_per_second);
}

// How long a round that has its quorum waits for others.
Duration Core::State::grace_in(const Run& run, const OpenRound& round) const {
  const StrategySpec& strategy = run.spec.strategy;
  if (const std::optional<Duration> stated = grace_of(strategy).value_or(std::nullopt)) {
    return *stated;
  }
  GraceInput input;
  input.overlap_steps = strategy.overlap_steps;
  for (const IslandId& id : run.members) {
    const std::optional<Duration> step = step_of(run, id);
    if (!step) {
      continue;
    }
    if (round.contribution_of(id) != nullptr) {
      input.step = input.step == Duration(0) ? *step : std::min(input.step, *step);
    }
    if (strategy.pace == Pace::adaptive) {
      input.slowest = std::max(input.slowest, *step);
    }
  }
  input.period = input.step * static_cast<Duration::rep>(std::min<std::uint64_t>(strategy.inner_steps, 1'000'000'000));
  if (round.first_answer() && round.quorum_since()) {
    input.quorum_wait = *round.quorum_since() - *round.first_answer();
  }
  if (const Committed* newest = run.lineage.recent(run.lineage.committed())) {
    input.exchange = newest->times ? newest->times->committed - newest->times->planned : Duration(0);
  }
  return decide_grace(input);
}

// A grace that the run file states holds, however long it is. How much of it the overlap hides shows only once the islands have told how
// long their steps take.
void Core::State::tell_of_grace(Run& run) {
  const StrategySpec& strategy = run.spec.strategy;
  if (run.in_rounds().told_of_grace) {
    return;
  }
  const std::optional<Duration> grace = grace_of(strategy).value_or(std::nullopt);
  if (!grace) {
    return;
  }
  std::optional<std::pair<Duration, IslandId>> fastest;
  for (const IslandId& id : run.members) {
    if (const std::optional<Duration> step = step_of(run, id); step && (!fastest || *step < fastest->first)) {
      fastest = {*step, id};
    }
  }
  if (!fastest || *grace <= fastest->first * static_cast<Duration::rep>(strategy.overlap_steps)) {
    return;
  }
  run.in_rounds().told_of_grace = true;
  event(run.about.id, fastest->second, "warning", "grace_too_long",
        "strategy.grace " + strategy.grace + " of run " + run.about.name +
            " is longer than its overlap hides: " + std::to_string(strategy.overlap_steps) + " steps of " + human_duration(fastest->first) +
            " of island " + islands.name_of(fastest->second) + " are " +
            human_duration(fastest->first * static_cast<Duration::rep>(strategy.overlap_steps)) +
            "; grace = \"auto\" follows the islands' steps");
}

}  // namespace atl::coordinator
