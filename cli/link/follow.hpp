// Following a run: its events as they come, and the exit code of how it ended.
// Threads: one.
#pragma once

#include <optional>
#include <string>

#include "cli/line/command.hpp"
#include "cli/line/interrupt.hpp"
#include "cli/link/coordinator_client.hpp"

namespace atl {

struct FollowOptions {
  std::string run;
  std::string island;  // only this island's; empty: all
  std::optional<std::int64_t> since_unix_ms;
  bool until_end = true;                 // false: what there is now
  bool tape = false;                     // the debug events too: every decision
  const Interrupt* interrupt = nullptr;  // what ends it early, with cancelled
};

// Prints the run's events (JSON lines with --json) until it has ended. The value is the run's last state. Errors: those of the coordinator;
// cancelled once the interrupt came.
Result<std::string> follow_events(const Invocation& invocation, CoordinatorClient& client, const FollowOptions& options);

// 0 completed, 1 failed, 6 cancelled.
[[nodiscard]] Exit exit_for_state(const std::string& state);

}  // namespace atl
