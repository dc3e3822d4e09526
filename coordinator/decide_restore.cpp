#include <algorithm>

#include "coordinator/decide.hpp"

namespace atl::coordinator {

RestoreDecision decide_restore(const RestoreInput& input) {
  RestoreDecision decision;
  std::vector<std::string> away;
  std::size_t connected = input.others;
  std::optional<Round> newest;
  for (const RestoreCandidate& candidate : input.candidates) {
    if (!candidate.connected) {
      away.push_back(candidate.name);
      continue;
    }
    ++connected;
    if (candidate.checkpoint && (!newest || *candidate.checkpoint > *newest)) {
      newest = candidate.checkpoint;
    }
  }
  const std::string nobody = "no island holds the state of round " + std::to_string(input.committed.value) + " in memory";
  if (connected < input.min) {
    decision.wait.text = nobody + "; waits for " + std::to_string(input.min - connected) + " more of " + list_of(away.empty() ? std::vector<std::string>{"any islands"} : away);
    return decision;
  }
  if (!newest && away.empty()) {
    decision.start_over = true;
    decision.wait.text = nobody + ", and none has a checkpoint of it";
    return decision;
  }
  if (!newest) {
    decision.wait.text = nobody + ", and none of those connected has a checkpoint of it that verifies; waits for " +
                         list_of(away);
    return decision;
  }
  const TimePoint until = input.since + input.grace;
  if (*newest < input.committed && !away.empty() && input.now < until) {
    decision.wait.text = nobody + "; the newest checkpoint here is of round " + std::to_string(newest->value) + "; waits for " + list_of(away) +
                         " before the rounds after it are given up";
    decision.wait.until = until;
    return decision;
  }
  decision.restore = true;
  decision.round = *newest;
  for (const RestoreCandidate& candidate : input.candidates) {
    if (candidate.connected && candidate.checkpoint == newest) {
      decision.islands.push_back(candidate.island);
    }
  }
  return decision;
}

}  // namespace atl::coordinator
