// A run's checkpoints on this island: those being written, the newest that is known to the coordinator, and who may be reading one.
//
// While the coordinator offers this island to joiners (a lease that it renews), the results of later rounds are kept in memory, and one
// checkpoint of a round from then on lies ready for them.
// Threads: owned by one Core.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "agent/core/event.hpp"
#include "agent/core/outbox.hpp"
#include "agent/core/run_terms.hpp"
#include "agent/core/stored_runs.hpp"
#include "transport/base/time.hpp"

namespace atl::agent {

class Checkpoints {
 public:
  // Both outlive it. copy_own: each island copies its own to the run's store; else the one that is asked to does.
  Checkpoints(const RunTerms& terms, bool copy_own, Outbox& out) : terms_(&terms), copy_own_(copy_own), out_(&out) {}

  // How many are kept on the disk.
  [[nodiscard]] std::size_t keep() const;
  [[nodiscard]] bool writing() const { return !writing_.empty(); }
  // What was last said of one, or is to be.
  [[nodiscard]] const std::optional<Checkpointed>& newest() const { return newest_; }
  [[nodiscard]] bool has(Round round, const Digest& digest) const {
    return newest_ && newest_->round == round && newest_->digest == digest;
  }

  // Asks for it (WriteCheckpoint), unless it is being written. What the order keeps is filled in here.
  void write(WriteCheckpoint order, TimePoint now);
  // A trainer's state that one of them waits for lies there, or does not come.
  void end_trainer_state(Round round, bool saved);
  // The trainer is gone: none comes any more.
  void lose_trainer();
  // It lies there and is said, unless it is of before the lease and of no other use. stands_after: of the run's pause.
  void on(const CheckpointWritten& event, std::optional<Round> stands_after, TimePoint now);
  void on(const CheckpointFailed& event);
  // It lies there already.
  void note(const StoredCheckpoint& stored);
  void tell(TimePoint now);
  // As said before, without more.
  void repeat() const;

  // Offered to joiners, from the results of this round on.
  void offer(Round from, TimePoint now);
  [[nodiscard]] bool offered() const { return lease_.has_value(); }
  // False: it was not offered.
  bool end_offer();
  void expire(TimePoint now);
  // The checkpoint that the lease asks for lies there. A newer one than that may be wanted.
  bool serves(Round committed, const Digest& digest, bool newer_wanted);
  [[nodiscard]] std::optional<TimePoint> next_deadline() const { return lease_; }

  // This island is to copy the checkpoint of this round to the run's store. data: how far each part is after it.
  void copy(Round round, std::vector<DataRange> data) { to_copy_.insert_or_assign(round, std::move(data)); }
  // One lies there that may have to be copied.
  void begin_copy(const CheckpointWritten& event, Epoch epoch);

  // Somebody may be reading this one for a while: it is not removed.
  void keep_for_reader(Round round, TimePoint now);

 private:
  void keep_until(Round round, TimePoint until);

  const RunTerms* terms_;
  bool copy_own_;
  Outbox* out_;
  std::set<Round> writing_;
  std::set<Round> trainer_saving_;  // of those: the trainer writes its state still
  std::optional<Checkpointed> newest_;
  std::map<Round, TimePoint> read_until_;  // that somebody may be reading
  std::map<Round, std::vector<DataRange>> to_copy_;
  std::optional<TimePoint> lease_;  // offered until then
  Round lease_from_;                // results of later rounds are kept
  bool lease_served_ = false;       // a checkpoint was written or found since the lease began
};

}  // namespace atl::agent
