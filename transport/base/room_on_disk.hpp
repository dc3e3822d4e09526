// Writing when a process begins: a full disk is waited for, and said, instead of ending the process.
// Threads: any.
#pragma once

#include <filesystem>
#include <functional>

#include "transport/base/result.hpp"

namespace atl {

// Does `write`, and again every second for as long as it fails and the disk of `folder` (or of the nearest folder above it that is there)
// has no room. Says so once, and once it goes on. Errors: those of write that have another cause; cancelled once stop_fd is readable.
Status once_there_is_room(const std::filesystem::path& folder, int stop_fd, const std::function<Status()>& write);

}  // namespace atl
