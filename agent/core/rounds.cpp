#include "agent/core/rounds.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace atl::agent {

using Resume = ContributionSettings::Resume;

RoundInHand* Rounds::find(Round round) {
  const auto found = rounds_.find(round);
  return found == rounds_.end() ? nullptr : &found->second;
}

RoundInHand* Rounds::find(Round round, RoundInHand::Phase phase) {
  RoundInHand* found = find(round);
  return found != nullptr && found->is(phase) ? found : nullptr;
}

RoundInHand* Rounds::exchanging(Round round, Attempt attempt) {
  RoundInHand* found = find(round, RoundInHand::Phase::exchanging);
  return found != nullptr && found->attempt() == attempt ? found : nullptr;
}

bool Rounds::is(Round round, RoundInHand::Phase phase) const {
  const auto found = rounds_.find(round);
  return found != rounds_.end() && found->second.is(phase);
}

std::set<Round> Rounds::numbers() const {
  std::set<Round> numbers;
  for (const auto& [number, round] : rounds_) {
    if (!round.receives()) {
      numbers.insert(number);
    }
  }
  return numbers;
}

std::set<Round> Rounds::formed() const {
  std::set<Round> formed = numbers();
  std::erase_if(formed, [&](Round round) { return is(round, RoundInHand::Phase::forming); });
  return formed;
}

bool Rounds::contributing() const {
  return std::any_of(rounds_.begin(), rounds_.end(), [](const auto& round) { return !round.second.receives(); });
}

bool Rounds::contributes(std::uint32_t fragment, Round but) const {
  return std::any_of(rounds_.begin(), rounds_.end(), [&](const auto& round) {
    return !round.second.receives() && round.second.fragment() == fragment && round.first != but;
  });
}

bool Rounds::applying() const {
  return std::any_of(rounds_.begin(), rounds_.end(), [](const auto& round) { return round.second.is(RoundInHand::Phase::applying); });
}

bool Rounds::forming() const {
  return std::any_of(rounds_.begin(), rounds_.end(), [](const auto& round) { return round.second.is(RoundInHand::Phase::forming); });
}

const Merging* Rounds::find_merging(Round round) const {
  const auto found = merging_.find(round);
  return found == merging_.end() ? nullptr : &found->second;
}

void Rounds::checkpoint_early(Round round) {
  if (const auto found = merging_.find(round); found != merging_.end()) {
    found->second.checkpoint = false;
  }
}

std::uint64_t Rounds::published_to(std::uint64_t counted) const {
  std::uint64_t published = counted;
  for (const auto& [number, round] : rounds_) {
    published = round.receives() ? published : std::max(published, round.facts().data.to);
  }
  return published;
}

bool Rounds::overlap(std::uint32_t part, std::uint64_t counted) const {
  return settings_.counted_by_all && std::any_of(rounds_.begin(), rounds_.end(), [&](const auto& item) {
           const DataRange& data = item.second.facts().data;
           return data.sequences() > 0 && data.part == part && data.from < counted && !item.second.is(RoundInHand::Phase::applying);
         });
}

RoundInHand& Rounds::add(Round round, std::uint32_t fragment) {
  return rounds_.insert_or_assign(round, RoundInHand(terms_->id, round, fragment)).first->second;
}

RoundInHand& Rounds::postpone(Round round, Round to) {
  auto taken = rounds_.extract(round);
  taken.key() = to;
  RoundInHand& postponed = rounds_.insert(std::move(taken)).position->second;
  postponed.postpone(to);
  postponed_.emplace_back(round, to);
  out_->effect(PostponeContribution{terms_->id, round, to});
  return postponed;
}

Round Rounds::now_for(Round number) const {
  for (const auto& [from, to] : postponed_) {
    number = number == from ? to : number;
  }
  return number;
}

// Every contribution up to this one is there.
bool Rounds::follows(const PendingRound& round, Round committed, std::uint32_t part, std::uint64_t counted) const {
  if (round.round.value != committed.value + rounds_.size() + 1 || terms_->rounds.terms(round.round).merges) {
    return false;  // what merges all islands is formed again
  }
  const DataRange& data = round.facts.data;
  return !settings_.counted_by_all || (data.part == part && data.from == published_to(counted));
}

// Where rounds close with a quorum each contribution stands alone.
bool Rounds::goes_on(const PendingRound& round, Round committed, std::uint32_t part, std::uint64_t counted) const {
  const DataRange& data = round.facts.data;
  return round.round > committed && data.part == part && (data.sequences() == 0 || data.from >= counted) &&
         !contributes(round.facts.fragment);
}

