// Runs that are over on this island, the newest few: an invitation of an epoch that was over already is stale.
// Threads: plain value.
#pragma once

#include <deque>
#include <map>

#include "transport/base/ids.hpp"

namespace atl::agent {

class PastRuns {
 public:
  void add(const RunId& run, Epoch epoch) {
    if (epochs_.insert_or_assign(run, epoch).second) {
      order_.push_back(run);
    }
    if (order_.size() > kMost) {
      epochs_.erase(order_.front());
      order_.pop_front();
    }
  }
  // Whether the run was over here in this epoch, or a later one.
  [[nodiscard]] bool was_over(const RunId& run, Epoch epoch) const {
    const auto found = epochs_.find(run);
    return found != epochs_.end() && epoch <= found->second;
  }

 private:
  static constexpr std::size_t kMost = 64;
  std::map<RunId, Epoch> epochs_;
  std::deque<RunId> order_;  // oldest first
};

}  // namespace atl::agent
