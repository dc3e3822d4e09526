// The sync engine on a thread of its own, so that no arithmetic and no disk keeps the agent from its heartbeats.
//
// Commands go in by `post`, in order; answers come out by `take_answer`, `fd` being readable while there are some. The thread sleeps in
// one poll over the command queue and the bulk link. A second one writes checkpoints.
// Threads: any may call.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <thread>

#include "agent/engine/sync_engine.hpp"
#include "agent/service/side_thread.hpp"
#include "agent/service/value_queue.hpp"

namespace atl::agent {

class EngineThread {
 public:
  // Takes the link over and starts the thread.
  EngineThread(EngineSettings settings, std::unique_ptr<BulkLink> link);
  // Ends what is under way; queued commands are dropped.
  ~EngineThread();
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;

  void post(EngineCommand command);
  std::optional<EngineAnswer> take_answer() { return answers_.pop(); }
  [[nodiscard]] int fd() const { return answers_.fd(); }

 private:
  void loop();
  void hand_out();
  // Those given, with a thread for what the engine does not do itself.
  EngineSettings with_side(EngineSettings settings);

  SideThread side_;
  SyncEngine engine_;
  ValueQueue<EngineCommand> commands_;
  ValueQueue<EngineAnswer> answers_;
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

}  // namespace atl::agent
