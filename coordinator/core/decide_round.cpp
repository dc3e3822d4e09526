// What a round does while it collects contributions, and what an attempt to exchange them came to.
#include <algorithm>
#include <iterator>
#include <set>

#include "coordinator/core/decide.hpp"
#include "transport/base/planted.hpp"

namespace atl::coordinator {
namespace {

// Until when those are waited for that have not answered, and why they are left out then.
TimePoint deadline_of(const RoundInput& input, const std::string& round, RoundDecision& decision) {
  // One that came into the round later than the first answer, as where a round stands, has a whole round before it.
  std::optional<TimePoint> newest;
  for (const RoundMember& member : input.members) {
    newest = member.answer == Answer::none && member.let_in ? std::max(newest, member.let_in) : newest;
  }
  const TimePoint deadline = std::max(*input.first_answer, newest.value_or(*input.first_answer)) + input.deadline;
  decision.why_left_out = "did not reach " + round + " by the deadline of " + human_duration(input.deadline);
  if (input.straggler_factor < 1 || !input.begun) {
    return deadline;
  }
  const Duration first = std::max<Duration>(*input.first_answer - *input.begun, std::chrono::seconds(1));
  const TimePoint patience =
      std::max(*input.begun, newest.value_or(*input.begun)) + std::chrono::duration_cast<Duration>(first * input.straggler_factor);
  if (patience >= deadline) {
    return deadline;
  }
  decision.stragglers = true;
  decision.why_left_out =
      "needed more than straggler_factor times the first island's time for " + round + " (" + human_duration(first) + ")";
  return std::max(patience, *input.first_answer);
}

// Until when those are waited for whose trainers are lost, if they are all that lacks and enough have answered without them.
std::optional<TimePoint> patience_with_lost(const RoundInput& input, std::size_t ready) {
  if (ready == 0 || ready < input.min || !input.first_answer) {
    return std::nullopt;
  }
  TimePoint since = *input.first_answer;
  for (const RoundMember& member : input.members) {
    if (member.answer == Answer::none) {
      if (!member.trainer_lost) {
        return std::nullopt;
      }
      since = std::max(since, *member.trainer_lost);
    }
  }
  return since + std::max(kLostTrainerPatience, std::chrono::duration_cast<Duration>(input.last_round * kLostTrainerShare));
}

// The quorum is there: the others only receive.
RoundDecision plan_with_all(const RoundInput& input) {
  RoundDecision decision;
  decision.kind = RoundDecision::Kind::plan;
  std::ranges::transform(input.members, std::back_inserter(decision.participants), &RoundMember::island);
  return decision;
}

// "a: a loss was not finite; b: …", of the islands whose contributions do not count.
std::string causes_of(const RoundInput& input) {
  constexpr std::size_t kMostNamed = 6;
  std::string causes;
  std::size_t named = 0;
  for (const RoundMember& member : input.members) {
    if (member.answer == Answer::withdrawn && named++ < kMostNamed) {
      causes += (causes.empty() ? "" : "; ") + member.name + ": " + (member.why_not.empty() ? "withdrawn" : member.why_not);
    }
  }
  return named > kMostNamed ? causes + "; and " + std::to_string(named - kMostNamed) + " more" : causes;
}

// Everybody has answered.
RoundDecision decide_answered(const RoundInput& input, std::size_t ready, RoundDecision decision) {
  const std::string round = "round " + std::to_string(input.round.value);
  if (ready == 0 && input.quorum > 0) {
    decision.wait.text = round + " has no contribution that counts: all islands withdrew theirs, and train on";
  } else if (ready == 0 && (!input.may_skip || input.skipped >= kMostSkipped)) {
    decision.kind = RoundDecision::Kind::hopeless;
    decision.wait.text = round + (input.skipped > 0 ? ", as " + std::to_string(input.skipped) + " rounds in a row before it," : "") +
                         " has no contribution that counts: " + causes_of(input);
  } else if (input.hold) {
    decision.wait = *input.hold;
  } else if (ready == 0) {
    decision.kind = RoundDecision::Kind::skip;
    decision.wait.text = round + " has no contribution that counts, and is skipped: " + causes_of(input);
  } else {
    decision.kind = RoundDecision::Kind::plan;
  }
  return decision;
}

}  // namespace

Duration decide_grace(const GraceInput& input) {
  const auto steps = static_cast<Duration::rep>(std::min<std::uint64_t>(input.overlap_steps, 1'000'000));
  const Duration slack = std::max(Duration(0), input.step * steps - input.quorum_wait - input.exchange);
  const auto grace = std::chrono::duration_cast<Duration>(slack * kGraceShare);
  const auto for_slowest = std::min(input.slowest * steps, std::chrono::duration_cast<Duration>(input.slowest * kGraceSteps));
  return std::max(grace, std::min(for_slowest, input.period / 2));
}

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
  std::size_t on_time = 0;
  for (const RoundMember& member : input.members) {
    if (member.answer == Answer::none) {
      decision.left_out.push_back(member.island);
      silent.push_back(member.name);
      continue;
    }
    decision.participants.push_back(member.island);
    ready += member.answer == Answer::ready ? 1U : 0U;
    on_time += member.answer == Answer::ready && !member.late ? 1U : 0U;
  }
  if (decision.left_out.empty()) {
    return decide_answered(input, ready, std::move(decision));
  }
  if (input.quorum > 0 && on_time >= std::min<std::size_t>(input.quorum, input.members.size()) && !input.hold) {
    const TimePoint until = input.quorum_since.value_or(input.now) + input.grace;
    if (input.now >= until) {
      return plan_with_all(input);
    }
    decision.wait =
        Wait{round + " has its quorum of " + std::to_string(input.quorum) + ", and waits a moment for " + list_of(silent), until};
    return decision;
  }
  if (!input.first_answer) {
    decision.wait.text = "training towards " + round;
    return decision;
  }
  TimePoint deadline = deadline_of(input, round, decision);
  if (const std::optional<TimePoint> patience = patience_with_lost(input, ready); patience && *patience < deadline) {
    deadline = *patience;
    decision.stragglers = true;
    decision.why_left_out = "its trainer ended in " + round + ", and is started again";
  }
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

namespace {

std::string attempt_name(const AttemptInput& input) {
  return "round " + std::to_string(input.round.value) + ", attempt " + std::to_string(input.attempt.value);
}

std::string name_of(const AttemptInput& input, const IslandId& island) {
  for (const AttemptMember& member : input.members) {
    if (member.island == island) {
      return member.name;
    }
  }
  return island.text;
}

// The most accused member, the later in order of several.
IslandId most_accused(const AttemptInput& input, const std::map<IslandId, unsigned>& blame) {
  IslandId worst;
  unsigned most = 0;
  for (const AttemptMember& member : input.members) {
    const auto found = blame.find(member.island);
    const unsigned accusers = found == blame.end() ? 0 : found->second;
    if (accusers >= most) {
      most = accusers;
      worst = member.island;
    }
  }
  return worst;
}

// Nobody who failed accuses another one.
bool is_own_fault(const AttemptInput& input) {
  bool any = false;
  for (const AttemptMember& member : input.members) {
    any = any || member.failed;
    if (member.failed && !member.accused.empty() && member.accused != member.island) {
      return false;
    }
  }
  return any;
}

AttemptDecision retry(const AttemptInput& input, std::string why, std::map<IslandId, unsigned> blame) {
  AttemptDecision decision;
  decision.kind = AttemptDecision::Kind::retry;
  decision.blame = std::move(blame);
  decision.why = std::move(why);
  decision.own_fault = is_own_fault(input);
  if (input.bad_attempts + 1 >= kBadAttempts && input.members.size() > 1) {
    const IslandId worst = most_accused(input, decision.blame);
    decision.left_out.push_back(worst);
    decision.why += "; after " + std::to_string(input.bad_attempts + 1) + " attempts " + name_of(input, worst) + " is left out";
  }
  return decision;
}

// All have finished: the digest that more than half hold wins.
AttemptDecision judge_digests(const AttemptInput& input) {
  std::map<Digest, std::size_t> votes;
  for (const AttemptMember& member : input.members) {
    ++votes[*member.done];
  }
  const auto best = std::max_element(votes.begin(), votes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (best->second * 2 <= input.members.size()) {
    AttemptDecision decision = retry(input, attempt_name(input) + ": the islands' results differ, and none has a majority", input.blame);
    const std::vector<IslandId> worst = std::exchange(decision.left_out, {});
    blame_for_difference(input, best->first, decision);
    if (decision.offences.empty()) {
      decision.left_out = worst;
    }
    return decision;
  }
  AttemptDecision decision;
  decision.kind = AttemptDecision::Kind::commit;
  decision.digest = best->first;
  for (const AttemptMember& member : input.members) {
    if (*member.done != best->first && !ATOLL_PLANTED(digest_unchecked)) {
      decision.left_out.push_back(member.island);
    }
  }
  if (!decision.left_out.empty()) {
    decision.why = "its result of round " + std::to_string(input.round.value) + " differs from the others'";
    blame_for_difference(input, best->first, decision);
  }
  return decision;
}

}  // namespace

Duration decide_pause(unsigned failures) {
  constexpr unsigned kDoublings = 8;  // to beyond the longest one
  return failures < 2 ? Duration(0) : std::min(kLongestPause, kFirstPause * (1U << std::min(failures - 2, kDoublings)));
}

AttemptDecision decide_attempt(const AttemptInput& input) {
  std::vector<std::string> silent;
  std::vector<std::string> failed;
  std::map<IslandId, unsigned> blame = input.blame;
  std::set<IslandId> finished;
  for (const AttemptMember& member : input.members) {
    if (member.done) {
      finished.insert(member.island);
    }
  }
  for (const AttemptMember& member : input.members) {
    if (member.failed) {
      failed.push_back(member.name);
      // Most have finished, for which they needed everybody: what one says that did not is no proof against one that did.
      const bool alone = finished.size() * 2 > input.members.size() && finished.contains(member.accused);
      ++blame[member.accused.empty() || alone ? member.island : member.accused];
    } else if (!member.done) {
      silent.push_back(member.name);
    }
  }
  if (failed.empty() && silent.empty()) {
    return judge_digests(input);
  }
  const TimePoint limit = input.planned + input.limit;
  AttemptDecision decision;
  if (!failed.empty()) {
    const TimePoint grace = input.first_failure.value_or(input.now) + input.grace;
    if (silent.empty() || input.now >= grace) {
      return retry(input, attempt_name(input) + " failed at " + list_of(failed), std::move(blame));
    }
    decision.wait.until = grace;
  } else if (input.now >= limit) {
    for (const AttemptMember& member : input.members) {
      if (!member.failed && !member.done) {
        ++blame[member.island];
      }
    }
    return retry(input, attempt_name(input) + ": " + list_of(silent) + " did not finish in time", std::move(blame));
  } else {
    decision.wait.until = limit;
  }
  decision.wait.text = attempt_name(input) + ": exchanging; waits for " + list_of(silent);
  return decision;
}

}  // namespace atl::coordinator
