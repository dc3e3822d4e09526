#include "agent/service/leave_watch.hpp"

#include <algorithm>
#include <fstream>
#include <system_error>
#include <utility>

#include "agent/host/trainer_host.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/log.hpp"
#include "transport/base/plain_text.hpp"

namespace atl::agent {
namespace {

constexpr Duration kLookAtRunning = std::chrono::milliseconds(100);
constexpr std::size_t kLongestReason = 200;

std::string reason_of(const std::string& source, std::string line) {
  line = make_plain(line, TextRule::name, kLongestReason);
  return line.empty() ? source : source + ": " + line;
}

}  // namespace

LeaveWatch::LeaveWatch(LeaveWatchSettings settings) : settings_(std::move(settings)) {}
LeaveWatch::~LeaveWatch() = default;

std::optional<std::string> LeaveWatch::pump(TimePoint now, bool busy) {
  if (told_) {
    return std::nullopt;
  }
  std::optional<std::string> why = look_at_file(now);
  if (!why) {
    why = look_at_command(now);
  }
  if (!why) {
    why = look_at_idleness(now, busy);
  }
  if (why) {
    told_ = true;
    running_.reset();
  }
  return why;
}

std::optional<TimePoint> LeaveWatch::next_check() const {
  std::optional<TimePoint> next;
  if (told_) {
    return next;
  }
  if (!settings_.file.empty()) {
    next = next_file_;
  }
  if (!settings_.command.empty()) {
    next = next ? std::min(*next, next_command_) : next_command_;
  }
  if (settings_.idle && idle_since_) {
    const TimePoint enough = *idle_since_ + *settings_.idle;
    next = next ? std::min(*next, enough) : enough;
  }
  return next;
}

std::optional<std::string> LeaveWatch::look_at_idleness(TimePoint now, bool busy) {
  idle_since_ = busy ? std::nullopt : std::optional(idle_since_.value_or(now));
  if (!settings_.idle || busy || now < *idle_since_ + *settings_.idle) {
    return std::nullopt;
  }
  return "it had nothing to do for " + human_duration(*settings_.idle);
}

std::optional<std::string> LeaveWatch::look_at_file(TimePoint now) {
  std::error_code failure;
  if (settings_.file.empty() || now < next_file_) {
    return std::nullopt;
  }
  next_file_ = now + settings_.file_every;
  if (!std::filesystem::exists(settings_.file, failure)) {
    return std::nullopt;
  }
  std::string line;
  std::getline(std::ifstream(settings_.file), line);
  return reason_of("the file " + settings_.file.string() + " is there", line);
}

void LeaveWatch::start_command(TimePoint now) {
  TrainerCommand command;
  command.program = "/bin/sh";
  command.arguments = {"-c", settings_.command};
  command.folder = settings_.folder;
  first_line_ = std::make_shared<std::string>();
  command.on_line = [first = first_line_](const std::string& line) { *first = first->empty() ? line : *first; };
  Result<TrainerHost> host = TrainerHost::start(std::move(command), now);
  if (host) {
    running_ = std::make_unique<TrainerHost>(*std::move(host));
  } else if (!std::exchange(complained_, true)) {
    log_warning("the leave command cannot be run: " + host.error().why);
  }
}

std::optional<std::string> LeaveWatch::look_at_command(TimePoint now) {
  if (settings_.command.empty() || now < next_command_) {
    return std::nullopt;
  }
  if (!running_) {
    start_command(now);
    next_command_ = now + (running_ ? kLookAtRunning : settings_.command_every);
    return std::nullopt;
  }
  const std::optional<TrainerExit> exit = running_->pump(now);
  next_command_ = now + (exit ? settings_.command_every : kLookAtRunning);
  if (!exit) {
    return std::nullopt;
  }
  running_.reset();
  if (exit->status == 0 && exit->signal == 0) {
    return reason_of("the leave command says so", *first_line_);
  }
  return std::nullopt;
}

}  // namespace atl::agent
