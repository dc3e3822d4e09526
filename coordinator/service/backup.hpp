// A backup of a coordinator in one file: the ledger as it is at one instant, and the coordinator's key.
//
// It is taken while the coordinator runs, by another process (SQLite's online backup of a WAL database is one consistent read).
// With it a coordinator is made on another machine that islands recognise: only its address is new to them. The file holds the
// secret key, so it is written readable by its owner only.
// What was committed after the backup is not in it: a run that goes on from it takes over the rounds that its islands agree on
// (decide_adoption).
// Threads: any; each call has its own database connection.
#pragma once

#include <cstdint>
#include <filesystem>

#include "coordinator/service/init.hpp"
#include "transport/base/result.hpp"

namespace atl::coordinator {

struct BackupFacts {
  std::uint64_t bytes = 0;
  std::uint64_t runs = 0;
  std::uint64_t islands = 0;  // that are admitted
};

// Errors: not_found (no coordinator in `state`), conflict (`file` exists: a backup never overwrites), io, corrupt.
Result<BackupFacts> write_backup(const std::filesystem::path& state, const std::filesystem::path& file);

// Makes a coordinator's state directory from a backup, as init_coordinator does from nothing.
// Errors: those of init_coordinator; not_found or corrupt when `file` is no backup. After an error `state` may hold parts; another try
// completes it.
Status init_from_backup(const std::filesystem::path& file, const std::filesystem::path& state, const CoordinatorSettings& settings);

}  // namespace atl::coordinator
