// Threads that help the engine's with what falls into parts: digests and outer steps of large fragments (transport/base/in_parts.hpp).
//
// They sleep while there is nothing to do; a part costs a lock. Threads: one may call `each` at a time.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace atl::agent {

// How many threads an agent works with, the engine's among them, where nobody says: the trainers need the cores, too.
[[nodiscard]] unsigned threads_for(unsigned cores);

class Workers {
 public:
  // `threads`: all, the caller's among them; with 1 there are no others.
  explicit Workers(unsigned threads);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // Calls `part` with each number below `count`; the caller works with the others. No part may throw.
  void each(std::size_t count, const std::function<void(std::size_t)>& part);

 private:
  void help();
  // Takes parts until there are none left. Called and left with the lock held.
  void work(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable begun_;
  std::condition_variable ended_;
  const std::function<void(std::size_t)>* part_ = nullptr;  // all under the mutex
  std::size_t count_ = 0;
  std::size_t next_ = 0;
  std::size_t under_way_ = 0;
  bool closing_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace atl::agent
