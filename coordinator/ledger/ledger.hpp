// The ledger: what the coordinator must never forget, in STATE/ledger.db.
//
// A batch of records becomes durable in one transaction or not at all. Runs, memberships, epochs, islands and rounds are kept as
// they are now (their key's newest record). What a long run would have grow for ever is thinned with age (thinning.hpp): what
// its rounds counted stays, and so does all that a core goes on from. A ledger belongs to one process: STATE/lock is held while it is open.
// Threads: one at a time.
// Errors everywhere: io (a full or failing disk, nothing of the batch was recorded), corrupt (the database is damaged).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/core/record.hpp"
#include "coordinator/ledger/data_audit.hpp"
#include "coordinator/ledger/database.hpp"
#include "coordinator/ledger/running_totals.hpp"
#include "coordinator/ledger/spans.hpp"
#include "coordinator/ledger/state_lock.hpp"
#include "transport/base/generation.hpp"
#include "transport/base/result.hpp"
#include "transport/control/message.hpp"

namespace atl::coordinator {

// An event with its place in the order of all events: 1, 2, 3…
struct StoredEvent {
  std::uint64_t sequence = 0;
  EventRecord event;
  std::string fields;  // JSON object
};

struct EventQuery {
  RunId run;
  std::uint64_t after = 0;
  std::size_t limit = 200;
  IslandId island;                 // empty: all
  std::optional<TimePoint> since;  // empty: from the beginning
  bool debug = false;              // those of level debug too
};

// The validation losses of a round, over the islands that measured them. NaN where none did.
struct RoundLoss {
  Round round;
  double outer_loss = 0;
  double local_loss = 0;
};

// What a round brought, over the islands that took part in it. NaN where nobody measured it.
struct RoundMetrics {
  Round round;
  TimePoint time;             // when the last of them had merged it
  Step step;                  // of the trainers, the furthest
  std::uint64_t islands = 0;  // that told of it
  double outer_loss = 0;      // means
  double local_loss = 0;
  double training_loss = 0;
  double norm = 0;          // of the contributions, the mean
  double wait_seconds = 0;  // sums
  std::uint64_t tokens = 0;
  std::uint64_t bytes_sent = 0;
};

// The newest validation loss of an island's own outer parameters.
struct OwnLoss {
  Round round;
  double loss = 0;
};

class Ledger {
 public:
  // Opens or makes the ledger of a state directory, which must exist. Errors: conflict naming the process that has it.
  static Result<Ledger> open(const std::filesystem::path& state);

  // A coordinator that was set up has a ledger. Errors: not_found, with what to do, where it is missing or empty.
  static Status check_presence(const std::filesystem::path& state);

  // The store belongs to the coordinator with this key from now on, unless it has an owner.
  Status found(std::string_view public_key);
  // Errors: corrupt if the store was never founded; conflict if it belongs to another key.
  Status check_owner(std::string_view public_key);
  // One life of the store begins: every start of its coordinator. Returns its generation, newer than any before it of this store, durable,
  // without its random part and its proof. Errors: as check_owner; conflict where an island has met a newer one, with what to do.
  Result<Generation> begin_generation(std::string_view public_key);
  // This store was restored from a backup: its next generation is newer than all that were begun on it and on what it was copied from.
  Status note_restore();
  // As it stands, the newest that was begun. Errors: io.
  Result<Generation> generation();

  // Everything a core needs. Rounds: the newest kRecoveredRounds of each run's present lineage, and the newest kRecoveredCheckpoints that
  // islands wrote a checkpoint of, those of earlier lineages included as far as the run's history goes through them; of a run that has
  // ended, kEndedRounds of both.
  Result<Recovered> recover();
  static constexpr std::uint64_t kRecoveredRounds = 64;
  static constexpr std::uint64_t kRecoveredCheckpoints = 1024;
  static constexpr std::uint64_t kEndedRounds = 16;

  // All of them, durable, or none. Cost: one fsync.
  Status write(std::span<const Record> records);
  // The last report of each island in each run, so that totals outlive a restart. Replaces older ones.
  Status write_reports(std::span<const std::pair<IslandId, IslandReport>> reports, const RunningTotals& totals);

  // What an island told of a checkpoint on its disk; its newest kCheckpointsKept of the run are kept.
  Status write_checkpoint(const IslandId& island, const Checkpointed& checkpoint);
  static constexpr std::uint64_t kCheckpointsKept = 8;
  // The SHA-256 and length of the file of the checkpoint with this digest, as the island told them.
  struct CheckpointFile {
    Digest file;
    std::uint64_t bytes = 0;
  };
  Result<std::optional<CheckpointFile>> checkpoint_file(const RunId& run, const IslandId& island, Round round, const Digest& digest);

  // In order of sequence.
  Result<std::vector<StoredEvent>> events(const EventQuery& query);
  // The newest events of level warning or error, oldest first.
  Result<std::vector<StoredEvent>> warnings(const RunId& run, std::size_t limit);
  // The newest event of a kind that each island told of a run.
  Result<std::map<IslandId, StoredEvent>> newest_of_kind(const RunId& run, std::string_view kind);
  // By round; hardly more than kSeriesPoints.
  Result<std::vector<RoundLoss>> losses(const RunId& run);
  // By round, those after `after` (-1: from round 0, the initial state). All islands, or with `island` that one alone. Thinned as the
  // losses are.
  Result<std::vector<RoundMetrics>> metrics(const RunId& run, const IslandId& island, std::int64_t after, std::size_t limit);
  // The newest one.
  Result<std::optional<RoundLoss>> newest_loss(const RunId& run);
  // The newest loss of each island up to round `last`; islands without one are left out.
  Result<std::map<IslandId, OwnLoss>> own_losses(const RunId& run, Round last);
  static constexpr std::uint64_t kSeriesPoints = 512;
  Result<std::vector<std::pair<IslandId, IslandReport>>> reports(const RunId& run);
  // Of the runs that may go on.
  Result<RunningTotals> totals();
  // The newest committed round that everybody was told to write a checkpoint of.
  Result<std::optional<Round>> checkpoint_round(const RunId& run);

  // The parts of a run's data that islands have had, by number.
  Result<std::vector<PartRecord>> parts(const RunId& run);
  // Adds up what all committed rounds counted. Cost: reads every round of the run that is a row.
  Result<DataAudit> audit_data(const RunId& run);

  // What islands spent their time on. A span told twice is kept once; they are thinned with age, and of a run at most
  // the newest kSpansKept are kept. Cost: one fsync.
  Status write_spans(std::span<const IslandSpan> spans);
  struct StoredSpan {
    std::uint64_t id = 0;  // grows
    IslandSpan span;
  };
  // With an id above `after`, in order of it.
  Result<std::vector<StoredSpan>> spans(const RunId& run, std::uint64_t after, std::size_t limit);
  static constexpr std::uint64_t kSpansKept = 120'000;

  // For Admission, whose tables live in the same file.
  [[nodiscard]] Database& database() { return *database_; }

 private:
  Ledger(StateLock lock, std::unique_ptr<Database> database) : lock_(std::move(lock)), database_(std::move(database)) {}
  Result<std::vector<StoredEvent>> read_events(Statement rows);

  std::uint64_t spans_written_ = 0;
  StateLock lock_;
  std::unique_ptr<Database> database_;
};

}  // namespace atl::coordinator
