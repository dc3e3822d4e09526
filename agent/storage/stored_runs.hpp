// What an agent finds of its runs when it starts.
// Threads: plain values.
#pragma once

#include <vector>

#include "agent/core/core.hpp"
#include "transport/base/disk.hpp"

namespace atl::agent {

// The checkpoints of each run below the folder, oldest first, the newest of each verified; and runs of phases of which there is content.
std::vector<StoredRun> stored_runs(const DiskPath& runs);

}  // namespace atl::agent
