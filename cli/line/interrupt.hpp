// Interrupt: Ctrl-C and SIGTERM as a descriptor, for commands that have something to stop first.
//
// The first signal makes `fd` readable; after it the signals do again what they do by default, so that a second Ctrl-C ends
// the process at once. Started processes do not inherit any of it.
// Threads: one object at a time in a process.
#pragma once

#include "transport/base/result.hpp"
#include "transport/base/time.hpp"

namespace atl {

class Interrupt {
 public:
  // Errors: io when the process has no descriptors left.
  static Result<Interrupt> open();
  Interrupt(Interrupt&& other) noexcept;
  Interrupt& operator=(Interrupt&&) = delete;
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  ~Interrupt();

  [[nodiscard]] int fd() const { return fd_; }
  // True once a signal came; waits at most so long for it.
  [[nodiscard]] bool came(Duration at_most = Duration::zero()) const;

 private:
  explicit Interrupt(int fd) : fd_(fd) {}
  int fd_ = -1;
};

}  // namespace atl
