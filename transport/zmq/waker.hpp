// Wakes a thread that polls: readable after wake() until drain().
// Threads: wake from any; drain by the poller.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

#include "transport/base/check.hpp"

namespace atl {

class Waker {
 public:
  Waker() : fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) { ATOLL_CHECK(fd_ >= 0, "the system has a file descriptor left"); }
  ~Waker() { ::close(fd_); }
  Waker(const Waker&) = delete;
  Waker& operator=(const Waker&) = delete;

  void wake() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(fd_, &one, sizeof one);  // full means readable already
  }
  void drain() {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto taken = ::read(fd_, &count, sizeof count);
  }
  [[nodiscard]] int fd() const { return fd_; }

 private:
  int fd_;
};

}  // namespace atl
