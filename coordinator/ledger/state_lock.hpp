// The lock on a state directory: one coordinator at a time.
//
// An advisory lock (flock) on STATE/lock, which also holds the owner's process id; the kernel releases it when the process
// ends, however it ends.
// Threads: any.
#pragma once

#include <filesystem>

#include "transport/base/result.hpp"

namespace atl::coordinator {

class StateLock {
 public:
  // Takes the lock or says who has it. Errors: conflict naming the owner's pid; io.
  static Result<StateLock> take(const std::filesystem::path& state);
  StateLock(StateLock&& other) noexcept;
  StateLock& operator=(StateLock&& other) noexcept;
  ~StateLock();

 private:
  explicit StateLock(int descriptor) : descriptor_(descriptor) {}
  int descriptor_;
};

}  // namespace atl::coordinator
