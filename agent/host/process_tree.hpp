// All processes of a trainer: one that is started by torchrun, or that starts others, is a tree and not a process.
//
// A trainer of one's own runs below a keeper, `atoll trainer -- COMMAND`: a small process that every descendant comes back
// to when its parent ends (PR_SET_CHILD_SUBREAPER), also one that has made itself a daemon. The keeper ends all of them when the command
// ends, when the agent that started it is gone, and when it is told to: SIGTERM is passed on to all, SIGHUP ends all at once. It ends as
// the command did, by the same status or signal. Threads: `keep` belongs in a process of its own, before it has threads.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "transport/base/result.hpp"

namespace atl {

// The descendants of a process at this instant, without itself. Linux with /proc; else none.
std::vector<pid_t> descendants_of(pid_t process);
// When a process began, in the kernel's ticks: with its number this tells it from every other one. None of one that has ended.
std::optional<std::uint64_t> start_of(pid_t process);
// Resident memory of a process and its descendants; what they share counts for each.
std::uint64_t resident_bytes_of_tree(pid_t process);

// Runs a command (the program as a path, or by its name in $PATH, then its arguments) and returns when it and everything that it started is
// gone; the value is its exit status. Does not return where it was ended by a signal: then this process ends by the same one. Errors:
// not_found, io if it cannot be started.
Result<int> keep(const std::vector<std::string>& command);

}  // namespace atl
