// Exit codes: the one list that --help, docs/commands.md and the tests show.
// Threads: pure.
#pragma once

#include <array>
#include <string_view>

#include "transport/base/result.hpp"

namespace atl {

enum class Exit : int {
  ok = 0,
  run_failed = 1,
  usage = 2,
  unreachable = 3,
  not_found = 4,
  timed_out = 5,
  cancelled = 6,
  unauthorized = 7,
  conflict = 8,
  internal = 70,
  interrupted = 130,
};

struct ExitMeaning {
  Exit code;
  std::string_view meaning;
};
inline constexpr std::array<ExitMeaning, 11> kExitMeanings = {{{Exit::ok, "ok"},
                                                               {Exit::run_failed, "the run failed, or a file or disk"},
                                                               {Exit::usage, "bad usage or run file"},
                                                               {Exit::unreachable, "coordinator unreachable"},
                                                               {Exit::not_found, "not found"},
                                                               {Exit::timed_out, "timed out"},
                                                               {Exit::cancelled, "cancelled"},
                                                               {Exit::unauthorized, "not authorised"},
                                                               {Exit::conflict, "conflict"},
                                                               {Exit::internal, "internal"},
                                                               {Exit::interrupted, "interrupted"}}};

// The exit code of a command that ended with this error. `corrupt` and `io` are 1: a file is broken, a disk is full.
[[nodiscard]] constexpr Exit exit_for(Code code) {
  switch (code) {
    case Code::invalid_argument:
      return Exit::usage;
    case Code::not_found:
      return Exit::not_found;
    case Code::conflict:
      return Exit::conflict;
    case Code::unavailable:
      return Exit::unreachable;
    case Code::timeout:
      return Exit::timed_out;
    case Code::unauthorized:
      return Exit::unauthorized;
    case Code::cancelled:
      return Exit::cancelled;
    case Code::corrupt:
    case Code::io:
      return Exit::run_failed;
    case Code::internal:
      return Exit::internal;
  }
  return Exit::internal;
}

}  // namespace atl
