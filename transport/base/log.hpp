// The log: one line per thing a person should know, with where it happened.
//
// Layers write through `log(...)`; the executable installs a sink (spdlog, a test's vector). Without a sink lines go to
// stderr. Lines are lower case and name run and island where there are any.
// Threads: any.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace atl {

enum class LogLevel { debug, info, warning, error };

std::string_view to_string(LogLevel level);

using LogSink = std::function<void(LogLevel, std::string_view line)>;

// Replaces the sink; an empty function restores stderr.
void set_log_sink(LogSink sink);
void log(LogLevel level, std::string_view line);

inline void log_debug(std::string_view line) { log(LogLevel::debug, line); }
inline void log_info(std::string_view line) { log(LogLevel::info, line); }
inline void log_warning(std::string_view line) { log(LogLevel::warning, line); }
inline void log_error(std::string_view line) { log(LogLevel::error, line); }

}  // namespace atl
