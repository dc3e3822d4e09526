// The rounds of a run that this island has in hand: published and not applied, and applied and not merged by the trainer.
// Threads: owned by one Core.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "agent/core/event.hpp"
#include "agent/core/outbox.hpp"
#include "agent/core/round_in_hand.hpp"
#include "agent/core/run_terms.hpp"

namespace atl::agent {

// A round that is applied, and that the trainer has not said that it merged it.
struct Merging {
  Round round;
  Digest digest;
  std::uint32_t fragment = 0;
  bool checkpoint = false;  // one is begun, and finished when it has
  bool handed = false;      // where the exchange takes a whole period: HandOver is ordered
  bool adopting = false;    // in lockstep: it has taken its step, and the engine takes the parameters over
  bool saved = false;       // and its own state lies where the checkpoint is to be
};

// What contributions are to others.
struct ContributionSettings {
  // Which of a checkpoint's contributions an island goes on with.
  enum class Resume : std::uint8_t {
    in_order,  // from the next round on, up to the first that is missing
    each,      // every one that is of use: each stands alone
    none,      // they are made again
  };
  Resume resume = Resume::in_order;
  bool counted_by_all = true;       // the samples behind them are counted by the coordinator, each once
  bool dropped_by_word = false;     // the engine keeps one until it is told that it counts in no round
  bool stepped_by_trainer = false;  // the trainer takes the step with the result, and the parameters come from it
};

class Rounds {
 public:
  // Both outlive it.
  Rounds(const RunTerms& terms, const ContributionSettings& settings, Outbox& out) : terms_(&terms), settings_(settings), out_(&out) {}

  [[nodiscard]] bool empty() const { return rounds_.empty(); }
  [[nodiscard]] const std::map<Round, RoundInHand>& all() const { return rounds_; }
  [[nodiscard]] bool contains(Round round) const { return rounds_.contains(round); }
  // Nothing: not in hand. Of this attempt only, where one is given.
  [[nodiscard]] RoundInHand* find(Round round);
  [[nodiscard]] RoundInHand* find(Round round, RoundInHand::Phase phase);
  [[nodiscard]] RoundInHand* exchanging(Round round, Attempt attempt);
  [[nodiscard]] bool is(Round round, RoundInHand::Phase phase) const;
  // Those that this island contributes to.
  [[nodiscard]] std::set<Round> numbers() const;
  // Of these, those whose contributions are formed, or will not be.
  [[nodiscard]] std::set<Round> formed() const;
  [[nodiscard]] bool contributing() const;
  // To a round of this fragment.
  // but: a round that is not looked at.
  [[nodiscard]] bool contributes(std::uint32_t fragment, Round but = {}) const;
  // The outer step of one is being taken.
  [[nodiscard]] bool applying() const;
  [[nodiscard]] bool forming() const;
  // One is applied that the trainer has not merged; the oldest.
  [[nodiscard]] bool merging() const { return !merging_.empty(); }
  // In lockstep: the trainer is to take the step of such a round, and the parameters come from it.
  [[nodiscard]] bool awaits_step() const { return settings_.stepped_by_trainer && merging(); }
  [[nodiscard]] const Merging& oldest_merging() const { return merging_.begin()->second; }
  // Nothing: not applied, or merged.
  [[nodiscard]] const Merging* find_merging(Round round) const;
  // The first sequence of the part of the data that no contribution in hand holds. counted: that no committed round holds.
  [[nodiscard]] std::uint64_t published_to(std::uint64_t counted) const;
  // A contribution begins before what the coordinator counted of this part, so it can never be counted.
  [[nodiscard]] bool overlap(std::uint32_t part, std::uint64_t counted) const;
  // A trainer that is there in its part goes on where the rounds in hand end; where nobody else counts, always.
  [[nodiscard]] bool continue_at(std::uint64_t position, std::uint64_t counted) const {
    return !settings_.counted_by_all || position >= published_to(counted);
  }
  // They came with a checkpoint, and are said once the trainer that goes on with them is up.
  [[nodiscard]] bool resuming() const { return resuming_; }
  // True if they were resuming until now.
  bool stop_resuming() { return std::exchange(resuming_, false); }

