#include "strategies/round.hpp"

namespace atl {

RunRounds::RunRounds(const Composition& composition, std::uint64_t rounds, std::uint64_t merge_rounds)
    : last_(rounds), last_trained_(rounds - merge_rounds) {
  trained_.group = composition.group;
  trained_.lockstep = composition.payload == PayloadKind::gradient;
  trained_.quorum = composition.group == Group::all ? composition.quorum : 0;
  if (composition.group == Group::pairs) {
    trained_.commit = CommitRule::members;
    trained_.base = BaseRule::own;
  } else if (composition.group != Group::all) {
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
