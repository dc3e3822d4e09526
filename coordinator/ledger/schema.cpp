#include "coordinator/ledger/schema.hpp"

#include <algorithm>
#include <array>

namespace atl::coordinator {
namespace {

constexpr std::array kTables = {
    // Which store this is: whose, when it was restored and how often it was started since, and the newer generation that an island has met.
    Table{"store",
          "id INTEGER PRIMARY KEY, public_key TEXT NOT NULL, restored INTEGER NOT NULL, starts INTEGER NOT NULL, "
          "newer_restored INTEGER, newer_starts INTEGER, newer_island TEXT, newer_ms INTEGER",
          "id", true},
    Table{"runs",
          "run TEXT NOT NULL, name TEXT NOT NULL, file TEXT NOT NULL, spec TEXT NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL, "
          "reason_since_ms INTEGER NOT NULL, reason_until_ms INTEGER, error_code TEXT, error_why TEXT, submitted_ms INTEGER NOT NULL, "
          "started_ms INTEGER, ended_ms INTEGER, epoch INTEGER NOT NULL, lineage INTEGER NOT NULL, initialised INTEGER NOT NULL, "
          "committed INTEGER NOT NULL, digest BLOB NOT NULL, tokens INTEGER NOT NULL, pause_after INTEGER, "
          "restored INTEGER NOT NULL DEFAULT 0, enough TEXT NOT NULL DEFAULT '', copied INTEGER NOT NULL DEFAULT 0, "
          "decided_restored INTEGER NOT NULL DEFAULT 0, decided_starts INTEGER NOT NULL DEFAULT 0, decided_life INTEGER NOT NULL DEFAULT 0",
          "run"},
    Table{
        "memberships",
        "run TEXT NOT NULL, island TEXT NOT NULL, part INTEGER NOT NULL, state TEXT NOT NULL, cause TEXT NOT NULL, absences TEXT NOT NULL, "
        "offences INTEGER NOT NULL DEFAULT 0, left_epoch INTEGER NOT NULL DEFAULT 0",
        "run, island"},
    Table{"epochs",
          "run TEXT NOT NULL, epoch INTEGER NOT NULL, time_ms INTEGER NOT NULL, committed INTEGER NOT NULL, members TEXT NOT NULL, "
          "why TEXT NOT NULL, avoid TEXT NOT NULL DEFAULT '[]'",
          "run, epoch"},
    Table{"islands",
          "island TEXT NOT NULL, name TEXT NOT NULL, public_key TEXT NOT NULL, bulk_address TEXT NOT NULL, version TEXT NOT NULL, "
          "platform TEXT NOT NULL, data_sets TEXT NOT NULL, boot INTEGER NOT NULL, last_hello_ms INTEGER NOT NULL",
          "island"},
    // With `data` the samples that a round counts, with `parts` how far each part of the data is.
    Table{"rounds",
          "run TEXT NOT NULL, lineage INTEGER NOT NULL, round INTEGER NOT NULL, epoch INTEGER NOT NULL, attempt INTEGER NOT NULL, "
          "committed INTEGER NOT NULL, checkpoint INTEGER NOT NULL, members TEXT NOT NULL, tokens TEXT NOT NULL, digest BLOB NOT NULL, "
          "planned_ms INTEGER NOT NULL, committed_ms INTEGER, data TEXT NOT NULL DEFAULT '[]', parts TEXT NOT NULL DEFAULT '[]', "
          "fragment INTEGER NOT NULL DEFAULT 0, steps TEXT NOT NULL DEFAULT '[]', norms TEXT NOT NULL DEFAULT '[]', "
          "staleness TEXT NOT NULL DEFAULT '[]', overwritten TEXT NOT NULL DEFAULT '[]'",
          "run, lineage, round"},
    // What older rounds counted, many in one row (counted_rounds.hpp).
    Table{"counted", "run TEXT NOT NULL, lineage INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, counts TEXT NOT NULL",
          "run, lineage, first"},
    // Contributions that count in no round. Of older rounds one row for each island and fate, with round 0.
    Table{
        "dropped",
        "run TEXT NOT NULL, lineage INTEGER NOT NULL, island TEXT NOT NULL, fragment INTEGER NOT NULL, round INTEGER NOT NULL, "
        "fate TEXT NOT NULL, part INTEGER NOT NULL, from_sequence INTEGER NOT NULL, to_sequence INTEGER NOT NULL, tokens INTEGER NOT NULL, "
        "overwritten INTEGER NOT NULL, held_from INTEGER NOT NULL",
        "run, lineage, island, round, fate"},
    Table{"events",
          "sequence INTEGER PRIMARY KEY AUTOINCREMENT, time_ms INTEGER NOT NULL, run TEXT NOT NULL, island TEXT NOT NULL, "
          "level TEXT NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL, fields TEXT NOT NULL",
          "sequence", true},
    Table{"metrics",
          "run TEXT NOT NULL, island TEXT NOT NULL, round INTEGER NOT NULL, time_ms INTEGER NOT NULL, step INTEGER NOT NULL, "
          "training_loss REAL, outer_loss REAL, local_loss REAL, norm REAL, wait_seconds REAL, tokens INTEGER NOT NULL, "
          "bytes_sent INTEGER NOT NULL, bytes_received INTEGER NOT NULL",
          "run, round, island"},
    // The carried columns hold what an island had counted before it began to count again.
    Table{"reports",
          "run TEXT NOT NULL, island TEXT NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL, step INTEGER NOT NULL, tokens INTEGER NOT "
          "NULL, "
          "tokens_per_second REAL, compute_seconds REAL, wait_seconds REAL, training_loss REAL, bytes_sent INTEGER NOT NULL, "
          "bytes_received INTEGER NOT NULL, agent_memory_bytes INTEGER NOT NULL, trainer_memory_bytes INTEGER NOT NULL, "
          "carried_tokens INTEGER NOT NULL DEFAULT 0, carried_compute_seconds REAL NOT NULL DEFAULT 0, "
          "carried_wait_seconds REAL NOT NULL DEFAULT 0, carried_bytes_sent INTEGER NOT NULL DEFAULT 0, "
          "carried_bytes_received INTEGER NOT NULL DEFAULT 0, parameters INTEGER NOT NULL DEFAULT 0, "
          "metrics TEXT NOT NULL DEFAULT '[]'",
          "run, island"},
    Table{"checkpoints",
          "run TEXT NOT NULL, island TEXT NOT NULL, round INTEGER NOT NULL, digest BLOB NOT NULL, file BLOB NOT NULL, "
          "file_bytes INTEGER NOT NULL",
          "run, island, round"},
    Table{"spans",
          "id INTEGER PRIMARY KEY, run TEXT NOT NULL, island TEXT NOT NULL, activity TEXT NOT NULL, round INTEGER NOT NULL, "
          "fragment INTEGER NOT NULL, peer TEXT NOT NULL, start_ns INTEGER NOT NULL, length_ns INTEGER NOT NULL, amount INTEGER NOT NULL, "
          "cause TEXT NOT NULL DEFAULT ''",
          "id", true},
    Table{
        "tasks",
        "run TEXT NOT NULL, task TEXT NOT NULL, state TEXT NOT NULL, island TEXT NOT NULL, starts INTEGER NOT NULL, result BLOB NOT NULL, "
        "result_bytes INTEGER NOT NULL, facts TEXT NOT NULL, checkpoint BLOB NOT NULL, checkpoint_bytes INTEGER NOT NULL, "
        "checkpoint_step INTEGER NOT NULL, started_ms INTEGER, ended_ms INTEGER, group_run TEXT NOT NULL DEFAULT '', "
        "members TEXT NOT NULL DEFAULT '[]'",
        "run, task"},
    Table{"parts", "run TEXT NOT NULL, part INTEGER NOT NULL, position INTEGER NOT NULL, sequences INTEGER NOT NULL, owner TEXT NOT NULL",
          "run, part"},
    // What a part of the data is made of from a sequence on.
    Table{"stretches", "run TEXT NOT NULL, part INTEGER NOT NULL, from_sequence INTEGER NOT NULL, classes TEXT NOT NULL",
          "run, part, from_sequence"},
    // Of runs that operators removed nothing else is left.
    Table{"removed", "run TEXT NOT NULL, name TEXT NOT NULL, removed_ms INTEGER NOT NULL, epoch INTEGER NOT NULL, round INTEGER NOT NULL",
          "run"},
    Table{"keys",
          "public_key TEXT NOT NULL, role TEXT NOT NULL, island TEXT NOT NULL, name TEXT NOT NULL, enrolled_ms INTEGER NOT NULL, "
          "revoked INTEGER NOT NULL",
          "public_key"},
    Table{"tokens",
          "token TEXT NOT NULL, secret BLOB NOT NULL UNIQUE, role TEXT NOT NULL, name TEXT NOT NULL, created_ms INTEGER NOT NULL, "
          "expires_ms INTEGER NOT NULL, used_by TEXT NOT NULL, used_ms INTEGER NOT NULL, revoked INTEGER NOT NULL",
          "token"},
};

constexpr const char* kIndexes = R"sql(
CREATE INDEX checkpointed_rounds ON rounds(run, lineage, round) WHERE checkpoint=1;
CREATE INDEX events_of_run ON events(run, sequence);
CREATE INDEX warnings_of_run ON events(run, sequence) WHERE level IN ('warning', 'error');
CREATE INDEX losses_of_run ON metrics(run, round, outer_loss, local_loss) WHERE outer_loss IS NOT NULL;
CREATE INDEX spans_of_run ON spans(run);
CREATE UNIQUE INDEX spans_once ON spans(run, round, island, start_ns, activity, fragment, peer);
)sql";

// "run, island": the names in a table's columns. A number that SQLite gives itself is not known yet when a sum is computed.
std::string summed_columns(const Table& table) {
  std::string names;
  for (std::size_t at = 0; at < table.columns.size();) {
    const std::size_t end = std::min(table.columns.find(", ", at), table.columns.size());
    const std::string_view column = table.columns.substr(at, end - at);
    if (column.find("PRIMARY KEY") == std::string_view::npos) {
      names += (names.empty() ? "" : ", ") + std::string(column.substr(0, column.find(' ')));
    }
    at = end + 2;
  }
  return names;
}

std::string create(const Table& table) {
  std::string sql = "CREATE TABLE " + std::string(table.name) + "(" + std::string(table.columns) +
                    ", row_sum INTEGER NOT NULL AS (row_sum(" + summed_columns(table) + ")) STORED";
  return sql + (table.rowid ? ");" : ", PRIMARY KEY(" + std::string(table.key) + ")) WITHOUT ROWID;");
}

}  // namespace

