// Runs that operators removed: with the row that says so every other row of the run goes.
#include <array>
#include <string>

#include "coordinator/ledger/record_rows.hpp"
#include "coordinator/ledger/schema.hpp"

namespace atl::coordinator {

Status write_row(Database& database, const RemovedRecord& removed) {
  if (removed.lifted) {
    return database.prepare("DELETE FROM removed WHERE run=?").bind(removed.run.text).run();
  }
  for (const Table& table : ledger_tables()) {
    if (table.columns.find("run TEXT NOT NULL, ") != std::string_view::npos && table.name != "removed") {
      ATOLL_TRY(database.prepare("DELETE FROM " + std::string(table.name) + " WHERE run=?").bind(removed.run.text).run());
    }
  }
  return database.prepare(std::string("INSERT OR REPLACE INTO removed(") + kRemovedColumns + ") VALUES(?,?,?,?,?)")
      .bind(removed.run.text)
      .bind(removed.name)
      .bind(unix_ms(removed.time))
      .bind(removed.epoch.value)
      .bind(removed.round.value)
      .run();
}

Result<RemovedRecord> read_removed(const Statement& row) {
  return RemovedRecord{RunId(row.text(0)), row.text(1), from_unix_ms(row.integer(2)), Epoch(row.number(3)), Round(row.number(4))};
}

}  // namespace atl::coordinator
