// A queue of values between two threads, with a descriptor to poll.
// Threads: any number may push and pop.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "transport/base/check.hpp"

namespace atl {

template <typename Value>
class ValueQueue {
 public:
  ValueQueue() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) { ATOLL_CHECK(fd_ >= 0, "the process may have one more descriptor"); }
  ~ValueQueue() { ::close(fd_); }
  ValueQueue(const ValueQueue&) = delete;
  ValueQueue& operator=(const ValueQueue&) = delete;

  void push(Value value) {
    const std::lock_guard lock(mutex_);
    values_.push_back(std::move(value));
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(fd_, &one, sizeof one);
  }
  std::optional<Value> pop() {
    const std::lock_guard lock(mutex_);
    if (values_.empty()) {
      return std::nullopt;
    }
    std::optional<Value> value(std::move(values_.front()));
    values_.pop_front();
    if (values_.empty()) {
      std::uint64_t count = 0;
      [[maybe_unused]] const ssize_t got = ::read(fd_, &count, sizeof count);
    }
    return value;
  }
  // Readable while there is a value.
  [[nodiscard]] int fd() const { return fd_; }

 private:
  int fd_;
  mutable std::mutex mutex_;
  std::deque<Value> values_;
};

}  // namespace atl
