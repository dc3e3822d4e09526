// The table [notify] of coordinator.toml: where web hooks are posted, and which.
// Threads: reads the file system.
#pragma once

#include <filesystem>

#include "coordinator/service/notifier.hpp"
#include "transport/base/result.hpp"

namespace atl {

// Without the table the settings are empty: nobody is told. Errors: invalid_argument with file, line and the nearest key; not_found, io.
Result<coordinator::NotifySettings> read_notify_settings(const std::filesystem::path& path);

}  // namespace atl
