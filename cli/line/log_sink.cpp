#include "cli/line/log_sink.hpp"

#include <signal.h>
#include <spdlog/async_logger.h>
#include <spdlog/details/thread_pool.h>
#include <spdlog/sinks/ostream_sink.h>

#include <algorithm>
#include <atomic>
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

// The thread that writes what is logged beside; none where lines are written at once. Destroying it waits until all is written.
class Writer {
 public:
  explicit Writer(LogWrites writes) {
    if (writes == LogWrites::beside) {
      sigset_t all;
      sigset_t before;
      ::sigfillset(&all);
      ::pthread_sigmask(SIG_SETMASK, &all, &before);
      pool_ = std::make_shared<spdlog::details::thread_pool>(kMostWaiting, 1);
      ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }
  }

  [[nodiscard]] std::shared_ptr<spdlog::logger> logger(spdlog::sink_ptr sink) const {
    if (!pool_) {
      return std::make_shared<spdlog::logger>("atoll", std::move(sink));
    }
    return std::make_shared<spdlog::async_logger>("atoll", std::move(sink), pool_, spdlog::async_overflow_policy::overrun_oldest);
  }

  // How many lines made room since it was last asked, once there is room again.
  std::size_t lost() {
    if (!pool_ || pool_->queue_size() > kMostWaiting / 2) {
      return 0;
    }
    const std::size_t all = pool_->overrun_counter();
    return all - std::min(all, told_.exchange(all));
  }

 private:
  static constexpr std::size_t kMostWaiting = 4096;
  std::shared_ptr<spdlog::details::thread_pool> pool_;
  std::atomic<std::size_t> told_ = 0;
};

}  // namespace

void install_log_sink(std::ostream& err, LogLevel least, bool json, LogWrites writes) {
  auto writer = std::make_shared<Writer>(writes);
  auto logger = writer->logger(std::make_shared<spdlog::sinks::ostream_sink_mt>(err, true));
  logger->set_pattern(json ? "%v" : "%H:%M:%S %v");
  logger->set_level(level_of(least));
  logger->set_error_handler([](const std::string&) {});  // a closed stderr is no reason to stop
  const auto write = [logger, json](LogLevel level, std::string_view line) {
    const std::string text =
        json ? json_entry(level, line) : (level == LogLevel::info ? "" : std::string(to_string(level)) + ": ") + printable(line, 4000);
    logger->log(level_of(level), "{}", text);
  };
  set_log_sink([logger, writer, write, repeated = std::make_shared<Repeated>()](LogLevel level, std::string_view said) {
    if (!logger->should_log(level_of(level))) {
      return;
    }
    if (const std::size_t lost = writer->lost(); lost > 0) {
      write(LogLevel::warning, "the log is written too slowly where it goes: " + std::to_string(lost) + " lines were left out");
    }
    if (const std::optional<std::string> line = repeated->pass(level, said)) {
      write(level, *line);
    }
  });
}

}  // namespace atl
