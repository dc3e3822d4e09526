// Runs that operators removed, and what an island is told of the runs that it holds: which of them are over.
//
// An island removes nothing because of what a coordinator does not say: a ledger that was lost, or restored from an older backup, knows of
// fewer runs than its islands hold. Only the record of a removal has a run removed; it is never forgotten, so that an island which was away
// learns of it whenever it comes back.
// Threads: owned by one core.
#pragma once

#include <map>

#include "coordinator/core/record.hpp"
#include "transport/control/message.hpp"

namespace atl::coordinator {

class Removals {
 public:
  void recover(RemovedRecord removed) { add(std::move(removed)); }
  void add(RemovedRecord removed);
  // The run is in the ledger again, from a copy of its checkpoint.
  void lift(const RunId& run) { removed_.erase(run); }
  // Null: it was not removed.
  [[nodiscard]] const RemovedRecord* find(const RunId& run) const;

 private:
  std::map<RunId, RemovedRecord> removed_;
};

// What an island is told of a run that was removed, and of one that has ended.
[[nodiscard]] RunOver over_of(const RemovedRecord& removed, TimePoint now);
[[nodiscard]] RunOver over_of(const RunRecord& ended, Round furthest, TimePoint now);

}  // namespace atl::coordinator
