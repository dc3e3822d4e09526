#include "transport/base/log.hpp"

#include <cstdio>
#include <memory>
#include <mutex>
#include <utility>

namespace atl {
namespace {

std::mutex sink_mutex;
std::shared_ptr<const LogSink> sink;  // guarded by sink_mutex

}  // namespace

std::string_view to_string(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return "debug";
    case LogLevel::info:
      return "info";
    case LogLevel::warning:
      return "warning";
    case LogLevel::error:
      return "error";
  }
  return "error";
}

void set_log_sink(LogSink replacement) {
  const std::lock_guard lock(sink_mutex);
  sink = replacement ? std::make_shared<const LogSink>(std::move(replacement)) : nullptr;
}

void log(LogLevel level, std::string_view line) {
  std::shared_ptr<const LogSink> present;
  {
    const std::lock_guard lock(sink_mutex);
    present = sink;
  }
  if (present) {
    (*present)(level, line);
    return;
  }
  if (level != LogLevel::debug) {
    std::fprintf(stderr, "%s: %.*s\n", std::string(to_string(level)).c_str(), static_cast<int>(line.size()), line.data());
  }
}

}  // namespace atl
