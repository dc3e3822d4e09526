// The ledger's tables. Each row carries a sum over its values, so that a byte that changes on the disk is noticed.
//
// The sum is a generated column, row_sum: the first eight bytes of SHA-256 over the row's values, each with its type and length. SQLite
// computes it with the function of the same name that Database::open provides (database.hpp) whenever a row is written, and stores it. So
// no writer can forget it, and a program without that function (the sqlite3 shell) can read the ledger but not change it. Threads: pure
// functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "coordinator/ledger/database.hpp"
#include "transport/base/result.hpp"

namespace atl::coordinator {

// Of the files that this program writes and reads (PRAGMA user_version). There is no way from another version: none was released.
inline constexpr std::uint64_t kSchemaVersion = 17;

struct Table {
  std::string_view name;
  std::string_view columns;  // as SQL: name, type and constraints of each, separated by commas
  std::string_view key;      // its primary key's columns, by which people find a row
  bool rowid = false;        // the key is SQLite's own number
};

std::span<const Table> ledger_tables();

// Makes all tables in an empty database. Errors: as Database::execute.
Status create_tables(Database& database);

// Reads every row of every table and every index. Errors: corrupt, naming the first table, how many of its rows are damaged, and the key of
// one of them; as Statement::row. Cost: about a microsecond for each 300 bytes.
Status verify_rows(Database& database);

}  // namespace atl::coordinator
