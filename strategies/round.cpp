#include "strategies/round.hpp"

namespace atl {

RunRounds::RunRounds(const StrategySpec& strategy, std::uint64_t rounds, std::uint64_t merge_rounds)
    : last_(rounds), last_trained_(rounds - merge_rounds) {
  trained_.group = strategy.group;
  trained_.lockstep = strategy.payload == PayloadKind::gradient;
  trained_.quorum = strategy.group == Group::all ? strategy.quorum : 0;
  if (strategy.group == Group::pairs) {
    trained_.commit = CommitRule::members;
    trained_.base = BaseRule::own;
  } else if (strategy.group != Group::all) {
    trained_.commit = CommitRule::self;
    trained_.base = BaseRule::own;
    trained_.quorum = 1;
  }
}

RoundTerms RunRounds::terms(Round round) const {
  if (round <= last_trained_) {
    return trained_;
  }
  RoundTerms merge;
  merge.base = trained_.base;
  merge.merges = true;
  merge.fragment = static_cast<std::uint32_t>(round.value - last_trained_.value - 1);
  return merge;
}

}  // namespace atl
