// Records as rows of the ledger: one writer and one reader for each kind, side by side.
// Threads: those of the database.
#pragma once

#include <string>
#include <vector>

#include "coordinator/core/record.hpp"
#include "coordinator/ledger/database.hpp"
#include "coordinator/ledger/running_totals.hpp"
#include "transport/control/message.hpp"

namespace atl::coordinator {

Status write_row(Database& database, const RunRecord& run);
Status write_row(Database& database, const MembershipRecord& membership);
Status write_row(Database& database, const EpochRecord& membership);
Status write_row(Database& database, const IslandRecord& island);
Status write_row(Database& database, const RoundRecord& round);
Status write_row(Database& database, const PartRecord& part);
Status write_row(Database& database, const StretchRecord& stretch);
Status write_row(Database& database, const EventRecord& event);
Status write_row(Database& database, const MetricRecord& metric);
Status write_row(Database& database, const TaskRecord& task);
Status write_row(Database& database, const Superseded& superseded);
Status write_row(Database& database, const DroppedRecord& dropped);
// Removes all other rows of the run. Cost: grows with them; a second for some hundred thousand.
Status write_row(Database& database, const RemovedRecord& removed);
Status write_row(Database& database, const IslandId& island, const IslandReport& report, const Counters& carried);

// Readers take a row of the table's columns in the order that the matching `k…Columns` names. Errors: corrupt for a value that
// no writer wrote.
inline constexpr const char* kRunColumns =
    "run, name, file, spec, state, reason, reason_since_ms, reason_until_ms, error_code, error_why, submitted_ms, started_ms, ended_ms, "
    "epoch, lineage, initialised, committed, digest, tokens, pause_after, restored, enough, copied, decided_restored, decided_starts, "
    "decided_life";
Result<RunRecord> read_run(const Statement& row);
inline constexpr const char* kMembershipColumns = "run, island, part, state, cause, absences, offences, left_epoch";
Result<MembershipRecord> read_membership(const Statement& row);
inline constexpr const char* kEpochColumns = "run, epoch, time_ms, committed, members, why, avoid";
Result<EpochRecord> read_epoch(const Statement& row);
inline constexpr const char* kIslandColumns = "island, name, public_key, bulk_address, version, platform, data_sets, boot, last_hello_ms";
Result<IslandRecord> read_island(const Statement& row);
inline constexpr const char* kRoundColumns =
    "run, lineage, round, epoch, attempt, committed, checkpoint, members, tokens, digest, planned_ms, committed_ms, data, parts, fragment, "
    "steps, norms, staleness, overwritten";
Result<RoundRecord> read_round(const Statement& row);
// The round with which each of the run's lineages after the first one began.
Result<std::map<std::uint32_t, Round>> read_bases(Database& database, const RunId& run);
inline constexpr const char* kDroppedColumns =
    "run, lineage, island, fragment, round, fate, part, from_sequence, to_sequence, tokens, overwritten, held_from";
Result<DroppedRecord> read_dropped(const Statement& row);
inline constexpr const char* kPartColumns = "run, part, position, sequences, owner";
Result<PartRecord> read_part(const Statement& row);
inline constexpr const char* kStretchColumns = "run, part, from_sequence, classes";
Result<StretchRecord> read_stretch(const Statement& row);
inline constexpr const char* kReportColumns =
    "run, island, state, reason, step, tokens, tokens_per_second, compute_seconds, wait_seconds, training_loss, bytes_sent, "
    "bytes_received, agent_memory_bytes, trainer_memory_bytes, carried_tokens, carried_compute_seconds, carried_wait_seconds, "
    "carried_bytes_sent, carried_bytes_received, parameters, metrics";
std::pair<IslandId, IslandReport> read_report(const Statement& row);
Counters read_carried(const Statement& row);

inline constexpr const char* kTaskColumns =
    "run, task, state, island, starts, result, result_bytes, facts, checkpoint, checkpoint_bytes, checkpoint_step, started_ms, ended_ms, "
    "group_run, "
    "members";
Result<TaskRecord> read_task(const Statement& row);

inline constexpr const char* kRemovedColumns = "run, name, removed_ms, epoch, round";
Result<RemovedRecord> read_removed(const Statement& row);

}  // namespace atl::coordinator
