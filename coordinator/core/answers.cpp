// What an answer in a round changes: nothing where it is repeated, and little while many others are awaited. A look at a run goes through
// all of its members. If each answer were a reason for one, the work for a round would grow with the square of the members.
#include "coordinator/core/core_state.hpp"

namespace atl::coordinator {
namespace {

constexpr std::size_t kMany = 8;  // while more are awaited one answer ends no wait

}  // namespace

// The run, if its islands have one outer state and this island is here to stay; null: whatever it says is to be looked at.
const Run* Core::State::shared_run(const IslandId& id, const RunId& run) const {
  const Island* island = islands.find(id);
  const auto found = runs.find(run);
  const bool stays = island != nullptr && island->greeted && !island->probe && !island->leaving();
  return stays && found != runs.end() && !found->second.has_tasks() && !found->second.has_own_outer_state() ? &found->second : nullptr;
}

// The round that this island says something of; null as above.
const OpenRound* Core::State::awaiting(const IslandId& id, const RunId& run, Round number) const {
  const Run* shared = shared_run(id, run);
  const OpenRound* round = shared == nullptr ? nullptr : shared->rounds().find(number);
  return round == nullptr || round->recovered() ? nullptr : round;
}

// An island that waits repeats its answer until it hears of the round. The first answer begins a wait, with adaptive pace any may, and the
// last ones of all, or of a quorum, end it.
Stir Core::State::stir_of(const IslandId& id, const atl::Ready& message) const {
  const OpenRound* round = awaiting(id, message.run, message.round);
  if (round == nullptr) {
    return Stir::all;
  }
  if (const Contribution* known = round->contribution_of(id); known != nullptr) {
    return *known == contribution_in(message) ? Stir::nothing : Stir::all;
  }
  const Run& run = runs.at(message.run);
  const std::size_t answers = round->contributions().size();
  const std::size_t needed =
      run.closes_with_quorum() ? std::min<std::size_t>(run.spec.strategy.quorum, run.members.size()) : run.members.size();
  const bool decides = round->exchanging() || answers == 0 || run.spec.strategy.pace == Pace::adaptive;
  return !decides && answers + kMany < needed ? Stir::little : Stir::all;
}

Stir Core::State::stir_of(const IslandId& id, const Exchanged& message) const {
  const OpenRound* round = awaiting(id, message.run, message.round);
  if (round == nullptr || round->attempt() != message.attempt || round->has_exchanged(id)) {
    return Stir::all;
  }
  return round->awaited().value_or(0) > kMany ? Stir::little : Stir::all;
}

Stir Core::State::stir_of(const IslandId& id, const Merged& message) const {
  const Run* run = shared_run(id, message.run);
  return run != nullptr && !run->islands_commit(message.round) ? Stir::numbers : Stir::all;
}

}  // namespace atl::coordinator
