// PollSet: several file descriptors, an alarm and a reminder behind one descriptor that an owner's poll loop can wait for.
// Threads: one.
#pragma once

#include <memory>

#include "transport/base/result.hpp"
#include "transport/base/time.hpp"

namespace atl {

class PollSet {
 public:
  // Errors: io when the process has no descriptors left.
  static Result<std::unique_ptr<PollSet>> open();
  ~PollSet();
  PollSet(const PollSet&) = delete;
  PollSet& operator=(const PollSet&) = delete;

  // Readable while a member is, from `remind` to `clear`, and from an alarm's time to `clear`.
  [[nodiscard]] int fd() const { return epoll_; }
  Status add(int fd);
  void remove(int fd);
  void remind();
  // Rings once, this long from now; replaces an earlier alarm.
  void set_alarm(Duration in);
  void clear();

 private:
  PollSet() = default;

  int epoll_ = -1;
  int event_ = -1;
  int timer_ = -1;
  bool reminded_ = false;
};

}  // namespace atl
