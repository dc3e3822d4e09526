#include <algorithm>

#include "coordinator/core/decide.hpp"

namespace atl::coordinator {

std::string list_of(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 6;
  std::string text;
  const std::size_t shown = names.size() > kShown ? kShown - 1 : names.size();
  for (std::size_t i = 0; i < shown; ++i) {
    if (i > 0) {
      text += i + 1 == names.size() ? " and " : ", ";
    }
    text += names[i];
  }
  if (shown < names.size()) {
    text += " and " + std::to_string(names.size() - shown) + " more";
  }
  return text;
}

namespace {

// Whom a run waits for: the expected names that are not there, and the islands that something prevents.
std::string missing_text(const StartInput& input) {
  std::vector<std::string> missing;
  for (const std::string& name : input.expected) {
    const auto found = std::find_if(input.candidates.begin(), input.candidates.end(),
                                    [&](const StartCandidate& candidate) { return candidate.name == name; });
    if (found == input.candidates.end()) {
      missing.push_back(name + " (never seen)");
    }
  }
  for (const StartCandidate& candidate : input.candidates) {
    if (!candidate.connected) {
      missing.push_back(candidate.name + " (not connected)");
    } else if (!candidate.obstacle.empty()) {
      missing.push_back(candidate.name + " (" + candidate.obstacle + ")");
    }
  }
  return missing.empty() ? "" : ": " + list_of(missing);
}

}  // namespace

StartDecision decide_start(const StartInput& input) {
  StartDecision decision;
  std::vector<std::string> names;
  TimePoint last_arrival = input.submitted;
  for (const StartCandidate& candidate : input.candidates) {
    if (candidate.connected && candidate.obstacle.empty() && decision.islands.size() < input.max) {
      decision.islands.push_back(candidate.island);
      names.push_back(candidate.name);
      last_arrival = std::max(last_arrival, candidate.arrived);
    }
  }
  const std::size_t wanted = input.expected.empty() ? input.max : std::min<std::size_t>(input.max, input.expected.size());
  const std::size_t found = decision.islands.size();
  if (found >= wanted && found >= input.min) {
    decision.start = true;
    return decision;
  }
  if (found < input.min) {
    decision.islands.clear();
    const std::size_t lacking = input.min - found;
    decision.wait.text = "waits for " + std::to_string(lacking) + " more island" + (lacking == 1 ? "" : "s") + " (needs " +
                         std::to_string(input.min) + (found > 0 ? ", has " + list_of(names) : std::string(", has none")) + ")" +
                         missing_text(input);
    return decision;
  }
  const TimePoint settled = last_arrival + input.settle;
  if (input.now >= settled) {
    decision.start = true;
    return decision;
  }
  decision.islands.clear();
  decision.wait.text = "has " + list_of(names) + "; waits a moment for more islands (up to " + std::to_string(wanted) + ")";
  decision.wait.until = settled;
  return decision;
}

}  // namespace atl::coordinator