  RoundInHand& add(Round round, std::uint32_t fragment);
  // The contribution is one to a later round now (PostponeContribution).
  RoundInHand& postpone(Round round, Round to);
  // The round of a contribution whose round was `number` when the engine last began to apply a result: what it says of contributions comes
  // when some of them may be postponed. Round 0: it was dropped.
  [[nodiscard]] Round now_for(Round number) const;
  // An attempt at a round that this island only receives was given up; the next one begins the round anew.
  void forget(Round round) { rounds_.erase(round); }
  // A contribution that leads nowhere (PostponeContribution).
  void drop(Round round);
  // Where the exchange takes a whole period: the trainer gets the result (HandOver) for which `due` holds, given its fragment.
  void hand_over(const std::function<bool(Round round, std::uint32_t fragment)>& due);
  // Its checkpoint is written without waiting for the trainer's state: not once more when that has merged.
  void checkpoint_early(Round round);
  // The contributions that a checkpoint of `committed` holds, as far as they are of use: in their order from the next round on, and of
  // this part of the data from `counted` on.
  void resume(const std::vector<PendingRound>& pending, Round committed, std::uint32_t part, std::uint64_t counted);
  void count(const ExchangeDone& event);
  // The result is to be applied (ApplyResult).
  void apply(Round round, bool behind = false);
  // A contribution that holds these samples, and with them all that the trainer published before, is counted.
  void count_data(const DataRange& counted);
  // It is applied, and the trainer merges it.
  RoundInHand take_applied(Round round, bool checkpoint);
  // In lockstep: the trainer has taken the step, and the engine takes its parameters over (AdoptParameters).
  void adopt(Round round, bool saved);
  Merging take_merging(Round round) { return merging_.extract(round).mapped(); }
  // Of rounds before this one whose checkpoints are begun and wait for the trainer: they are to be finished now, and not once more.
  std::vector<Merging> overtaken(Round round);
  // They lead nowhere any more; their exchanges are cancelled.
  void drop();

  // What belongs to a round until the trainer has merged it, for people: validation loss, partner, projection.
  void note_local_loss(Round round, double loss);
  void note_partner(Round round, const IslandId& partner) { met_[round].partner = partner; }
  void note_projection(Round round, std::vector<float> projection) { met_[round].projection = std::move(projection); }
  // What the trainer said of a merge, with that.
  Merged describe(const TrainerMerged& event);

  [[nodiscard]] std::uint64_t bytes_sent() const { return bytes_sent_; }
  [[nodiscard]] std::uint64_t bytes_received() const { return bytes_received_; }

 private:
  struct Met {
    IslandId partner;  // empty: alone
    std::vector<float> projection;
  };

  void tell_dropped(Round round, const ContributionFacts& facts);
  [[nodiscard]] bool follows(const PendingRound& round, Round committed, std::uint32_t part, std::uint64_t counted) const;
  [[nodiscard]] bool goes_on(const PendingRound& round, Round committed, std::uint32_t part, std::uint64_t counted) const;

  const RunTerms* terms_;
  ContributionSettings settings_;
  Outbox* out_;
  std::map<Round, RoundInHand> rounds_;
  std::map<Round, Merging> merging_;
  std::vector<std::pair<Round, Round>> postponed_;  // from and to, in order, since the engine last began to apply a result
  bool resuming_ = false;
  std::map<Round, double> local_losses_;
  std::map<Round, Met> met_;  // of rounds that members commit among themselves
  std::uint64_t bytes_sent_ = 0;
  std::uint64_t bytes_received_ = 0;
};

}  // namespace atl::agent
