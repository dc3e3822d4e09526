// What an island keeps of runs that are over.
//
// The coordinator says which of the runs that lie here have ended or were removed (Over). A run that it does not name stays as it is,
// whatever the reason: a ledger that was lost, or restored from an older backup, removes nothing.
// Threads: pure functions.
#pragma once

#include <optional>
#include <string>

#include "agent/core/settings.hpp"
#include "agent/core/stored_runs.hpp"
#include "transport/control/message.hpp"

namespace atl::agent {

// The checkpoints before the newest go so long after the run's end. Until then one that turns out to be damaged has another behind it.
inline constexpr Duration kOlderKept = std::chrono::hours(24);
// After a reader was last named: an export of a large model over a thin line takes its time.
inline constexpr Duration kReadersTime = std::chrono::hours(24);

struct KeepInput {
  RunOver over;
  const std::vector<StoredCheckpoint>& checkpoints;  // by round, oldest first
  bool in_hand = false;
  bool read = false;  // somebody may be reading
  Settings settings;
};

enum class Keep { all, newest, nothing };
struct KeepDecision {
  Keep keep = Keep::all;
  std::string why;             // of what goes; empty: nothing does
  Duration least_age{};        // of the newest checkpoint by the disk, or nothing goes after all
  bool further_on = false;     // kept because the island knows more of the run than the coordinator
  bool kept_by_owner = false;  // removed by an operator, and its owner keeps it
};
KeepDecision decide_keep(const KeepInput& input);

}  // namespace atl::agent
