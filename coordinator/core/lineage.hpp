// A run's lineage: which rounds are committed, with which digests, and from which of them the run can go on.
//
// Digests of the newest rounds are remembered, and those of rounds of which islands may have checkpoints; older ones are forgotten. A run
// gets a new lineage when committed rounds were lost with every copy of them. Islands that keep states of their own commit their rounds
// themselves: then committed() is the round that all of them have come to.
// Threads: owned by one core.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "coordinator/core/bounded_sum.hpp"
#include "coordinator/core/decide.hpp"
#include "coordinator/core/record.hpp"
#include "transport/control/message.hpp"

namespace atl::coordinator {

struct Committed {
  Round round;
  Attempt attempt;
  Digest digest;
  bool checkpoint = false;
  std::vector<IslandId> members;
  std::optional<RoundTimes> times = {};  // of rounds that this coordinator saw
  std::vector<DataRange> parts = {};     // how far each part of the data was afterwards
};

class Lineage {
 public:
  // ---- from and to the ledger
  void recover(const RunRecord& record);
  void write_to(RunRecord& record) const;
  // A round of the ledger, in the order of their numbers.
  void recover(Committed committed) { remember(std::move(committed)); }
  // How far the data were after a round that is remembered, and the tokens that were committed by then.
  void recover_data(Round round, std::vector<DataRange> parts, std::uint64_t tokens);

  // ---- what happens
  // There is a state that everybody agrees on, or every island has its own.
  void begin() { initialised_ = true; }
  // Islands have the state of a beginning that the ledger knows nothing of: what they have is taken over by adopt().
  void begin_unknown() { initialised_ = restored_ = true; }
  void begin_anew() { initialised_ = false; }
  void commit(Committed committed);
  // So many sequences of so many tokens each. The sum stays within what a message may hold.
  void count_tokens(std::uint64_t sequences, std::uint64_t tokens_each) {
    tokens_ = bounded_sum(tokens_, bounded_product(sequences, tokens_each, kMaxCount), kMaxCount);
  }
  // The rounds are others than those whose tokens were counted.
  void recount_tokens(std::uint64_t sequences, std::uint64_t tokens_each) { tokens_ = bounded_product(sequences, tokens_each, kMaxCount); }
  // Islands commit by themselves, and all have come to this round; or so many tasks are done.
  void reach(Round round) { committed_ = round; }
  // The rounds after this one are lost with every copy; it is remembered. How far the data were after it. The tokens are those of then if
  // that is known (tokens_after()).
  std::vector<DataRange> roll_back(Round round);
  // Nothing is left of the run's state.
  void start_over();
  // Islands know of rounds that were committed after what the ledger holds: it is an older copy. Until trust_ledger().
  void fall_behind() { restored_ = true; }
  // What islands know was asked for, or there was nothing to ask for: from here on the ledger is the newest.
  void trust_ledger() { restored_ = false; }
  // The ledger is older than what islands know: the run goes on from this round, in a lineage of its own.
  void adopt(const KnownRound& round, std::vector<DataRange> parts);
  // Islands go on from states of their own as of this round, of which nobody needs to know a digest.
  void allow(Round round) { past_.try_emplace(round); }
  void has_checkpoint(Round round) { checkpoints_.insert(round); }
  // What was committed, or rolled back, last happened in this epoch, or before it, and by the coordinator of this generation.
  void decide_in(Epoch epoch, const Generation& by) {
    decided_ = std::max(decided_, epoch);
    if (decided_by_ < by) {
      decided_by_ = {by.restored, by.starts, by.life, {}};
    }
  }
  // Rounds were given up before this epoch: checkpoints of older ones are of those rounds, or the ledger knows their rounds.
  void give_up_before(Epoch epoch) { recovered_ = std::max(recovered_, epoch); }
  // An island tells of its checkpoint of a round. True: for the first time.
  bool tell_file(Round round, const IslandId& island, const Digest& file);

