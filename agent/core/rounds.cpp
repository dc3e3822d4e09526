#include "agent/core/rounds.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace atl::agent {

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

bool Rounds::contributing() const {
  return std::any_of(rounds_.begin(), rounds_.end(), [](const auto& round) { return !round.second.receives(); });
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
  const auto newest = std::find_if(rounds_.rbegin(), rounds_.rend(), [](const auto& round) { return !round.second.receives(); });
  return newest == rounds_.rend() ? counted : newest->second.ready().data.to;
}

bool Rounds::overlap(std::uint32_t part, std::uint64_t counted) const {
  return !terms_->own_states() && std::any_of(rounds_.begin(), rounds_.end(), [&](const auto& item) {
    const DataRange& data = item.second.ready().data;
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
  out_->effect(PostponeContribution{terms_->id, round, to});
  return postponed;
}

void Rounds::resume(const std::vector<PendingRound>& pending, Round committed, std::uint32_t part, std::uint64_t counted) {
  if (terms_->lockstep()) {
    return;  // the gradient of a step that only a trainer inside it could take: it makes that step again
  }
  for (const PendingRound& round : pending) {
    if (round.round.value != committed.value + rounds_.size() + 1 || (terms_->own_states() && !terms_->commits_itself(round.round))) {
      break;  // after one that was withdrawn: the rounds from there on are published again. What merges all islands is formed again
    }
    const DataRange& data = round.facts.data;
    if (!terms_->own_states() && (data.part != part || data.from != published_to(counted))) {
      break;  // of samples that are not this island's any more
    }
    add(round.round, round.fragment).resume(round);
  }
  resuming_ = !rounds_.empty();
}

void Rounds::count(const ExchangeDone& event) {
  bytes_sent_ += event.bytes_sent;
  bytes_received_ += event.bytes_received;
}

void Rounds::apply(Round number) {
  RoundInHand& round = rounds_.at(number);
  round.apply();
  out_->effect(ApplyResult{terms_->id, number, round.attempt(), round.fragment(), round.exchanged().digest, round.receives()});
}

RoundInHand Rounds::take_applied(Round number, bool checkpoint) {
  RoundInHand round = std::move(rounds_.extract(number).mapped());
  merging_[number] = Merging{number, round.exchanged().digest, checkpoint};
  return round;
}

void Rounds::adopt(Round round, bool saved) {
  Merging& merging = merging_.at(round);
  merging.adopting = true;
  merging.saved = saved;
  out_->effect(AdoptParameters{terms_->id, round});
}

void Rounds::drop() {
  for (const auto& [number, round] : rounds_) {
    if (round.in_exchange()) {
      out_->effect(CancelExchange{terms_->id, number, round.attempt()});
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
