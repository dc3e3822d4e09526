#include "coordinator/core/rules/closing.hpp"

#include <algorithm>
#include <utility>

#include "coordinator/core/core_state.hpp"
#include "strategies/specification/model_kind.hpp"
#include "transport/base/planted.hpp"

namespace atl::coordinator {
namespace {

constexpr std::uint64_t kRoundsAhead = 64;  // of the newest committed one that a contribution may be for
// The same where rounds close with a quorum: a contribution that missed its round is for the next one of its fragment.
constexpr std::uint64_t kRoundsAheadWithQuorum = 1024;

}  // namespace

std::uint64_t Closing::rounds_ahead() const { return kRoundsAhead; }

// An island that claims more would have any norm and any number of steps allowed.
std::uint32_t Closing::missed_by(const Run& /*run*/, const Contribution& contribution) const {
  return std::min(contribution.facts.staleness, 1U);
}

// ---------------------------------------------------------------------------------------------------------- with a quorum

std::uint64_t QuorumClosing::rounds_ahead() const { return kRoundsAheadWithQuorum; }

bool QuorumClosing::is_counted(const Run& run, const DataRange& data) const { return data.to <= run.data.position(data.part); }

// They are counted with its next contribution that counts.
DataRange QuorumClosing::withdrawn_data(const DataRange& /*data*/) const { return {}; }

void QuorumClosing::before_contribution(Run& run, const IslandId& island, Round round, std::uint32_t fragment) {
  run.rounds().forget_others(island, round, fragment);
}

// It has another contribution by now, and says so.
void QuorumClosing::on_own_fault(OpenRound& round, const IslandId& island) { round.forget(island); }

bool QuorumClosing::may_close(Run& run, Round number) {
  tell_of_grace(run);
  OpenRound& round = run.rounds().at(number);
  const auto on_time = std::ranges::count_if(
      run.members, [&](const IslandId& id) { return answer_in(run, round, id) == Answer::ready && !late(run, round, id); });
  round.note_quorum(static_cast<std::size_t>(on_time) >= needed(run), now());
  return !run.rounds().follows_open_one(number);
}

std::size_t QuorumClosing::needed(const Run& run) const { return std::min<std::size_t>(run.spec.strategy.quorum, run.members.size()); }

void QuorumClosing::describe(Run& run, const OpenRound& round, RoundInput& input) const {
  input.quorum = run.spec.strategy.quorum;
  input.quorum_since = round.quorum_since();
  input.grace = grace_in(run, round);
}

// Formed against older outer parameters: it is for the next round by the time it is formed anew.
void QuorumClosing::before_plan(Run& run, Round number, const std::vector<IslandId>& participants) {
  OpenRound& round = run.rounds().at(number);
  for (const IslandId& id : participants) {
    if (answer_in(run, round, id) == Answer::none) {
      round.forget(id);
    }
  }
}

// A contribution to be formed against the newest outer parameters of its fragment counts once the island has formed it against those.
Answer QuorumClosing::answer_in(const Run& run, const OpenRound& round, const IslandId& island) const {
  const Contribution* contribution = round.contribution_of(island);
  if (contribution == nullptr || contribution->withdrawn || run.spec.strategy.anchor == Anchor::own) {
    return round.answer_of(island);
  }
  const auto newest = run.in_rounds().newest.find(contribution->facts.fragment);
  const bool older = newest != run.in_rounds().newest.end() &&
                     newest->second <= run.lineage.committed() &&  // else of rounds that were lost
                     contribution->facts.base < newest->second;
  return older && !ATOLL_PLANTED(older_anchor) ? Answer::none : Answer::ready;
}

// Its contribution to this round missed earlier ones. (Where the overlap is the whole period each is formed one round late.)
bool QuorumClosing::late(const Run& run, const OpenRound& round, const IslandId& island) const {
  const Contribution* contribution = round.contribution_of(island);
  const std::uint32_t usual = run.spec.strategy.overlap_steps >= run.spec.strategy.inner_steps ? 1 : 0;
  return contribution != nullptr && contribution->facts.staleness > usual;
}

// How many rounds of its fragment a contribution missed, as far as that can be so.
std::uint32_t QuorumClosing::missed_by(const Run& run, const Contribution& contribution) const {
  return std::min(contribution.facts.staleness, run.spec.strategy.max_staleness + 1);
}

// Of how many rounds a contribution has the movement in it, beside its own: of those that it missed, where it is formed against the newest
// outer parameters.
std::uint32_t QuorumClosing::spanned_by(const Run& run, const Contribution& contribution) const {
  return run.spec.strategy.anchor == Anchor::newest ? missed_by(run, contribution) : 0;
}

// Where rounds close with a quorum an island's contributions may be committed in another order than it made them. The first that is
// committed counts all samples up to its own, and those that were made before it count none: each sample is counted once, and none is left
// out.
DataRange QuorumClosing::counted_by(const Run& run, const ContributionFacts& facts) const {
  DataRange data = facts.data;
  const std::uint64_t counted = run.data.position(data.part);
  data.from = std::min(counted, data.to);
  return data;
}

void QuorumClosing::on_committed(Run& run, Round round, std::uint32_t fragment) { run.in_rounds().newest[fragment] = round; }

// How long an island takes for an inner step, as it said last; nothing: it has not said.
std::optional<Duration> QuorumClosing::step_of(const Run& run, const IslandId& id) const {
  const Island* island = islands_.find(id);
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
Duration QuorumClosing::grace_in(const Run& run, const OpenRound& round) const {
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
void QuorumClosing::tell_of_grace(Run& run) {
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
            " of island " + islands_.name_of(fastest->second) + " are " +
            human_duration(fastest->first * static_cast<Duration::rep>(strategy.overlap_steps)) +
            "; grace = \"auto\" follows the islands' steps");
}

}  // namespace atl::coordinator
