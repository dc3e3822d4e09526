// What the newest runs measured, for a plan of the next one.
// Threads: one; asks the coordinator.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "cli/link/coordinator_client.hpp"

namespace atl {

// The status documents of the ten newest runs, newest first. Errors: those of CoordinatorClient::ask.
Result<std::vector<nlohmann::json>> newest_statuses(CoordinatorClient& client);

}  // namespace atl
