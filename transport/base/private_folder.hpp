// Folders that are their owner's alone: state directories hold keys.
// Threads: any.
#pragma once

#include <filesystem>

#include "transport/base/result.hpp"

namespace atl {

// Makes a folder and those above it that are missing, each with mode 0700 whatever the umask says. One that is there stays as it is.
// Errors: io naming the folder, and how to choose another one.
Status make_private_folders(const std::filesystem::path& folder);

}  // namespace atl
