// The log of an `atoll` process: to stderr, as lines for people or JSON lines.
// Threads: install from one thread, before others log.
#pragma once

#include <iosfwd>

#include "transport/base/log.hpp"

namespace atl {

// Sends the log to `err` until the process ends or another sink is set; lines below `least` are dropped. JSON lines are
// {"time": ISO, "level": …, "line": …}. Of warnings and errors that say the same only the first five of a minute are printed; the next
// after that says how many were not.
void install_log_sink(std::ostream& err, LogLevel least, bool json);

}  // namespace atl
