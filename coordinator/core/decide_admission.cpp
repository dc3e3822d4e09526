#include <algorithm>

#include "coordinator/core/decide.hpp"

namespace atl::coordinator {
namespace {

constexpr std::uint64_t kNearlyThere = 2;  // rounds behind
constexpr unsigned kMissedOften = 4;       // then rounds are too quick for it, however near it is
constexpr unsigned kHolds = 3;             // rounds held for one joiner

// A round has only just begun: a joiner that starts now keeps nobody waiting for long.
bool round_is_fresh(const AdmitInput& input) {
  const Duration early = std::max<Duration>(std::chrono::seconds(2), input.last_round / 4);
  return !input.anybody_ready && input.now - input.last_commit <= early;
}

bool may_enter(const AdmitInput& input, const Joiner& joiner) {
  return joiner.trains && joiner.caught_up == input.committed && !input.exchanging &&
         (input.lockstep || !input.enough || input.stuck || joiner.boundaries_missed > 0 || round_is_fresh(input));
}

// Worth waiting for: it is copying while nobody moves on, or it is nearly there. One that is there cannot come in while a round is
// exchanged.
bool worth_holding(const AdmitInput& input, const Joiner& joiner) {
  if (!joiner.trains) {
    return false;
  }
  if (input.lockstep) {
    return joiner.copying || joiner.caught_up.has_value();
  }
  if (!joiner.caught_up || joiner.boundaries_missed == 0 || (*joiner.caught_up >= input.committed && !input.exchanging)) {
    return false;
  }
  const bool near = input.committed.value <= joiner.caught_up->value + kNearlyThere || joiner.boundaries_missed >= kMissedOften;
  return near && (joiner.holds < kHolds || input.hold_since.has_value());
}

}  // namespace

AdmitDecision decide_admission(const AdmitInput& input) {
  AdmitDecision decision;
  std::vector<std::string> held_for;
  for (const Joiner& joiner : input.joiners) {
    if (may_enter(input, joiner)) {
      decision.admit.push_back(joiner.island);
    } else if (worth_holding(input, joiner)) {
      held_for.push_back(joiner.name);
      decision.held_for.push_back(joiner.island);
    }
  }
  const TimePoint until = input.hold_since.value_or(input.now) + input.hold_limit;
  if (!held_for.empty() && input.now < until) {
    decision.hold = Wait{"the next round waits a moment for " + list_of(held_for) + " to catch up", until};
  } else {
    decision.held_for.clear();
  }
  return decision;
}

}  // namespace atl::coordinator