void Rounds::resume(const std::vector<PendingRound>& pending, Round committed, std::uint32_t part, std::uint64_t counted) {
  if (settings_.resume == Resume::none) {
    return;  // the gradient of a step that only a trainer inside it could take: it makes that step again
  }
  bool whole = true;
  for (const PendingRound& round : pending) {
    if (settings_.resume == Resume::each ? goes_on(round, committed, part, counted) : whole && follows(round, committed, part, counted)) {
      add(round.round, round.facts.fragment).resume(round);
      continue;
    }
    // After one that was withdrawn, or of samples that are not this island's any more, the rounds from there on are published again.
    whole = false;
    tell_dropped(round.round, round.facts);
    if (settings_.dropped_by_word) {
      out_->effect(PostponeContribution{terms_->id, round.round, Round(0)});
    }
  }
  resuming_ = !rounds_.empty();
}

// A round that was committed with the contribution meanwhile is known to the coordinator, which then counts it there.
void Rounds::tell_dropped(Round round, const ContributionFacts& facts) {
  if (settings_.counted_by_all && facts.tokens + facts.overwritten > 0) {
    const Error why{Code::unavailable, "it was in hand when its island went on from another state"};
    out_->send(Withdrawn{terms_->id, Epoch(0), round, why, Fate::dropped, accounted(facts)});
  }
}

void Rounds::drop(Round round) {
  rounds_.erase(round);
  postponed_.emplace_back(round, Round(0));
  out_->effect(PostponeContribution{terms_->id, round, Round(0)});
}

void Rounds::count(const ExchangeDone& event) {
  bytes_sent_ += event.bytes_sent;
  bytes_received_ += event.bytes_received;
}

void Rounds::apply(Round number, bool behind) {
  RoundInHand& round = rounds_.at(number);
  round.apply();
  postponed_.clear();
  out_->effect(ApplyResult{terms_->id, number, round.attempt(), round.fragment(), round.exchanged().digest, behind});
}

void Rounds::count_data(const DataRange& counted) {
  for (auto& [number, round] : rounds_) {
    if (!round.receives() && round.facts().data.part == counted.part && round.facts().data.to <= counted.to) {
      round.count_data();
    }
  }
}

RoundInHand Rounds::take_applied(Round number, bool checkpoint) {
  RoundInHand round = std::move(rounds_.extract(number).mapped());
  merging_[number] = Merging{number, round.exchanged().digest, round.fragment(), checkpoint};
  return round;
}

void Rounds::hand_over(const std::function<bool(Round round, std::uint32_t fragment)>& due) {
  for (auto& [number, merging] : merging_) {
    if (!merging.handed && due(number, merging.fragment)) {
      merging.handed = true;
      out_->effect(HandOver{terms_->id, number, merging.fragment});
    }
  }
}

void Rounds::adopt(Round round, bool saved) {
  Merging& merging = merging_.at(round);
  merging.adopting = true;
  merging.saved = saved;
  out_->effect(AdoptParameters{terms_->id, round});
}

std::vector<Merging> Rounds::overtaken(Round round) {
  std::vector<Merging> older;
  for (auto at = merging_.begin(); at != merging_.lower_bound(round); ++at) {
    if (at->second.checkpoint) {
      older.push_back(at->second);
      at->second.checkpoint = false;
    }
  }
  return older;
}

void Rounds::drop() {
  for (const auto& [number, round] : rounds_) {
    if (round.in_exchange()) {
      out_->effect(CancelExchange{terms_->id, number, round.attempt()});
    }
    if (!round.receives() && !round.withdrawn() && !round.is(RoundInHand::Phase::applying)) {
      tell_dropped(number, round.facts());
    }
    if (settings_.dropped_by_word && !round.receives()) {
      out_->effect(PostponeContribution{terms_->id, number, Round(0)});
    }
  }
  rounds_.clear();
  merging_.clear();
  resuming_ = false;
}

void Rounds::note_local_loss(Round round, double loss) {
  if (!std::isnan(loss)) {
    local_losses_[round] = loss;
  }
}

Merged Rounds::describe(const TrainerMerged& event) {
  double local_loss = std::numeric_limits<double>::quiet_NaN();
  if (const auto measured = local_losses_.find(event.round); measured != local_losses_.end()) {
    local_loss = measured->second;
    local_losses_.erase(local_losses_.begin(), std::next(measured));
  }
  Merged said{terms_->id, event.round, event.step, event.outer_loss, local_loss, event.wait_seconds};
  if (const auto met = met_.find(event.round); met != met_.end()) {
    said.partner = met->second.partner;
    said.projection = std::move(met->second.projection);
    met_.erase(met_.begin(), std::next(met));
  }
  return said;
}

}  // namespace atl::agent
