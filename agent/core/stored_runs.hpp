// The checkpoints that lie on this island's disk, complete, of every run; and who may read those of runs that are not in hand.
// Threads: plain values; owned by one Core.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "agent/core/effect.hpp"
#include "agent/core/readers.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/generation.hpp"
#include "transport/base/ids.hpp"
#include "transport/base/time.hpp"
#include "transport/control/message.hpp"

namespace atl::agent {

// A checkpoint that lies on disk, complete.
struct StoredCheckpoint {
  Round round;
  Digest digest;
  Epoch epoch;  // in which it was written
  bool trainer_state = false;
  Step step;
  std::uint64_t position = 0;
  Digest file;
  std::uint64_t file_bytes = 0;
  std::uint32_t part = 0;      // of the data
  Generation generation = {};  // of the coordinator by whose word it was written; not known: by an older atoll
};
struct StoredRun {
  RunId run;
  std::vector<StoredCheckpoint> checkpoints;  // by round, oldest first
};

class StoredRuns {
 public:
  explicit StoredRuns(std::vector<StoredRun> found);

  // Oldest first; empty: none, or nothing is known of the run.
  [[nodiscard]] const std::vector<StoredCheckpoint>& checkpoints(const RunId& run) const;
  [[nodiscard]] const StoredCheckpoint* find(const RunId& run, Round round, const Digest& digest) const;
  // The newest with the trainer's own state; none of a round after `until`.
  [[nodiscard]] const StoredCheckpoint* newest_trainer_state(const RunId& run, std::optional<Round> until) const;

  // In place of one of the same round. Of more than `keep` the oldest are forgotten.
  void add(const RunId& run, const StoredCheckpoint& checkpoint, std::size_t keep);
  // It does not verify.
  void remove(const RunId& run, Round round);
  // The run is in hand no more: what lies on the disk stays, and may be served to these.
  void keep(const RunId& run, Readers readers);
  // The coordinator names a reader of a run that only lies here. Empty: nothing of it does.
  std::optional<AllowPeers> heed(const Serve& message);

  // Somebody may be reading something of it until then.
  void read_until(const RunId& run, TimePoint until) { read_until_[run] = until; }
  [[nodiscard]] bool being_read(const RunId& run, TimePoint now) const;
  // Nothing of it lies here any more; or only these checkpoints.
  void forget(const RunId& run);
  void keep_only(const RunId& run, const std::vector<Round>& rounds);

  [[nodiscard]] bool knows(const RunId& run) const { return runs_.contains(run); }
  [[nodiscard]] std::vector<RunId> runs() const;
  // For a hello.
  [[nodiscard]] std::vector<HeldCheckpoint> held(const RunId& run) const;
  [[nodiscard]] std::vector<HeldRun> held_runs(const std::optional<RunId>& except, std::size_t most) const;

 private:
  std::map<RunId, StoredRun> runs_;
  std::map<RunId, Readers> readers_;
  std::map<RunId, TimePoint> read_until_;
};

}  // namespace atl::agent
