// DurableRuns: the runs as the ledger has them, while the coordinator's core has decided more than the ledger could take.
//
// A core decides first, and its driver writes the decision down; on a full disk the two differ. What an operator is shown must outlive a
// crash, so while the ledger cannot be written each view of a run is corrected by the newest durable records. What is of this moment and
// in no record stays as it is: who is connected, and what islands report.
// Threads: plain values.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "coordinator/core/record.hpp"
#include "coordinator/core/view.hpp"

namespace atl::coordinator {

class DurableRuns {
 public:
  explicit DurableRuns(const Recovered& ledger);

  // The run as it would be found after a crash. Empty: the ledger does not have it.
  [[nodiscard]] std::optional<RunView> corrected(RunView run) const;

 private:
  void correct(const RunId& run, MembershipView& membership) const;
  void correct(const RunId& run, TaskView& task) const;

  std::map<RunId, RunRecord> runs_;
  std::map<std::pair<RunId, IslandId>, MembershipRecord> memberships_;
  std::map<std::pair<RunId, std::string>, TaskRecord> tasks_;
};

}  // namespace atl::coordinator
