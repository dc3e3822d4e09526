// The view of `submit --dry-run`.
// Threads: pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cli/views/parts/terminal.hpp"

namespace atl {

// Which islands would take part and what is missing, and below it the plan, or why there is none (`plan` and `no_plan` of the document).
std::string render_rehearsal(const nlohmann::json& document, const Terminal& terminal);

}  // namespace atl
