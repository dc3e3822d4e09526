#include "cli/line/log_sink.hpp"

#include <spdlog/logger.h>
#include <spdlog/sinks/ostream_sink.h>

#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "cli/views/parts/printable.hpp"
#include "transport/base/log_limit.hpp"
#include "transport/base/time.hpp"

namespace atl {
namespace {

spdlog::level::level_enum level_of(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warning:
      return spdlog::level::warn;
    case LogLevel::error:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

std::string json_entry(LogLevel level, std::string_view line) {
  const nlohmann::json object = {{"time", iso_time(now())}, {"level", to_string(level)}, {"line", line}};
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Warnings that say the same again and again: the first few of a minute pass, the rest are counted.
class Repeated {
 public:
  std::optional<std::string> pass(LogLevel level, std::string_view line) {
    if (level != LogLevel::warning && level != LogLevel::error) {
      return std::string(line);
    }
    const std::scoped_lock lock(mutex_);
    if (limits_.size() >= kMostLines && !limits_.contains(line)) {
      limits_.clear();
    }
    return limits_.try_emplace(std::string(line)).first->second.pass(now(), std::string(line));
  }

 private:
  static constexpr std::size_t kMostLines = 256;
  std::mutex mutex_;
  std::map<std::string, LogLimit, std::less<>> limits_;
};

}  // namespace

void install_log_sink(std::ostream& err, LogLevel least, bool json) {
  auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(err, true);
  auto logger = std::make_shared<spdlog::logger>("atoll", std::move(sink));
  logger->set_pattern(json ? "%v" : "%H:%M:%S %v");
  logger->set_level(level_of(least));
  logger->set_error_handler([](const std::string&) {});  // a closed stderr is no reason to stop
  set_log_sink([logger, json, repeated = std::make_shared<Repeated>()](LogLevel level, std::string_view said) {
    if (!logger->should_log(level_of(level))) {
      return;
    }
    if (const std::optional<std::string> line = repeated->pass(level, said)) {
      const std::string text =
          json ? json_entry(level, *line) : (level == LogLevel::info ? "" : std::string(to_string(level)) + ": ") + printable(*line, 4000);
      logger->log(level_of(level), "{}", text);
    }
  });
}

}  // namespace atl
