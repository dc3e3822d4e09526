#include "coordinator/ledger/ledger.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <type_traits>

#include "coordinator/ledger/record_rows.hpp"
#include "coordinator/ledger/schema.hpp"
#include "coordinator/ledger/thinning.hpp"

namespace atl::coordinator {
namespace {

constexpr const char* kVersionQuery = "PRAGMA user_version";

// A new file gets its tables; what another version wrote is refused.
Status prepare_tables(Database& database, const std::filesystem::path& path) {
  std::uint64_t version = 0;
  {
    auto row = database.prepare(kVersionQuery);
    ATOLL_ASSIGN(const bool there, row.row());
    version = there ? row.number(0) : 0;
  }
  if (version > kSchemaVersion) {
    return Error{Code::conflict, path.string() + " was written by a newer atoll (schema " + std::to_string(version) + ", this one knows " +
                                     std::to_string(kSchemaVersion) + "); install that version"};
  }
  if (version > 0 && version < kSchemaVersion) {
    return Error{Code::conflict, path.string() + " was written by an atoll from before its first release (schema " +
                                     std::to_string(version) + "); finish its runs with that version"};
  }
  if (version == kSchemaVersion) {
    return {};
  }
  return database.transaction([&]() -> Status {
    ATOLL_TRY(create_tables(database));
    return database.execute("PRAGMA user_version=" + std::to_string(kSchemaVersion));
  });
}

// The checkpoints of lineages before the run's own that its history goes through: islands may still have them, when what the lineage began
// with is lost.
Status collect_earlier(Database& database, const RunRecord& run, std::vector<RoundRecord>& rounds) {
  ATOLL_ASSIGN(const auto bases, read_bases(database, run.id));
  auto rows =
      database.prepare(select<RoundRecord>("WHERE run=? AND lineage<? AND checkpoint=1 AND committed=1 ORDER BY round DESC LIMIT ?"));
  rows.bind(run.id.text).bind(run.lineage).bind(std::uint64_t{Ledger::kRecoveredCheckpoints});
  ATOLL_ASSIGN(const std::vector<RoundRecord> earlier, read_rows<RoundRecord>(std::move(rows)));
  std::ranges::copy_if(earlier, std::back_inserter(rounds),
                       [&](const RoundRecord& round) { return !is_void(round.lineage, round.round, bases); });
  return {};
}

constexpr const char* kEvents = "SELECT sequence, time_ms, run, island, level, kind, text, fields FROM events ";

}  // namespace

Status Ledger::check_presence(const std::filesystem::path& state) {
  const std::filesystem::path path = state / "ledger.db";
  std::error_code failure;
  const std::uintmax_t bytes = std::filesystem::file_size(path, failure);
  if (!failure && bytes > 0) {
    return {};
  }
  return Error{Code::not_found,
               path.string() + (failure ? " is not there" : " is empty") +
                   ", although this is a coordinator's state directory: its ledger was lost, and with it all runs and who "
                   "is enrolled. Restore a backup (atoll coordinator init --from FILE), put the file back, or set up another "
                   "coordinator in a directory of its own"};
}

Result<Ledger> Ledger::open(const std::filesystem::path& state) {
  ATOLL_ASSIGN(StateLock lock, StateLock::take(state));
  const std::filesystem::path path = state / "ledger.db";
  ATOLL_ASSIGN(Database opened, Database::open(path));
  auto database = std::make_unique<Database>(std::move(opened));
  ATOLL_TRY(prepare_tables(*database, path));
  if (const Status sound = verify_rows(*database); !sound) {
    return Error{sound.error().code, path.string() + ": " + sound.error().why + "; restore a backup (atoll coordinator init --from FILE)"};
  }
  return Ledger(std::move(lock), std::move(database));
}

Status Ledger::found(std::string_view public_key) {
  return database_->prepare("INSERT OR IGNORE INTO store(id, public_key, restored, starts) VALUES(1, ?, 0, 0)").bind(public_key).run();
}

Status Ledger::check_owner(std::string_view public_key) {
  Statement row = database_->prepare("SELECT public_key FROM store WHERE id=1");
  ATOLL_ASSIGN(const bool there, row.row());
  if (!there) {
    return Error{Code::corrupt,
                 "the ledger is empty, although this coordinator has a key: its ledger was lost. Restore a backup (atoll "
                 "coordinator init --from FILE), or set up another coordinator in a directory of its own"};
  }
  if (row.text(0) != public_key) {
    return Error{Code::conflict, "the ledger is that of another coordinator (key " + row.text(0) + ", this one's is " +
                                     std::string(public_key) + "): put the ledger and the key of one backup together"};
  }
  return {};
}

Result<Generation> Ledger::begin_generation(std::string_view public_key) {
  ATOLL_TRY(check_owner(public_key));
  Statement row =
      database_->prepare("SELECT newer_restored, newer_starts, newer_island FROM store WHERE id=1 AND newer_restored IS NOT NULL");
  ATOLL_ASSIGN(const bool superseded, row.row());
  if (superseded) {
    Generation newer;
    newer.restored = row.number(0);
    newer.starts = row.number(1);
    return Error{Code::conflict, "this store was superseded: island " + row.text(2) + " has met " + newer.text() +
                                     " of this coordinator, from a copy of this store. Go on with that one. To go on with this one all the "
                                     "same, stop that one, then make this the newest: atoll coordinator backup FILE, and atoll coordinator "
                                     "init --from FILE in a new directory"};
  }
  ATOLL_TRY(database_->execute("UPDATE store SET starts=starts+1 WHERE id=1"));
  return generation();
}

Status Ledger::note_restore() {
  return database_->execute(
      "UPDATE store SET restored=max(restored+1, coalesce(newer_restored, 0)+1, CAST(strftime('%s', 'now') AS INTEGER)), starts=0, "
      "newer_restored=NULL, newer_starts=NULL, newer_island=NULL, newer_ms=NULL WHERE id=1");
}

Result<Generation> Ledger::generation() {
  Statement row = database_->prepare("SELECT restored, starts FROM store WHERE id=1");
  ATOLL_ASSIGN(const bool there, row.row());
  Generation generation;
  if (there) {
    generation.restored = row.number(0);
    generation.starts = row.number(1);
  }
  return generation;
}

Result<Recovered> Ledger::recover() {
  Recovered recovered;
  ATOLL_ASSIGN(recovered.runs, read_rows<RunRecord>(database_->prepare(select<RunRecord>("ORDER BY submitted_ms, run"))));
  ATOLL_ASSIGN(recovered.memberships, read_rows<MembershipRecord>(database_->prepare(select<MembershipRecord>())));
  ATOLL_ASSIGN(recovered.epochs, read_rows<EpochRecord>(database_->prepare(
                                     select<EpochRecord>("AS m WHERE epoch=(SELECT max(epoch) FROM epochs AS n WHERE n.run=m.run)"))));
  ATOLL_ASSIGN(recovered.islands, read_rows<IslandRecord>(database_->prepare(select<IslandRecord>())));
  ATOLL_ASSIGN(recovered.tasks, read_rows<TaskRecord>(database_->prepare(select<TaskRecord>())));
  ATOLL_ASSIGN(recovered.parts, read_rows<PartRecord>(database_->prepare(select<PartRecord>())));
  ATOLL_ASSIGN(recovered.stretches, read_rows<StretchRecord>(database_->prepare(select<StretchRecord>())));
  ATOLL_ASSIGN(recovered.removed, read_rows<RemovedRecord>(database_->prepare(select<RemovedRecord>())));
  for (const RunRecord& run : recovered.runs) {
    std::vector<RoundRecord> rounds;
    const bool ended = has_ended(run.state);
    for (const bool checkpointed : {false, true}) {
      const std::uint64_t limit = ended ? kEndedRounds : checkpointed ? kRecoveredCheckpoints : kRecoveredRounds;
      auto rows = database_->prepare(select<RoundRecord>(std::string("WHERE run=? AND lineage=?") +
                                                         (checkpointed ? " AND checkpoint=1" : "") + " ORDER BY round DESC LIMIT ?"));
      rows.bind(run.id.text).bind(run.lineage).bind(limit);
      ATOLL_ASSIGN(std::vector<RoundRecord> found, read_rows<RoundRecord>(std::move(rows)));
      std::ranges::move(found, std::back_inserter(rounds));
    }
    if (!ended && run.initialised && run.lineage > 0) {
      ATOLL_TRY(collect_earlier(*database_, run, rounds));
    }
    std::sort(rounds.begin(), rounds.end(), [](const RoundRecord& a, const RoundRecord& b) {
      return std::pair(a.round, b.lineage) < std::pair(b.round, a.lineage);  // of the newest lineage first
    });
    rounds.erase(std::unique(rounds.begin(), rounds.end(), [](const RoundRecord& a, const RoundRecord& b) { return a.round == b.round; }),
                 rounds.end());
    std::move(rounds.begin(), rounds.end(), std::back_inserter(recovered.rounds));
  }
  return recovered;
}

Status Ledger::write(std::span<const Record> records) {
  if (records.empty()) {
    return {};
  }
  for (const Status& there : {lock_.still_held(), database_->still_there()}) {
    if (!there) {
      return Error{there.error().code, there.error().why +
                                           "; nothing is committed any more: put it back, or stop this coordinator and look "
                                           "where its state is"};
    }
  }
  return database_->transaction([&]() -> Status {
    std::map<RunId, Round> measured;
    std::map<RunId, Round> committed;
    for (const Record& record : records) {
      ATOLL_TRY(std::visit([&](const auto& value) { return write_row(*database_, value); }, record));
      const auto* metric = std::get_if<MetricRecord>(&record);
      if (metric != nullptr && metric->round.value >= kSeriesPoints && metric->round.value % (kSeriesPoints / 2) == 0) {
        measured[metric->run] = metric->round;
      }
      const auto* round = std::get_if<RoundRecord>(&record);
      if (round != nullptr && round->committed && round->round > Round(0) && round->round.value % kThinEvery == 0) {
        committed[round->run] = round->round;
      }
    }
    for (const auto& [run, round] : measured) {
      ATOLL_TRY(thin_metrics(*database_, run, round));
    }
    for (const auto& [run, round] : committed) {
      ATOLL_TRY(thin_rounds(*database_, run, round));
    }
    // Of runs whose islands commit by themselves only the metrics tell how far they are.
    for (const auto& [run, round] : committed.empty() ? measured : committed) {
      if (round.value % (4 * kThinEvery) == 0) {
        ATOLL_TRY(thin_events(*database_, run, round));
      }
    }
    return {};
  });
}

Status Ledger::write_reports(std::span<const std::pair<IslandId, IslandReport>> reports, const RunningTotals& totals) {
  if (reports.empty()) {
    return {};
  }
  return database_->transaction([&]() -> Status {
    for (const auto& [island, report] : reports) {
      ATOLL_TRY(write_row(*database_, ReportRow{island, report, totals.carried(report.run, island)}));
    }
    return {};
  });
}

Status Ledger::write_checkpoint(const IslandId& island, const Checkpointed& checkpoint) {
  return database_->transaction([&]() -> Status {
    ATOLL_TRY(database_->prepare("INSERT OR REPLACE INTO checkpoints(run, island, round, digest, file, file_bytes) VALUES(?,?,?,?,?,?)")
                  .bind(checkpoint.run.text)
                  .bind(island.text)
                  .bind(checkpoint.round.value)
                  .bind(checkpoint.digest)
                  .bind(checkpoint.file)
                  .bind(checkpoint.file_bytes)
                  .run());
    return database_
        ->prepare(
            "DELETE FROM checkpoints WHERE run=?1 AND island=?2 AND round NOT IN "
            "(SELECT round FROM checkpoints WHERE run=?1 AND island=?2 ORDER BY round DESC LIMIT ?3)")
        .bind(checkpoint.run.text)
        .bind(island.text)
        .bind(kCheckpointsKept)
        .run();
  });
}

Result<std::optional<Ledger::CheckpointFile>> Ledger::checkpoint_file(const RunId& run, const IslandId& island, Round round,
                                                                      const Digest& digest) {
  auto row = database_->prepare("SELECT file, file_bytes FROM checkpoints WHERE run=? AND island=? AND round=? AND digest=?");
  row.bind(run.text).bind(island.text).bind(round.value).bind(digest);
  ATOLL_ASSIGN(const bool there, row.row());
  return there ? std::optional(CheckpointFile{row.digest(0), row.number(1)}) : std::nullopt;
}

Result<std::vector<StoredEvent>> Ledger::read_events(Statement rows) {
  std::vector<StoredEvent> events;
  for (;;) {
    ATOLL_ASSIGN(const bool there, rows.row());
    if (!there) {
      return events;
    }
    StoredEvent stored;
    stored.sequence = rows.number(0);
    stored.event.time = from_unix_ms(rows.integer(1));
    stored.event.run = RunId(rows.text(2));
    stored.event.island = IslandId(rows.text(3));
    stored.event.level = rows.text(4);
    stored.event.kind = rows.text(5);
    stored.event.text = rows.text(6);
    stored.fields = rows.text(7);
    events.push_back(std::move(stored));
  }
}

Result<std::vector<StoredEvent>> Ledger::events(const EventQuery& query) {
  auto rows = database_->prepare(kEvents + std::string("WHERE run=?1 AND sequence>?2 AND (?3='' OR island=?3) AND time_ms>=?4 AND (?6 OR "
                                                       "level<>'debug') ORDER BY sequence LIMIT ?5"));
  rows.bind(query.run.text).bind(query.after).bind(query.island.text);
  rows.bind(query.since ? unix_ms(*query.since) : std::numeric_limits<std::int64_t>::min())
      .bind(std::uint64_t{query.limit})
      .bind(query.debug);
  return read_events(std::move(rows));
}

Result<std::vector<StoredEvent>> Ledger::warnings(const RunId& run, std::size_t limit) {
  auto rows = database_->prepare(kEvents + std::string("WHERE run=? AND level IN ('warning', 'error') ORDER BY sequence DESC LIMIT ?"));
  rows.bind(run.text).bind(std::uint64_t{limit});
  ATOLL_ASSIGN(auto events, read_events(std::move(rows)));
  std::reverse(events.begin(), events.end());
  return events;
}

Result<std::map<IslandId, StoredEvent>> Ledger::newest_of_kind(const RunId& run, std::string_view kind) {
  auto rows = database_->prepare(
      kEvents + std::string("WHERE sequence IN (SELECT max(sequence) FROM events WHERE run=? AND kind=? GROUP BY island)"));
  rows.bind(run.text).bind(std::string(kind));
  ATOLL_ASSIGN(std::vector<StoredEvent> events, read_events(std::move(rows)));
  std::map<IslandId, StoredEvent> newest;
  for (StoredEvent& event : events) {
    newest.insert_or_assign(event.event.island, std::move(event));
  }
  return newest;
}

Result<std::vector<RoundLoss>> Ledger::losses(const RunId& run) {
  auto rows = database_->prepare(
      "SELECT round, avg(outer_loss), avg(local_loss) FROM metrics WHERE run=? AND outer_loss IS NOT NULL GROUP BY round ORDER BY round");
  rows.bind(run.text);
  std::vector<RoundLoss> losses;
  for (;;) {
    ATOLL_ASSIGN(const bool there, rows.row());
    if (!there) {
      return losses;
    }
    losses.push_back({Round(rows.number(0)), rows.real(1), rows.real(2)});
  }
}

Result<std::vector<RoundMetrics>> Ledger::metrics(const RunId& run, const IslandId& island, std::int64_t after, std::size_t limit) {
  auto rows = database_->prepare(
      "SELECT round, max(time_ms), max(step), count(*), avg(outer_loss), avg(local_loss), avg(training_loss), avg(norm), "
      "sum(wait_seconds), "
      "sum(tokens), sum(bytes_sent) FROM metrics WHERE run=?1 AND (?2='' OR island=?2) AND round>?3 GROUP BY round ORDER BY round LIMIT "
      "?4");
  rows.bind(run.text).bind(island.text).bind(after).bind(static_cast<std::uint64_t>(limit));
  std::vector<RoundMetrics> metrics;
  for (;;) {
    ATOLL_ASSIGN(const bool there, rows.row());
    if (!there) {
      return metrics;
    }
    metrics.push_back({Round(rows.number(0)), from_unix_ms(rows.integer(1)), Step(rows.number(2)), rows.number(3), rows.real(4),
                       rows.real(5), rows.real(6), rows.real(7), rows.real(8), rows.number(9), rows.number(10)});
  }
}

Result<std::optional<RoundLoss>> Ledger::newest_loss(const RunId& run) {
  auto row = database_->prepare(
      "SELECT round, avg(outer_loss), avg(local_loss) FROM metrics WHERE run=?1 AND outer_loss IS NOT NULL AND round=(SELECT max(round) "
      "FROM metrics WHERE run=?1 AND outer_loss IS NOT NULL) GROUP BY round");
  row.bind(run.text);
  ATOLL_ASSIGN(const bool there, row.row());
  return there ? std::optional(RoundLoss{Round(row.number(0)), row.real(1), row.real(2)}) : std::nullopt;
}

Result<std::map<IslandId, OwnLoss>> Ledger::own_losses(const RunId& run, Round last) {
  auto rows = database_->prepare(  // of several rows SQLite takes the other columns from the one with the maximum
      "SELECT island, max(round), outer_loss FROM metrics WHERE run=? AND outer_loss IS NOT NULL AND round>0 AND round<=? GROUP BY island");
  rows.bind(run.text).bind(last.value);
  std::map<IslandId, OwnLoss> losses;
  for (;;) {
    ATOLL_ASSIGN(const bool there, rows.row());
    if (!there) {
      return losses;
    }
    losses[IslandId(rows.text(0))] = OwnLoss{Round(rows.number(1)), rows.real(2)};
  }
}

Result<std::vector<std::pair<IslandId, IslandReport>>> Ledger::reports(const RunId& run) {
  auto rows = database_->prepare(select<ReportRow>("WHERE run=?"));
  rows.bind(run.text);
  ATOLL_ASSIGN(std::vector<ReportRow> found, read_rows<ReportRow>(std::move(rows)));
  std::vector<std::pair<IslandId, IslandReport>> reports;
  for (ReportRow& row : found) {
    reports.emplace_back(std::move(row.island), std::move(row.report));
  }
  return reports;
}

Result<RunningTotals> Ledger::totals() {
  auto rows = database_->prepare(select<ReportRow>("WHERE run IN (SELECT run FROM runs WHERE state<>'completed')"));
  ATOLL_ASSIGN(const std::vector<ReportRow> found, read_rows<ReportRow>(std::move(rows)));
  RunningTotals totals;
  for (const ReportRow& row : found) {
    totals.restore(row.report.run, row.island, row.carried, row.report);
  }
  return totals;
}

Result<std::optional<Round>> Ledger::checkpoint_round(const RunId& run) {
  auto row = database_->prepare(
      "SELECT max(round) FROM rounds WHERE run=?1 AND checkpoint=1 AND committed=1 AND lineage=(SELECT lineage FROM runs WHERE run=?1)");
  row.bind(run.text);
  ATOLL_ASSIGN(const bool there, row.row());
  return there && !row.null(0) ? std::optional(Round(row.number(0))) : std::nullopt;
}

}  // namespace atl::coordinator
