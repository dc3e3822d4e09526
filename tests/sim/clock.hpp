// The clock of one process, as an argument to its core: off by hours, a little fast or slow, and after a restart off by something else. It
// never goes back while the process lives (transport/base/time.hpp).
#pragma once

#include "transport/base/time.hpp"

namespace atl::sim {

struct Clock {
  TimePoint set_at;   // true time at the process's start
  Duration offset{};  // of what it said then
  double drift = 0;   // seconds a second

  [[nodiscard]] TimePoint at(TimePoint truth) const { return truth + offset + scaled(truth - set_at, drift); }
  // The true time at which it says this.
  [[nodiscard]] TimePoint when(TimePoint told) const {
    const Duration since = told - offset - set_at;
    return drift == 0 ? set_at + since : set_at + since - scaled(since, drift / (1 + drift)) + Duration(1);
  }

 private:
  static Duration scaled(Duration length, double by) {
    return by == 0 ? Duration(0) : Duration(static_cast<Duration::rep>(static_cast<double>(length.count()) * by));
  }
};

// Counts how often a core asks to be woken: one that does so at a hundred times within a second waits for something that is due already.
class Wakes {
 public:
  // True once it is too often. Once at a time: what a full disk held back is all heard at the same one.
  bool count(TimePoint now) {
    if (now == last_) {
      return false;
    }
    last_ = now;
    if (now - begun_ > std::chrono::seconds(1)) {
      begun_ = now;
      count_ = 0;
    }
    return ++count_ > kMost;
  }

 private:
  static constexpr int kMost = 100;
  TimePoint begun_;
  TimePoint last_;
  int count_ = 0;
};

}  // namespace atl::sim
