// A program of the caller's own that writes an exported model in another format.
// Threads: the calling one, which waits for the program.
#pragma once

#include <filesystem>
#include <string>

#include "transport/base/result.hpp"

namespace atl {

// Runs `command`, split into words as agent/host/trainer_programs.hpp says, with two more arguments: the safetensors file `from`, and the
// path `to` that it is to write. Its output is the caller's. A program without a slash is looked up in `search_path`.
// Errors: invalid_argument or not_found for the command; io when it ends with another status than 0, or wrote nothing.
Status convert_model(const std::string& command, const std::string& search_path, const std::filesystem::path& from,
                     const std::filesystem::path& to);

}  // namespace atl
