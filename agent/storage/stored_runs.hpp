// What an agent finds of its runs when it starts.
// Threads: plain values.
#pragma once

#include <vector>

#include "agent/core/core.hpp"
#include "transport/base/disk.hpp"

namespace atl::agent {

// Under this name a run's folder lies beside the others while it is being removed.
std::string doomed_name(const RunId& run);
// Of all files in the folder, and in those in it. Cost: looks at each.
std::uint64_t bytes_below(const DiskPath& folder);

// Removes what a crash left of runs that were being removed.
void remove_doomed(const DiskPath& runs);

// The checkpoints of each run below the folder, oldest first, the newest of each verified; and runs of phases of which there is content.
std::vector<StoredRun> stored_runs(const DiskPath& runs);

}  // namespace atl::agent
