// The built-in trainer's module, found and loaded at run time: `atoll` itself links no LibTorch.
// Threads: any; loading twice gives the same module.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/line/command_line.hpp"
#include "transport/base/result.hpp"

namespace atl {

// Where the module is looked for, in order: $ATOLL_TRAINER_MODULE alone if it is set; else beside the executable, then in
// its ../lib/atoll and in the installation's library folder.
std::vector<std::filesystem::path> trainer_module_places(const Environment& environment);

// Loads the module and calls its entry with argv = name, arguments…; the value is its exit code.
// Errors: not_found, naming the places, if there is no module; unavailable if it cannot be loaded (LibTorch is missing) or
// lacks the entry.
Result<int> call_trainer_module(const Environment& environment, const std::string& entry, const std::string& name,
                                const std::vector<std::string>& arguments);

}  // namespace atl
