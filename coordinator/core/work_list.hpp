// The runs that are to be looked at, one after the other in the order of their submission: runs that want the same islands take them in
// that order.
//
// A run is looked at again as long as something about it changes, a bounded number of times in one step of the core.
// Threads: owned by one core.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <utility>

#include "transport/base/ids.hpp"
#include "transport/base/time.hpp"

namespace atl::coordinator {

class WorkList {
 public:
  // A step of the core begins: nothing was looked at.
  void begin();
  // Something about this run changed, or may have. A run that is on the list stays where it is.
  void add(const RunId& run, TimePoint submitted) { due_.insert({submitted, run}); }
  [[nodiscard]] bool has(const RunId& run, TimePoint submitted) const { return due_.contains({submitted, run}); }
  // The first one; nothing: all is done.
  std::optional<RunId> take();
  // How often it was taken in this step.
  [[nodiscard]] int taken(const RunId& run) const;

 private:
  std::set<std::pair<TimePoint, RunId>> due_;
  std::map<RunId, int> taken_;
};

}  // namespace atl::coordinator
