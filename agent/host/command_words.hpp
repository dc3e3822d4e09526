// The words of a command that a person wrote, split as a shell would (spaces, '…', "…", a backslash). No shell ever sees it: no variable,
// glob or pipe means anything.
// Threads: pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "transport/base/result.hpp"

namespace atl {

// Errors: invalid_argument for a quote that does not end, or no word at all.
Result<std::vector<std::string>> split_command(std::string_view text);

}  // namespace atl
