// A trainer that is a script of the shell, and its end.
#pragma once

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "agent/host/trainer_host.hpp"

namespace atl {

inline TrainerCommand shell(const std::string& script) {
  TrainerCommand command;
  command.program = "/bin/sh";
  command.arguments = {"-c", script};
  command.folder = "/";
  return command;
}

// Its exit, by the host's own times and descriptors; nothing after 20 seconds.
inline std::optional<TrainerExit> wait_for_exit(TrainerHost& host) {
  const TimePoint until = now() + std::chrono::seconds(20);
  while (now() < until) {
    if (std::optional<TrainerExit> exit = host.pump(now())) {
      return exit;
    }
    std::vector<pollfd> fds;
    for (const int fd : host.watch_fds()) {
      fds.push_back({fd, POLLIN, 0});
    }
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(host.next_check() - now());
    ::poll(fds.data(), fds.size(), std::max(0, static_cast<int>(wait.count())));
  }
  return std::nullopt;
}

}  // namespace atl
