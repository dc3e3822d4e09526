// The sync engine on a thread of its own, so that no arithmetic and no disk keeps the agent from its heartbeats.
//
// Commands go in by `post`, in order; answers come out by `take_answer`, `fd` being readable while there are some. The thread sleeps in
// one poll over the command queue and the bulk link. A second one writes checkpoints.
// Threads: any may call.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>

#include "agent/engine/sync_engine.hpp"
#include "agent/service/side_thread.hpp"
#include "agent/service/value_queue.hpp"
#include "agent/service/workers.hpp"

namespace atl::agent {

class EngineThread {
 public:
  // Takes the link over and starts the thread. `threads`: that the engine may compute with, its own among them.
  EngineThread(EngineSettings settings, std::unique_ptr<BulkLink> link, unsigned threads);
  // Ends what is under way; queued commands are dropped.
  ~EngineThread();
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;

  void post(EngineCommand command);
  std::optional<EngineAnswer> take_answer() { return answers_.pop(); }
  [[nodiscard]] int fd() const { return answers_.fd(); }
  // SyncEngine::pieces_sent, as it was a second ago at most.
  [[nodiscard]] std::uint64_t pieces_sent() const { return pieces_sent_; }

 private:
  void loop();
  void hand_out();
  // Those given, with threads for what the engine does not do itself.
  EngineSettings with_threads(EngineSettings settings);

  SideThread side_;
  Workers workers_;
  SyncEngine engine_;
  ValueQueue<EngineCommand> commands_;
  ValueQueue<EngineAnswer> answers_;
  std::atomic<bool> ending_{false};
  std::atomic<std::uint64_t> pieces_sent_{0};
  std::thread thread_;
};

}  // namespace atl::agent