std::span<const Table> ledger_tables() { return kTables; }

Status create_tables(Database& database) {
  std::string sql;
  for (const Table& table : kTables) {
    sql += create(table);
  }
  return database.execute(sql + kIndexes);
}

Status verify_rows(Database& database) {
  {
    Statement structure = database.prepare("PRAGMA integrity_check(1)");
    ATOLL_ASSIGN(const bool there, structure.row());
    if (!there || structure.text(0) != "ok") {
      return Error{Code::corrupt, "the ledger is damaged (" + structure.text(0) + ")"};
    }
  }
  for (const Table& table : kTables) {
    const std::string damaged = " FROM " + std::string(table.name) + " WHERE row_sum IS NOT row_sum(" + summed_columns(table) + ")";
    Statement count = database.prepare("SELECT count(*)" + damaged);
    ATOLL_ASSIGN([[maybe_unused]] const bool counted, count.row());
    if (count.number(0) == 0) {
      continue;
    }
    Statement one = database.prepare("SELECT " + std::string(table.key) + damaged + " LIMIT 1");
    ATOLL_ASSIGN(const bool there, one.row());
    return Error{Code::corrupt,
                 "the ledger's table " + std::string(table.name) + " has " + count.text(0) + (count.number(0) == 1 ? " row" : " rows") +
                     " whose values changed on the disk" +
                     (there ? ", the first with " + std::string(table.key.substr(0, table.key.find(','))) + " " + one.text(0) : "")};
  }
  return {};
}

}  // namespace atl::coordinator
