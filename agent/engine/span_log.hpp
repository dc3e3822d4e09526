// What this island spends its time on, until it is told to the coordinator: written by the sync engine and the driver, read by the driver.
//
// Bounded: while the coordinator is away the oldest spans go first.
// Threads: any.
#pragma once

#include <cstddef>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include "transport/control/message.hpp"

namespace atl::agent {

class SpanLog {
 public:
  static constexpr std::size_t kHeld = 8192;

  void add(const RunId& run, Span span);
  // What there is, oldest first, a message for each run; each holds at most kMaxListItems spans.
  std::vector<Timeline> take();

 private:
  std::mutex mutex_;
  std::deque<std::pair<RunId, Span>> spans_;
};

}  // namespace atl::agent
