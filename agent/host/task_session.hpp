// One task of a run of phases from its start to its end: the trainer's process and what it says over the island link.
//
// Speaks `task`, `task_progress`, `task_saved`, `task_done` and `failed` (agent/island_link/README.md) on the agent's side and turns them
// into the core's events. A trainer that says nothing for a long time is killed by its host. Threads: one, that of the driver.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/core/effect.hpp"
#include "agent/core/event.hpp"
#include "agent/host/trainer_host.hpp"
#include "agent/host/trainer_session.hpp"
#include "agent/island_link/agent_end.hpp"
#include "transport/base/result.hpp"
#include "transport/base/time.hpp"

namespace atl::agent {

class TaskSession {
 public:
  // The inputs and what to resume from must be held (content_shelf.hpp). Errors: those of TrainerHost and AgentEnd; io.
  static Result<std::unique_ptr<TaskSession>> start(const StartTask& order, const std::vector<std::filesystem::path>& files,
                                                    const SessionSettings& settings, TimePoint now);

  [[nodiscard]] std::vector<int> watch_fds() const;
  [[nodiscard]] TimePoint next_check() const;
  // Reads what came, notices its end. Call when a descriptor is readable, and at next_check.
  std::vector<Event> pump(TimePoint now);
  // Asks it to end; its end is not an event. Safe to call again.
  void stop(const std::string& why, TimePoint now);
  [[nodiscard]] bool ended() const { return ended_; }
  [[nodiscard]] const RunId& run() const { return order_.run; }
  [[nodiscard]] std::uint64_t resident_bytes() const { return host_.resident_bytes(); }

 private:
  TaskSession(StartTask order, island_link::Task task, island_link::AgentEnd link, TrainerHost host);
  void hear(const island_link::TrainerMessage& message, TimePoint now, std::vector<Event>& out);
  void read_link(TimePoint now, std::vector<Event>& out);

  StartTask order_;
  island_link::Task task_;  // said when the trainer has said hello
  island_link::AgentEnd link_;
  TrainerHost host_;
  std::string island_;  // its name, for messages
  DiskPath picture_;    // of images that the trainer drew
  std::optional<TimePoint> stopping_;
  bool ended_ = false;
  std::optional<std::string> failure_;  // what it said before it ended
};

}  // namespace atl::agent
