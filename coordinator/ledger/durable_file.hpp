// A small file that appears whole or not at all, readable by its owner only.
// Threads: any.
#pragma once

#include <filesystem>
#include <string_view>

#include "transport/base/result.hpp"

namespace atl::coordinator {

// Writes beside it, syncs, renames. Errors: io.
Status write_durable(const std::filesystem::path& path, std::string_view text);

}  // namespace atl::coordinator
