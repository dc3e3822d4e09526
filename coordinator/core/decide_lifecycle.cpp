#include "coordinator/core/decide_lifecycle.hpp"

#include <algorithm>

namespace atl::coordinator {

InitialDecision decide_initial(const InitialInput& input) {
  const std::string ready = std::to_string(input.ready);
  const std::string min = std::to_string(input.min);
  InitialDecision decision;
  if (input.ready >= std::max<std::size_t>(1, input.min) && (input.starting.empty() || input.now >= input.deadline)) {
    decision.commit = input.known;
    decision.wait.text = input.known ? "" : "waits for an island that has the parameters that the run begins with ([model] from)";
  } else if (input.starting.empty()) {
    decision.wait.text = "waits for " + std::to_string(input.min - input.ready) + " more islands (needs " + min + ", has " + ready + ")";
  } else {
    decision.wait.text = list_of(input.starting) + (input.starting.size() == 1 ? " is" : " are") + " starting";
    if (input.now < input.deadline) {
      decision.wait.until = input.deadline;
    } else {  // fewer than min are there: only their answers help
      decision.wait.text += "; the deadline has passed, but only " + ready + " of at least " + min + " are ready";
    }
  }
  return decision;
}

std::string stops_after(Round round, bool completes) {
  return (completes ? "ends after round " : "is being paused after round ") + std::to_string(round.value);
}

std::optional<Wait> decide_pause(const PauseInput& input) {
  if (input.writing.empty()) {
    return std::nullopt;
  }
  return Wait{stops_after(input.after, input.completes) + "; waits for the checkpoint of " + list_of(input.writing), std::nullopt};
}

std::optional<Wait> decide_end(const EndInput& input) {
  if (input.pending.empty() && input.ended > 0) {
    return std::nullopt;
  }
  return Wait{"all rounds are done; waits for the last checkpoint of " + list_of(input.pending), std::nullopt};
}

AloneDecision decide_alone(const AloneInput& input) {
  using Kind = AloneDecision::Kind;
  if (!input.training.empty()) {
    return {Kind::train, {list_of(input.training) + (input.training.size() == 1 ? " is" : " are") + " training", std::nullopt}};
  }
  if (input.anybody_ended && (input.away.empty() || input.now >= input.until)) {
    return {Kind::end, {}};
  }
  if (input.away.empty()) {
    return {Kind::hopeless, {}};
  }
  return {Kind::wait, {"waits for " + list_of(input.away), input.anybody_ended ? std::optional<TimePoint>(input.until) : std::nullopt}};
}

std::optional<Wait> decide_merge(const MergeInput& input) {
  if (input.pending.empty() || input.exchanging || input.now >= input.until) {
    return std::nullopt;
  }
  return Wait{"the merge of all islands waits for " + list_of(input.pending), input.until};
}

std::optional<Wait> decide_own_restore(const OwnRestoreInput& input) {
  if (!input.missing.empty() && input.now < input.until) {
    return Wait{"waits for " + list_of(input.missing) + " to connect; then all go on from where they were", input.until};
  }
  if (!input.anybody_has_state && input.begun) {
    return Wait{"no connected island has the run's state, in memory or on its disk; it cannot go on before one connects that has" +
                    (input.missing.empty() ? "" : ": " + list_of(input.missing)),
                std::nullopt};
  }
  return std::nullopt;
}

Wait decide_standing(const StandingInput& input) {
  Wait wait = input.wait;
  if (input.enough && !input.stands.empty()) {
    wait = Wait{input.stands, std::nullopt};  // the pauses between its attempts are no deadlines: no other thing happens when they are over
  }
  if (!input.enough && !input.away.empty()) {
    wait.text += ": " + list_of(input.away);
  }
  if (!input.stops.empty() && !wait.text.starts_with(input.stops)) {
    wait.text = input.stops + (wait.text.empty() ? "" : "; " + wait.text);
  }
  return wait;
}

}  // namespace atl::coordinator
