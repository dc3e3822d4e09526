#include <algorithm>

#include "coordinator/core/decide.hpp"
#include "transport/base/planted.hpp"

namespace atl::coordinator {
namespace {

// Until when those are waited for that have not answered, and why they are left out then.
TimePoint deadline_of(const RoundInput& input, const std::string& round, RoundDecision& decision) {
  const TimePoint deadline = *input.first_answer + input.deadline;
  decision.why_left_out = "did not reach " + round + " by the deadline of " + human_duration(input.deadline);
  if (input.straggler_factor < 1 || !input.begun) {
    return deadline;
  }
  const Duration first = std::max<Duration>(*input.first_answer - *input.begun, std::chrono::seconds(1));
  const TimePoint patience = *input.begun + std::chrono::duration_cast<Duration>(first * input.straggler_factor);
  if (patience >= deadline) {
    return deadline;
  }
  decision.stragglers = true;
  decision.why_left_out =
      "needed more than straggler_factor times the first island's time for " + round + " (" + human_duration(first) + ")";
  return std::max(patience, *input.first_answer);
}

}  // namespace

RoundDecision decide_round(const RoundInput& input) {
  using Kind = RoundDecision::Kind;
  RoundDecision decision;
  const std::string round = "round " + std::to_string(input.round.value);
  if (input.members.size() < input.min) {
    const std::size_t lacking = input.min - input.members.size();
    decision.kind = Kind::interrupt;
    decision.wait.text = round + " waits for " + std::to_string(lacking) + " more island" + (lacking == 1 ? "" : "s") + " (needs " +
                         std::to_string(input.min) + ", has " + std::to_string(input.members.size()) + ")";
    return decision;
  }
  std::vector<std::string> silent;
  std::size_t ready = 0;
  for (const RoundMember& member : input.members) {
    if (member.answer == Answer::none) {
      decision.left_out.push_back(member.island);
      silent.push_back(member.name);
      continue;
    }
    decision.participants.push_back(member.island);
    ready += member.answer == Answer::ready ? 1U : 0U;
  }
  if (decision.left_out.empty()) {
    if (ready == 0) {
      decision.kind = Kind::hopeless;
      decision.wait.text = round + " has no contribution: all islands withdrew theirs";
    } else if (input.hold) {
      decision.wait = *input.hold;
    } else {
      decision.kind = Kind::plan;
    }
    return decision;
  }
  if (!input.first_answer) {
    decision.wait.text = "training towards " + round;
    return decision;
  }
  const TimePoint deadline = deadline_of(input, round, decision);
  const bool enough = ready >= input.min && ready > 0;
  if (input.now >= deadline && enough && !input.hold) {
    decision.kind = Kind::plan;
    return decision;
  }
  decision.wait.text = ATOLL_PLANTED(silent_wait) ? "" : round + " waits for " + list_of(silent);
  if (input.now < deadline) {
    decision.wait.until = deadline;
  } else if (!enough) {
    decision.wait.text +=
        "; the deadline has passed, but only " + std::to_string(ready) + " of at least " + std::to_string(input.min) + " are ready";
  } else {
    decision.wait = *input.hold;
  }
  return decision;
}

}  // namespace atl::coordinator
