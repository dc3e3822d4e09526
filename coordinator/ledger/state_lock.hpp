// The lock on a state directory: one coordinator at a time.
//
// An advisory lock (flock) on STATE/lock, which also holds the owner's process id; the kernel releases it when the process
// ends, however it ends.
// Threads: any.
#pragma once

#include <filesystem>
#include <string>
#include <utility>

#include "transport/base/result.hpp"

namespace atl::coordinator {

class StateLock {
 public:
  // Takes the lock or says who has it. Errors: conflict naming the owner's pid; io.
  static Result<StateLock> take(const std::filesystem::path& state);
  StateLock(StateLock&& other) noexcept;
  StateLock& operator=(StateLock&& other) noexcept;
  ~StateLock();

  // Errors: io if the file that is locked is not the one in the directory any more: somebody removed or replaced it, and another
  // coordinator could take the directory.
  [[nodiscard]] Status still_held() const;

 private:
  StateLock(int descriptor, std::string path) : descriptor_(descriptor), path_(std::move(path)) {}
  int descriptor_;
  std::string path_;
};

}  // namespace atl::coordinator
