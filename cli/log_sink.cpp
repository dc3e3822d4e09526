#include "cli/log_sink.hpp"

#include <memory>
#include <nlohmann/json.hpp>
#include <spdlog/logger.h>
#include <spdlog/sinks/ostream_sink.h>

#include "cli/views/printable.hpp"
#include "transport/base/time.hpp"

namespace atl {
namespace {

spdlog::level::level_enum level_of(LogLevel level) {
  switch (level) {
    case LogLevel::debug: return spdlog::level::debug;
    case LogLevel::info: return spdlog::level::info;
    case LogLevel::warning: return spdlog::level::warn;
    case LogLevel::error: return spdlog::level::err;
  }
  return spdlog::level::err;
}

std::string json_line(LogLevel level, std::string_view line) {
  const nlohmann::json object = {{"time", iso_time(now())}, {"level", to_string(level)}, {"line", line}};
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

void install_log_sink(std::ostream& err, LogLevel least, bool json) {
  auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(err, true);
  auto logger = std::make_shared<spdlog::logger>("atoll", std::move(sink));
  logger->set_pattern(json ? "%v" : "%H:%M:%S %v");
  logger->set_level(level_of(least));
  logger->set_error_handler([](const std::string&) {});  // a closed stderr is no reason to stop
  set_log_sink([logger, json](LogLevel level, std::string_view line) {
    if (logger->should_log(level_of(level))) {
      const std::string text =
          json ? json_line(level, line) : (level == LogLevel::info ? "" : std::string(to_string(level)) + ": ") + printable(line, 4000);
      logger->log(level_of(level), "{}", text);
    }
  });
}

}  // namespace atl
