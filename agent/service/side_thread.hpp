// A thread that works beside the engine's: the writing of checkpoints (EngineSettings::beside).
// Threads: any may call `run`.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace atl::agent {

class SideThread {
 public:
  SideThread() : thread_([this] { loop(); }) {}
  // Waits for the call that is under way; what is not done then is not.
  ~SideThread();
  SideThread(const SideThread&) = delete;
  SideThread& operator=(const SideThread&) = delete;

  // Calls it again and again until it returns false, after what was given before.
  void run(std::function<bool()> some);

 private:
  void loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;                     // under the mutex, and
  std::deque<std::function<bool()>> work_;  // the first of which is under way
  std::thread thread_;
};

}  // namespace atl::agent
