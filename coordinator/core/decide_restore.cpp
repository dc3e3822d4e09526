#include <algorithm>
#include <functional>
#include <iterator>

#include "coordinator/core/decide.hpp"

namespace atl::coordinator {

RestoreDecision decide_restore(const RestoreInput& input) {
  RestoreDecision decision;
  std::vector<std::string> away;
  std::size_t connected = input.others;
  std::optional<Round> newest;
  std::optional<Round> newest_busy;
  for (const RestoreCandidate& candidate : input.candidates) {
    const bool busy = candidate.connected && !candidate.serves.empty();
    if (busy || !candidate.connected) {
      away.push_back(candidate.name + (busy ? " (serves run " + candidate.serves + ")" : ""));
      newest_busy = busy ? std::max(newest_busy, candidate.checkpoint) : newest_busy;
      continue;
    }
    ++connected;
    if (candidate.checkpoint && (!newest || *candidate.checkpoint > *newest)) {
      newest = candidate.checkpoint;
    }
  }
  const std::string nobody = "no island holds the state of round " + std::to_string(input.committed.value) + " in memory";
  if (connected < input.min) {
    decision.wait.text = nobody + "; waits for " + std::to_string(input.min - connected) + " more of " +
                         list_of(away.empty() ? std::vector<std::string>{"any islands"} : away);
    return decision;
  }
  if (!newest && away.empty() && input.committed == Round(0)) {
    decision.start_over = true;  // the initial state comes from the seed: nothing is lost
    decision.wait.text = nobody + ", and none has a checkpoint of it";
    return decision;
  }
  if (!newest) {
    decision.wait.text =
        nobody + ", and none of those connected has a checkpoint of it that verifies" +
        (input.copies.empty() ? "" : " or may fetch the copy (`atoll agent --allow-copy " + input.copies + "`)") + "; " +
        (away.empty() ? std::string("it cannot go on with these islands (`atoll cancel` ends it)") : "waits for " + list_of(away));
    return decision;
  }
  const TimePoint until = input.since + input.grace;
  const bool held_elsewhere = newest_busy > newest;  // that is no loss: it comes back some time
  if (*newest < input.committed && !away.empty() && (input.now < until || held_elsewhere)) {
    decision.wait.text = nobody + "; the newest checkpoint here is of round " + std::to_string(newest->value) + "; waits for " +
                         list_of(away) + (held_elsewhere ? "" : " before the rounds after it are given up");
    decision.wait.until = held_elsewhere ? std::nullopt : std::optional<TimePoint>(until);
    return decision;
  }
  decision.restore = true;
  decision.round = *newest;
  std::vector<RestoreCandidate> holders;
  std::ranges::copy_if(input.candidates, std::back_inserter(holders),
                       [&](const RestoreCandidate& c) { return c.connected && c.serves.empty() && c.checkpoint == newest; });
  std::ranges::stable_sort(holders, std::greater(), &RestoreCandidate::away_since);
  holders.resize(std::min<std::size_t>(holders.size(), input.max));
  for (const RestoreCandidate& holder : holders) {
    decision.islands.push_back(holder.island);
  }
  return decision;
}

namespace {

// "a has one, b another": connected islands that know the newest epoch and hold this round with another digest. Empty: there are none.
std::string holders_of_another(const AdoptionInput& input, Epoch newest, const KnownRound& round) {
  std::vector<std::string> same;
  std::vector<std::string> other;
  for (const AdoptionCandidate& candidate : input.candidates) {
    for (const KnownRound& known : candidate.known) {
      if (candidate.connected && candidate.epoch == newest && known.round == round.round) {
        std::vector<std::string>& names = known.digest == round.digest ? same : other;
        if (names.empty() || names.back() != candidate.name) {
          names.push_back(candidate.name);
        }
      }
    }
  }
  return other.empty() ? "" : list_of(same) + (same.size() == 1 ? " has" : " have") + " one, " + list_of(other) + " another";
}

}  // namespace

AdoptionDecision decide_adoption(const AdoptionInput& input) {
  AdoptionDecision decision;
  std::vector<std::string> away;
  std::size_t connected = 0;
  Epoch newest;
  for (const AdoptionCandidate& candidate : input.candidates) {
    if (candidate.connected) {
      ++connected;
      newest = std::max(newest, candidate.epoch);
    } else {
      away.push_back(candidate.name);
    }
  }
  const TimePoint until = input.since + input.grace;
  if (!away.empty() && (connected < input.min || input.now < until)) {
    decision.kind = AdoptionDecision::Kind::wait;
    decision.wait.text = "the ledger is a backup; waits for " + list_of(away) + " to say which rounds were committed after it";
    decision.wait.until = connected < input.min ? std::nullopt : std::optional<TimePoint>(until);
    return decision;
  }
  decision.round.round = input.committed.value_or(Round(0));
  for (const AdoptionCandidate& candidate : input.candidates) {
    for (const KnownRound& known : candidate.known) {
      const bool first = !input.committed && decision.kind == AdoptionDecision::Kind::nothing;
      if (candidate.connected && candidate.epoch == newest && (first || known.round > decision.round.round)) {
        decision.kind = AdoptionDecision::Kind::adopt;
        decision.round = known;
      }
    }
  }
  if (const std::string apart = holders_of_another(input, newest, decision.round);
      decision.kind == AdoptionDecision::Kind::adopt && !apart.empty()) {
    decision.kind = AdoptionDecision::Kind::wait;
    decision.wait.text = "round " + std::to_string(decision.round.round.value) + " is of two histories: " + apart +
                         "; the islands followed two coordinators. `atoll islands revoke` those whose rounds shall not count";
    decision.wait.until.reset();
  }
  return decision;
}

std::optional<std::pair<std::string, Round>> find_newer_than_ledger(const AdoptionInput& input) {
  for (const AdoptionCandidate& candidate : input.candidates) {
    for (const KnownRound& known : candidate.known) {
      if (candidate.connected && candidate.ahead && known.round > input.committed) {
        return std::pair(candidate.name, known.round);
      }
    }
  }
  return std::nullopt;
}

}  // namespace atl::coordinator
