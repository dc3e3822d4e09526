// The runs that are to be looked at, one after the other in the order of their priority, then of their submission: runs that want the
// same islands take them in that order.
//
// A run is looked at again as long as something about it changes, a bounded number of times in one step of the core.
// Threads: owned by one core.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "transport/base/ids.hpp"
#include "transport/base/time.hpp"

namespace atl::coordinator {

class WorkList {
 public:
  // A step of the core begins: nothing was looked at.
  void begin();
  // Something about this run changed, or may have. A run that is on the list stays where it is.
  void add(const RunId& run, std::uint64_t priority, TimePoint submitted) { due_.insert({~priority, submitted, run}); }
  [[nodiscard]] bool has(const RunId& run, std::uint64_t priority, TimePoint submitted) const {
    return due_.contains({~priority, submitted, run});
  }
  // The first one; nothing: all is done.
  std::optional<RunId> take();
  // How often it was taken in this step.
  [[nodiscard]] int taken(const RunId& run) const;

 private:
  std::set<std::tuple<std::uint64_t, TimePoint, RunId>> due_;  // the highest priority first
  std::map<RunId, int> taken_;
};

}  // namespace atl::coordinator
