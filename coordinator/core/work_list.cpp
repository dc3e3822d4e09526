#include "coordinator/core/work_list.hpp"

namespace atl::coordinator {
void WorkList::begin() {
  due_.clear();
  taken_.clear();
}

std::optional<RunId> WorkList::take() {
  if (due_.empty()) {
    return std::nullopt;
  }
  RunId run = std::get<RunId>(*due_.begin());
  due_.erase(due_.begin());
  ++taken_[run];
  return run;
}

int WorkList::taken(const RunId& run) const {
  const auto found = taken_.find(run);
  return found == taken_.end() ? 0 : found->second;
}

}  // namespace atl::coordinator
