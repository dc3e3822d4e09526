// Whether a coordinator's state, or a backup of it, is sound: everything in it is read.
// Threads: any.
#pragma once

#include <cstdint>
#include <filesystem>

#include "transport/base/result.hpp"

namespace atl::coordinator {

struct CheckFacts {
  std::uint64_t rows = 0;  // read and found sound
  std::uint64_t runs = 0;
  std::uint64_t islands = 0;  // enrolled, not revoked
  std::string generation;     // how often this store was restored and started: "1.4"
};

// Of a state directory whose coordinator does not run: its settings, its keys, its ledger with every row and index, and that the newest
// round of each run that goes on is the one that the run has. Changes nothing. Errors: not_found (no coordinator there, or a file is
// missing), conflict (it runs; the key is another one), corrupt, io.
Result<CheckFacts> check_state(const std::filesystem::path& state);
// Of a backup (`atoll coordinator backup`), by a copy beside it in the system's folder for temporary files. Errors: as above.
Result<CheckFacts> check_backup(const std::filesystem::path& file);

}  // namespace atl::coordinator