  // ---- what is asked
  [[nodiscard]] bool initialised() const { return initialised_; }
  // The ledger is a backup or an older copy: islands may know of rounds that were committed after it. Until a round is adopted or
  // committed.
  [[nodiscard]] bool restored() const { return restored_; }
  // That committed contributions were trained on, each once.
  [[nodiscard]] std::uint64_t tokens() const { return tokens_; }
  [[nodiscard]] std::uint32_t number() const { return number_; }
  // The epoch before which nothing can have been committed that the ledger does not know: that of its newest decision on a round, or its
  // newest of all when the coordinator began. Epochs that were made because somebody came or went are no decision.
  [[nodiscard]] Epoch decided() const { return decided_; }
  // Rounds beyond the ledger's that are told of this generation were committed by an older copy of the coordinator, which went on beside
  // this one after the store was copied: they are not this run's.
  [[nodiscard]] bool superseded(const Generation& told) const { return told.known() && told < decided_by_; }
  // What an island holds can be news: nothing newer was decided here.
  [[nodiscard]] bool can_be_news(const HeldRun& held) const {
    const Generation& told = held.generation;
    return told.known() && (told < decided_by_ || decided_by_ < told) ? decided_by_ < told : held.state_epoch() >= decided_;
  }
  [[nodiscard]] Round committed() const { return committed_; }
  [[nodiscard]] Round next() const { return committed_.next(); }
  [[nodiscard]] const Digest& digest() const { return digest_; }
  // Of a round that is remembered.
  [[nodiscard]] std::optional<Digest> digest_of(Round round) const;
  // It is remembered with this digest.
  [[nodiscard]] bool confirms(Round round, const Digest& digest) const;
  // Of these members those whose checkpoint of a round is told to be another file: than that of more than half of them, or, where no file
  // is that of so many, than that of the first of them. `known` says which of the two: with the latter nobody can tell who is wrong.
  struct OtherFiles {
    std::vector<IslandId> islands;
    bool known = false;
  };
  [[nodiscard]] OtherFiles other_files(Round round, const std::vector<IslandId>& members) const;
  // How far the data were after a round of the past; null: that is not known, or it is the newest.
  [[nodiscard]] const std::vector<DataRange>* parts_after(Round round) const;
  // Tokens committed by a round of the past and those before it; nothing: that is not known.
  [[nodiscard]] std::optional<std::uint64_t> tokens_after(Round round) const;
  // One of the newest committed rounds. Null: it is not.
  [[nodiscard]] const Committed* recent(Round round) const;
  // The digest of one of the newest committed rounds.
  [[nodiscard]] bool on_history(const Digest& digest) const;
  // The times of this round and those before it that this coordinator saw, newest first, without a gap.
  [[nodiscard]] std::vector<RoundTimes> times_until(Round round) const;
  // A checkpoint of rounds that were given up, or lost before the ledger that this coordinator began with was written; or that an older
  // copy of the coordinator committed beside this one. It tells of no newer ledger.
  [[nodiscard]] bool lost_before(const HeldCheckpoint& checkpoint) const;
  // An island's memory is the state of a committed round that it can go on from: the newest, or the one before if it holds the newest's
  // result.
  [[nodiscard]] bool verified(const IslandId& island, const HeldRun& held) const;
  // An island's memory is the state of a committed round that is remembered, whether or not it can go on from it.
  [[nodiscard]] bool remembers(const HeldRun& held) const { return held.live && confirms(held.committed, held.digest); }

 private:
  struct Past {
    Digest digest;
    std::optional<std::vector<DataRange>> parts;  // how far the data were afterwards, as far as that is known
    std::optional<std::uint64_t> tokens = {};     // committed by then, likewise
  };
  void remember(Committed committed);

  std::uint32_t number_ = 0;
  Epoch decided_;
  Generation decided_by_;
  // Since when nothing is committed that the ledger does not know: its own when the coordinator began, or that of the newest rollback.
  Epoch recovered_;
  bool initialised_ = false;
  bool restored_ = false;
  std::uint64_t tokens_ = 0;
  Round committed_;
  Digest digest_;
  std::deque<Committed> recent_;                       // newest last
  std::map<Round, Past> past_;                         // committed rounds that an island may still have; thinned
  std::set<Round> checkpoints_;                        // those of them that are worth keeping
  std::map<Round, std::map<IslandId, Digest>> files_;  // of checkpoints, as islands tell; those of the newest few rounds
};

}  // namespace atl::coordinator
