// Rounds that close with a quorum: which contributions count, how long a round waits for more, and which samples are committed with one.
#include <algorithm>

#include "coordinator/core/core_state.hpp"
#include "strategies/specification/run_rules.hpp"
#include "transport/base/planted.hpp"

namespace atl::coordinator {

// A contribution to be formed against the newest outer parameters of its fragment counts once the island has formed it against those.
Answer Core::State::answer_in(const Run& run, const OpenRound& round, const IslandId& island) const {
  const Contribution* contribution = round.contribution_of(island);
  if (contribution == nullptr || contribution->withdrawn || !run.passes_over() || run.spec.strategy.anchor == Anchor::own) {
    return round.answer_of(island);
  }
  const auto newest = run.in_rounds().newest.find(contribution->fragment);
  const bool older = newest != run.in_rounds().newest.end() &&
                     newest->second <= run.lineage.committed() &&  // else of rounds that were lost
                     contribution->base < newest->second;
  return older && !ATOLL_PLANTED(older_anchor) ? Answer::none : Answer::ready;
}

// Its contribution to this round missed earlier ones. (Where the overlap is the whole period each is formed one round late.)
bool Core::State::late(const Run& run, const OpenRound& round, const IslandId& island) {
  const Contribution* contribution = round.contribution_of(island);
  const std::uint32_t usual = run.spec.strategy.overlap_steps >= run.spec.strategy.inner_steps ? 1 : 0;
  return run.passes_over() && contribution != nullptr && contribution->staleness > usual;
}

// Of how many rounds a contribution has the movement in it, beside its own: of those that it missed, where it is formed against the newest
// outer parameters.
std::uint32_t Core::State::spanned_by(const Run& run, const Contribution& contribution) {
  return run.passes_over() && run.spec.strategy.anchor == Anchor::newest ? contribution.staleness : 0;
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

// Where rounds close with a quorum an island's contributions may be committed in another order than it made them. The first that is
// committed counts all samples up to its own, and those that were made before it count none: each sample is counted once, and none is left
// out.
DataRange Core::State::counted_by(const Run& run, const Contribution& contribution) {
  DataRange data = contribution.data;
  const std::uint64_t counted = run.data.position(data.part);
  data.from = std::min(counted, data.to);
  return data;
}

}  // namespace atl::coordinator
