// The paths between a coordinator's islands, measured because an operator asks for it: `doctor --probe`, `plan --probe`.
// Threads: one; asks the coordinator, and waits.
#pragma once

#include <iosfwd>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/link/coordinator_client.hpp"

namespace atl {

// Has the connected islands measure every path between them for so long, says on `err` how long that takes, and waits for it. The
// document `islands` afterwards; paths of which nothing came have figures of none.
// Errors: invalid_argument for a time that is too short or too long; those of the coordinator.
Result<nlohmann::json> measure_paths(CoordinatorClient& client, Duration each, std::ostream& err);

struct PathFigures {
  std::string from;
  std::string to;
  std::optional<double> bits_per_second;
  std::optional<double> round_trip_ms;
};
// What such a document has of measured paths: the slowest first, those of which nothing came before them.
std::vector<PathFigures> measured_figures(const nlohmann::json& islands);

}  // namespace atl
