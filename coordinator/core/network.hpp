// Network presets: how soon silence counts as a loss. One name, so that the times that belong together fit each other.
//
//            heartbeat  dead_after  stall_after  for
//   local      250 ms     1.25 s       5 s       islands of one machine or rack
//   lan          1 s      5 s         20 s       one site; the default
//   wan          2 s     20 s         80 s       islands joined by the internet, with outages of several seconds
//
// dead_after = 5 heartbeats (wan: 10): an island that said nothing for so long is lost, so a kill is noticed after at most
// dead_after, and a late or lost heartbeat or two is none. stall_after = 4 × dead_after: an exchange in which a peer delivers nothing for
// so long has failed, though the peer still sends heartbeats. Unanswered messages are repeated after 2 heartbeats; accusers wait dead_after
// ÷ 5 for each other; two instances of an island have 2 heartbeats to show which of them lives; a joiner is waited for, and a restore
// grants grace, for at least 2 × dead_after. Threads: pure.
#pragma once

#include <string>
#include <string_view>

#include "coordinator/core/core.hpp"
#include "transport/base/result.hpp"

namespace atl::coordinator {

inline constexpr std::string_view kDefaultNetwork = "lan";

// Errors: invalid_argument naming the presets.
Result<Settings> settings_for_network(std::string_view network);

}  // namespace atl::coordinator
