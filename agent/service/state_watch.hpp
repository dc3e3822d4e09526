// StateWatch: tells when the state directory of a running agent was removed or replaced.
//
// What is written into a folder that has no name any more is lost, and another agent with the same key may work in the one that took its
// place. So such an agent leaves; the others go on, and it comes back with the directory. One look is no proof: a directory that is moved
// away and put back at once stays its own.
// Threads: one, that of the driver.
#pragma once

#include <optional>

#include "agent/storage/membership_file.hpp"
#include "transport/base/result.hpp"
#include "transport/base/time.hpp"

namespace atl::agent {

class StateWatch {
 public:
  // lock outlives it.
  explicit StateWatch(const StateLock& lock) : lock_(&lock) {}
  // What was lost, once. Cost: a stat now and then.
  std::optional<Error> pump(TimePoint now);
  // What is lost: the agent ends with it.
  [[nodiscard]] const std::optional<Error>& lost() const { return lost_; }

 private:
  const StateLock* lock_;
  TimePoint next_{};
  bool missed_ = false;  // at the last look
  std::optional<Error> lost_;
};

}  // namespace atl::agent
