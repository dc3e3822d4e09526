// What islands have trained, sent and waited in a run, over restarts: an agent that is started again, or whose run was paused, counts from
// zero, and a person wants to see the whole.
//
// A report whose counters are lower than those before it comes from one that began again; what it had counted by then is carried on. So the
// totals miss what was counted after the last report before a crash, and no more.
// Cost: O(log n) a report, one entry for each island of a run. Threads: one.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "transport/control/message.hpp"

namespace atl::coordinator {

struct Counters {
  std::uint64_t tokens = 0;
  double compute_seconds = 0;
  double wait_seconds = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  friend bool operator==(const Counters&, const Counters&) = default;
};

class RunningTotals {
 public:
  // As the ledger has it: what was carried, and the newest total.
  void restore(const RunId& run, const IslandId& island, const Counters& carried, const IslandReport& total);
  // The report with what was counted before it. Only for islands that have a place in the run: each makes an entry.
  IslandReport add(const IslandId& island, IslandReport report);
  [[nodiscard]] bool knows(const RunId& run, const IslandId& island) const { return entries_.contains({run, island}); }
  // What was counted before the present counters began; zero if nothing is known.
  [[nodiscard]] Counters carried(const RunId& run, const IslandId& island) const;

 private:
  struct Entry {
    Counters carried;
    Counters newest;  // as it was reported
  };
  std::map<std::pair<RunId, IslandId>, Entry> entries_;
};

}  // namespace atl::coordinator
