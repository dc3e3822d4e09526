// Checkpoints of one run on this island's disk.
//
//   FOLDER/ROUND/outer.safetensors   the outer state: each parameter under its name, its momentum as `momentum/NAME`; all F32,
//                                    but the momentum BF16 with outer_state "bf16". Metadata: atoll.format "1", atoll.run, atoll.round,
//                                    atoll.digest, atoll.manifest (parameter_layout.hpp); and what the model is: atoll.data_format
//                                    ([data].format), of a language model atoll.model (JSON of [model]) and atoll.sequence_length
//                                    ([training].sequence_length), and atoll.description, where its trainer gave one; of an own trainer's
//                                    model atoll.trainer instead. The same bytes on every island that is at that round.
//   FOLDER/ROUND/trainer/…           whatever the trainer saved; none after a copy from peers
//   FOLDER/ROUND/rounds/NUMBER       with overlap: this island's contribution to a later round that was in flight when the trainer saved
//                                    (the format of round_result.hpp with the one term, weight 1)
//   FOLDER/ROUND/residual.safetensors  with error feedback: `residual/NAME` of each parameter, F32; this island's own
//   FOLDER/ROUND/meta.json           run, round, epoch, digest, step, data position; size and SHA-256 of every file; what
//                                    the trainer said of the rounds in flight; and the SHA-256 of itself, so that no flipped bit passes
//   FOLDER/.ROUND.partial/           one being written
//
// A checkpoint is written in its partial folder, every file and folder synced, and takes its name by one rename: a crash at
// any instant leaves the older ones and either the new one or a leftover, which the next `open` removes. A checkpoint is used
// only after its digests are verified. The newest one that is good is never pruned.
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/core/pending_round.hpp"
#include "agent/storage/durable_file.hpp"
#include "agent/storage/safetensors.hpp"
#include "agent/storage/snapshot_file.hpp"
#include "strategies/specification/run_spec.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/generation.hpp"
#include "transport/base/ids.hpp"
#include "transport/base/result.hpp"

namespace atl {

inline constexpr const char* kOuterFile = "outer.safetensors";
inline constexpr const char* kTrainerFolder = "trainer";
inline constexpr const char* kRoundsFolder = "rounds";
inline constexpr const char* kResidualFile = "residual.safetensors";
inline constexpr std::string_view kResidualPrefix = "residual/";
inline constexpr const char* kOwnFile = "own.safetensors";
inline constexpr const char* kTrainerKey = "atoll.trainer";

struct CheckpointMeta {
  RunId run;
  Round round;
  Epoch epoch;
  Generation generation;                   // of the coordinator by whose word the round is committed; not known: by an older atoll
  Digest digest;                           // of the rounds up to `round`
  Step step;                               // inner steps of this island's trainer
  std::uint32_t part = 0;                  // of the data that its trainer is on
  std::uint64_t position = 0;              // of its trainer in that part
  std::vector<PendingRound> pending;       // later rounds that were in flight, oldest first
  std::map<std::string, FileFacts> files;  // by path inside the checkpoint's folder
  [[nodiscard]] const FileFacts* outer() const;
  [[nodiscard]] bool has_trainer_state() const;
};

// The metadata of outer.safetensors. `manifest` is JSON.
std::map<std::string, std::string> outer_metadata(const RunId& run, Round round, const Digest& digest, const RunSpec& spec,
                                                  const std::string& manifest);

// Hashes and syncs the files that lie in a checkpoint's partial folder and are not in `meta.files`, fills these in, and writes meta.json.
// Errors: io; invalid_argument for what does not belong there. Cost: reads them once. Threads: any, one for a folder.
Status complete_checkpoint(const DiskPath& partial, CheckpointMeta& meta);

class CheckpointStore {
 public:
  // Makes the folder if needed and removes what a crash left. Errors: io.
  static Result<CheckpointStore> open(DiskPath folder);
  // Those that lie there, to look at: nothing is made or removed.
  static CheckpointStore look_at(DiskPath folder) { return CheckpointStore(std::move(folder)); }

  // Starts one: an empty partial folder (an earlier attempt at the same round is removed), in which the trainer makes
  // kTrainerFolder if it saves something. Several rounds may be begun at a time. Errors: io.
  Result<DiskPath> begin(Round round);
  // The partial folder as it is, made if there is none: the trainer may be saving in it already. Errors: io.
  Result<DiskPath> resume(Round round);
  // Takes what the trainer left in it out again.
  void drop_trainer_state(Round round);
  // Begins to write outer.safetensors into it, tensors as they lie in memory: whoever has the snapshot writes it. Errors: io.
  Result<std::shared_ptr<SnapshotFile>> begin_outer(Round round, std::vector<TensorView> tensors,
                                                    const std::map<std::string, std::string>& metadata, std::uint64_t most_kept,
                                                    std::size_t slice = SnapshotFile::kSlice);
  // The same, to its end.
  Result<FileFacts> write_outer(Round round, std::vector<TensorView> tensors, const std::map<std::string, std::string>& metadata);
  // The folder, completed, becomes the round's checkpoint; one of the same round is replaced. Errors: io, what went wrong in completing it;
  // the partial folder is removed then.
  Result<CheckpointMeta> take(CheckpointMeta meta, Status completed);
  // Completes it and takes it.
  Result<CheckpointMeta> finish(CheckpointMeta meta);
  // Gives one up: its partial folder goes.
  void abandon(Round round);

  // What meta.json of each checkpoint says, newest first: by epoch, then by round, for a run that went back to an older round writes
  // its later epochs' checkpoints last. Those that cannot be read are left out. Digests are not verified, and each meta.json is read once.
  [[nodiscard]] std::vector<CheckpointMeta> list() const;
  // The checkpoint of a round, every byte verified. Errors: not_found, corrupt (names the file), io.
  Result<CheckpointMeta> verify(Round round) const;
  // All that is wrong with the checkpoints that lie here, one for each file, and how many were looked at.
  struct Faults {
    std::vector<Error> found;
    std::size_t checkpoints = 0;
    std::uint64_t bytes = 0;  // read
  };
  [[nodiscard]] Faults faults() const;
  // The newest whose digests hold; each that is refused is warned about and not looked at again. None: nullopt.
  std::optional<CheckpointMeta> newest_good();
  // Keeps the `keep` newest (at least one), those in `needed` and the newest good one; removes refused and older ones.
  void prune(std::size_t keep, const std::set<Round>& needed = {});

  [[nodiscard]] DiskPath folder_of(Round round) const;
  [[nodiscard]] DiskPath partial_of(Round round) const;
  [[nodiscard]] const DiskPath& folder() const { return folder_; }

 private:
  explicit CheckpointStore(DiskPath folder) : folder_(std::move(folder)) {}
  [[nodiscard]] Result<CheckpointMeta> meta_of(Round round) const;
  [[nodiscard]] Status verify_file(Round round, const std::string& name, const FileFacts& expected) const;
  [[nodiscard]] std::vector<Round> rounds() const;  // newest first, before them those that cannot be read
  // From memory once it was read or written; null if it cannot be read.
  [[nodiscard]] const CheckpointMeta* known_meta(Round round) const;

  DiskPath folder_;
  std::set<Round> refused_;
  std::set<Round> verified_;
  mutable std::map<Round, CheckpointMeta> read_;
  std::map<Round, FileFacts> written_;  // outer.safetensors of partial ones: hashed while written
};

}  // namespace atl
