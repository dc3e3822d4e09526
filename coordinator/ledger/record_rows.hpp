// Records as rows of the ledger: the columns of each kind stand once, for its writer, its reader and its queries.
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

// What an island said of itself last, and what it had counted before it began to count again.
struct ReportRow {
  IslandId island;
  IslandReport report;
  Counters carried;
};
Status write_row(Database& database, const ReportRow& row);

// For RunRecord, MembershipRecord, EpochRecord, IslandRecord, RoundRecord, DroppedRecord, PartRecord, StretchRecord, TaskRecord,
// RemovedRecord and ReportRow:
template <typename Record>
std::string columns_of();  // "run, name, …"
template <typename Record>
std::string select(const std::string& rest = {});  // "SELECT run, name, … FROM runs " and the rest
// A row of such a query, and all that are left of one. Errors: corrupt for a value that no writer wrote.
template <typename Record>
Result<Record> read_row(const Statement& statement);
template <typename Record>
Result<std::vector<Record>> read_rows(Statement rows);

// The round with which each of the run's lineages after the first one began.
Result<std::map<std::uint32_t, Round>> read_bases(Database& database, const RunId& run);

}  // namespace atl::coordinator
