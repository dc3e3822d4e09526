// What an answer in a round changes: nothing where it is repeated, and little while many others are awaited. A look at a run goes through
// all of its members. If each answer were a reason for one, the work for a round would grow with the square of the members.
#include "coordinator/core/core_state.hpp"
#include "coordinator/core/rules/shared_rule.hpp"

namespace atl::coordinator {
namespace {

constexpr std::size_t kMany = 8;  // while more are awaited one answer ends no wait

}  // namespace

// The round that a member says something of; null: whatever it says is to be looked at.
const OpenRound* SharedRule::awaiting(const Run& run, const IslandId& island, Round number) const {
  const OpenRound* round = islands_.leaving(island) ? nullptr : run.rounds().find(number);
  return round == nullptr || round->recovered() ? nullptr : round;
}

// An island that waits repeats its answer until it hears of the round. The first answer begins a wait, with adaptive pace any may, and the
// last ones of all, or of a quorum, end it.
Stir SharedRule::stir_of(const Run& run, const IslandId& id, const atl::Ready& message) const {
  const OpenRound* round = awaiting(run, id, message.round);
  if (round == nullptr) {
    return Stir::all;
  }
  if (const Contribution* known = round->contribution_of(id); known != nullptr) {
    return *known == contribution_in(message) ? Stir::nothing : Stir::all;
  }
  const std::size_t answers = round->contributions().size();
  const std::size_t needed = closing_.needed(run);
  const bool decides = round->exchanging() || answers == 0 || run.spec.strategy.pace == Pace::adaptive;
  return !decides && answers + kMany < needed ? Stir::little : Stir::all;
}

Stir SharedRule::stir_of(const Run& run, const IslandId& id, const Exchanged& message) const {
  const OpenRound* round = awaiting(run, id, message.round);
  if (round == nullptr || round->attempt() != message.attempt || round->has_exchanged(id)) {
    return Stir::all;
  }
  return round->awaited().value_or(0) > kMany ? Stir::little : Stir::all;
}

Stir SharedRule::stir_of(const Run& /*run*/, const IslandId& id, const Merged& /*message*/) const {
  return islands_.leaving(id) ? Stir::all : Stir::numbers;
}

}  // namespace atl::coordinator
