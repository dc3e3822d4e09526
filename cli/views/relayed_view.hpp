// The pairs of a run's islands whose data do not go directly: what `status` shows beside the run.
// Threads: pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace atl {

// Of the document's "run", a line for each pair: "reef and shoal exchange over relay frankfurt, 45 Mbit/s", or "through punched holes".
// None: all exchange directly.
std::vector<std::string> relayed_lines(const nlohmann::json& run);

}  // namespace atl
