// The pairs of islands whose data do not go directly, and why: what `status`, `islands` and `doctor` show beside them.
// Threads: pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace atl {

// Of the document's "run", a line for each pair: "reef and shoal exchange over relay frankfurt, 45 Mbit/s: neither can dial the other, and
// …", or "through punched holes". None: all exchange directly.
std::vector<std::string> relayed_lines(const nlohmann::json& run);

// The same of the document of all islands, without a rate.
std::vector<std::string> indirect_lines(const nlohmann::json& islands);

}  // namespace atl
