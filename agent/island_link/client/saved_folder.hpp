// The folder that a trainer saves its state in, whole or not at all.
//
// A trainer writes into NAME.writing; then every file is synced, the counters go beside them as `atoll-counts.json`, and the folder takes
// its name by one rename. A crash leaves the old folder or none, and never half a state. The agent's checkpoint holds the digests.
// Threads: plain functions.
#pragma once

#include <string>
#include <string_view>

#include "transport/base/result.hpp"

namespace atl::island_link {

// Makes the folder to write into, empty; its path. Errors: io.
Result<std::string> begin_saving(const std::string& directory);
// All is written: syncs it and gives it its name. Errors: io; nothing is left behind then.
Status finish_saving(const std::string& directory, std::string_view counts);
// Gives it up.
void abandon_saving(const std::string& directory);
// The counters of a saved folder; empty if it has none. Errors: io.
Result<std::string> saved_counts(const std::string& directory);

}  // namespace atl::island_link
