#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <utility>

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

// The newest round that an island says it holds, where that is one the ledger does not know.
std::optional<Round> claim_of(const AdoptionInput& input, const AdoptionCandidate& candidate) {
  std::optional<Round> newest;
  for (const KnownRound& known : candidate.known) {
    if (!input.committed || known.round > *input.committed) {
      newest = std::max(newest, std::optional(known.round));
    }
  }
  return candidate.connected ? newest : std::nullopt;
}

// What an island holds is as new as the generation by whose word it holds it, and of one generation as the epoch that it knows: the copies
// of a coordinator count epochs each for itself.
using Age = std::pair<Generation, Epoch>;
bool older(const Age& a, const Age& b) { return a.first < b.first || (!(b.first < a.first) && a.second < b.second); }

// Connected islands that know the newest epoch. That an epoch is newer is no claim of one island either: who also tells of rounds counts
// as one that knows the newest epoch which min islands know. Who tells of none shows that later rounds were given up.
std::vector<const AdoptionCandidate*> of_newest_epoch(const AdoptionInput& input) {
  std::vector<Age> ages;
  for (const AdoptionCandidate& candidate : input.candidates) {
    if (candidate.connected) {
      ages.emplace_back(candidate.generation, candidate.epoch);
    }
  }
  std::ranges::sort(ages, [](const Age& a, const Age& b) { return older(b, a); });
  const std::size_t enough = std::max<std::uint32_t>(1, input.min);
  const Age agreed = ages.empty() ? Age() : ages[std::min(enough, ages.size()) - 1];
  const auto counted = [&](const AdoptionCandidate& candidate) {
    const Age age{candidate.generation, candidate.epoch};
    return claim_of(input, candidate) && older(agreed, age) ? agreed : age;
  };
  Age newest;
  for (const AdoptionCandidate& candidate : input.candidates) {
    newest = candidate.connected && older(newest, counted(candidate)) ? counted(candidate) : newest;
  }
  std::vector<const AdoptionCandidate*> found;
  for (const AdoptionCandidate& candidate : input.candidates) {
    if (candidate.connected && !older(counted(candidate), newest)) {
      found.push_back(&candidate);
    }
  }
  return found;
}

// What islands say of one round that the ledger does not know.
struct Told {
  std::map<Digest, std::vector<std::string>> holders;  // names, by the digest that they hold
  std::size_t past = 0;                                // islands that hold a later round, and do not tell of this one
  std::size_t before = 0;                              // islands that hold the round before it: they may not have heard of the commit

  [[nodiscard]] std::size_t most() const {
    std::size_t most = 0;
    for (const auto& [digest, names] : holders) {
      most = std::max(most, names.size());
    }
    return most;
  }
  [[nodiscard]] std::size_t in_all() const {
    std::size_t count = past;
    for (const auto& [digest, names] : holders) {
      count += names.size();
    }
    return count;
  }
};

std::map<Round, Told> told_rounds(const AdoptionInput& input) {
  std::map<Round, Told> told;
  const std::vector<const AdoptionCandidate*> candidates = of_newest_epoch(input);
  for (const AdoptionCandidate* candidate : candidates) {
    for (const KnownRound& known : candidate->known) {
      if (!input.committed || known.round > *input.committed) {
        std::vector<std::string>& names = told[known.round].holders[known.digest];
        if (names.empty() || names.back() != candidate->name) {
          names.push_back(candidate->name);
        }
      }
    }
  }
  for (const AdoptionCandidate* candidate : candidates) {
    const std::optional<Round> claim = claim_of(input, *candidate);
    for (auto& [round, of] : told) {
      const bool holds = std::ranges::find(candidate->known, round, &KnownRound::round) != candidate->known.end();
      of.past += claim && !holds && *claim > round ? 1U : 0U;
      of.before += claim && claim->next() == round ? 1U : 0U;
    }
  }
  return told;
}

// The round that enough islands tell of: the newest that at least min of them have come to. Where these do not all hold it, the round after
// it counts, too, if the others hold the one before. Null: there is none.
const std::pair<const Round, Told>* agreed_round(const std::map<Round, Told>& told, std::size_t enough) {
  const auto reached = std::find_if(told.rbegin(), told.rend(), [&](const auto& each) { return each.second.in_all() >= enough; });
  if (reached != told.rend() && reached->second.most() >= enough) {
    return &*reached;
  }
  const auto nearly =
      std::find_if(told.rbegin(), told.rend(), [&](const auto& each) { return each.second.in_all() + each.second.before >= enough; });
  return nearly == told.rend() ? nullptr : &*nearly;
}

// "a has one, b another": who holds this digest of the round, and who another. Empty: nobody does, or too few to stand against it.
std::string two_histories(const Told& told, const Digest& digest, std::size_t enough) {
  std::vector<std::string> other;
  for (const auto& [each, names] : told.holders) {
    if (each != digest && (told.holders.at(digest).size() < enough || names.size() >= enough)) {
      other.insert(other.end(), names.begin(), names.end());
    }
  }
  const std::vector<std::string>& same = told.holders.at(digest);
  return other.empty() ? "" : list_of(same) + (same.size() == 1 ? " has" : " have") + " one, " + list_of(other) + " another";
}

}  // namespace

AdoptionDecision decide_adoption(const AdoptionInput& input) {
  AdoptionDecision decision;
  std::vector<std::string> away;
  std::size_t connected = 0;
  for (const AdoptionCandidate& candidate : input.candidates) {
    if (candidate.connected) {
      ++connected;
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
  const std::size_t enough = std::max<std::uint32_t>(1, input.min);
  const std::map<Round, Told> told = told_rounds(input);
  const std::pair<const Round, Told>* agreed = agreed_round(told, enough);
  if (agreed == nullptr && !input.committed) {
    decision.kind = AdoptionDecision::Kind::wait;
    decision.wait.text = "the run had begun before this ledger, and no round of it is held by " + std::to_string(enough) +
                         " of the connected islands; waits for others that hold it";
    return decision;
  }
  if (agreed == nullptr) {
    return decision;  // what fewer than min islands say is not believed
  }
  const auto& holders = agreed->second.holders;
  const auto most = std::ranges::max_element(holders, {}, [](const auto& each) { return each.second.size(); });
  decision.kind = AdoptionDecision::Kind::adopt;
  decision.round = KnownRound{agreed->first, most->first};
  if (const std::string apart = two_histories(agreed->second, most->first, enough); !apart.empty()) {
    decision.kind = AdoptionDecision::Kind::wait;
    decision.wait.text = "round " + std::to_string(decision.round.round.value) + " is of two histories: " + apart +
                         "; the islands followed two coordinators. `atoll islands revoke` those whose rounds shall not count";
    decision.wait.until.reset();
  }
  return decision;
}

std::optional<std::pair<std::string, Round>> find_newer_than_ledger(const AdoptionInput& input) {
  std::optional<std::pair<std::string, Round>> first;
  std::size_t claims = 0;
  for (const AdoptionCandidate& candidate : input.candidates) {
    const auto newer = std::ranges::find_if(candidate.known, [&](const KnownRound& known) { return known.round > input.committed; });
    if (candidate.connected && candidate.ahead && newer != candidate.known.end()) {
      ++claims;
      first = first ? first : std::optional(std::pair(candidate.name, newer->round));
    }
  }
  return claims >= std::max<std::uint32_t>(1, input.min) ? first : std::nullopt;
}

}  // namespace atl::coordinator
