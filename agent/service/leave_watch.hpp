// LeaveWatch: tells when this island's machine is about to be taken away, or is of no use: a spot notice, a shutdown, an owner's own
// reason, nothing to do.
//
// Three ways, in any combination: a file that appears (its first line is the reason), or a command that is run again and again with
// `sh -c` and exits with status 0 once the island has to go (the first line that it prints is the reason). A command that runs
// longer than its interval is not started a second time; it dies with the agent. Or a time in which the island had nothing to train.
// Threads: one, that of the driver; it never blocks.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "transport/base/time.hpp"

namespace atl {
class TrainerHost;
}

namespace atl::agent {

struct LeaveWatchSettings {
  std::filesystem::path file;         // empty: none
  std::string command;                // empty: none
  std::filesystem::path folder;       // where the command runs; must exist
  std::optional<Duration> idle = {};  // without anything to do; nothing: for ever
  Duration file_every = std::chrono::milliseconds(500);
  Duration command_every = std::chrono::seconds(5);
};

class LeaveWatch {
 public:
  explicit LeaveWatch(LeaveWatchSettings settings);
  ~LeaveWatch();
  LeaveWatch(const LeaveWatch&) = delete;
  LeaveWatch& operator=(const LeaveWatch&) = delete;

  // Why the island has to leave, once; empty: it need not yet. busy: it trains, or is about to. Cost: a stat, seldom a process.
  std::optional<std::string> pump(TimePoint now, bool busy = false);
  // When to pump again at the latest; empty: never.
  [[nodiscard]] std::optional<TimePoint> next_check() const;

 private:
  [[nodiscard]] std::optional<std::string> look_at_file(TimePoint now);
  [[nodiscard]] std::optional<std::string> look_at_command(TimePoint now);
  [[nodiscard]] std::optional<std::string> look_at_idleness(TimePoint now, bool busy);
  void start_command(TimePoint now);

  LeaveWatchSettings settings_;
  bool told_ = false;
  TimePoint next_file_{};
  TimePoint next_command_{};
  std::unique_ptr<TrainerHost> running_;
  std::shared_ptr<std::string> first_line_;
  bool complained_ = false;
  std::optional<TimePoint> idle_since_;  // nothing: it was busy when it was last asked
};

}  // namespace atl::agent
