// Rounds that close with a quorum: which contributions count, and which samples are committed with one.
#include <algorithm>

#include "coordinator/core/core_state.hpp"
#include "transport/base/planted.hpp"

namespace atl::coordinator {

// A contribution to be formed against the newest outer parameters of its fragment counts once the island has formed it against those.
Answer Core::State::answer_in(const Run& run, const OpenRound& round, const IslandId& island) const {
  const Contribution* contribution = round.contribution_of(island);
  if (contribution == nullptr || contribution->withdrawn || !run.closes_with_quorum() || run.spec.strategy.anchor == Anchor::own) {
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
  if (!run.closes_with_quorum()) {
    return false;
  }
  const Contribution* contribution = round.contribution_of(island);
  const std::uint32_t usual = run.spec.strategy.overlap_steps >= run.spec.strategy.inner_steps ? 1 : 0;
  return contribution != nullptr && contribution->staleness > usual;
}

// How many rounds of its fragment a contribution missed, as far as that can be so: an island that claims more would have any norm and any
// number of steps allowed.
std::uint32_t Core::State::missed_by(const Run& run, const Contribution& contribution) {
  return std::min(contribution.staleness, run.closes_with_quorum() ? run.spec.strategy.max_staleness + 1 : 1U);
}

// Of how many rounds a contribution has the movement in it, beside its own: of those that it missed, where it is formed against the newest
// outer parameters.
std::uint32_t Core::State::spanned_by(const Run& run, const Contribution& contribution) {
  return run.closes_with_quorum() && run.spec.strategy.anchor == Anchor::newest ? missed_by(run, contribution) : 0;
}

// What the guard of norms looks at. An island may claim as many inner steps as a round has, once more for each round that it missed: with
// more it could claim any norm.
JudgedNorm Core::State::judged(const Run& run, const IslandId& island, const Contribution& contribution) {
  const std::uint64_t most = run.spec.strategy.inner_steps * (1ULL + missed_by(run, contribution));
  return {island, contribution.norm, spanned_by(run, contribution), std::min(contribution.steps, most)};
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
