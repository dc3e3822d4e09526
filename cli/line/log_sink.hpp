// The log of an `atoll` process: to stderr, as lines for people or JSON lines.
// Threads: install from one thread, before others log. Lines written beside have a thread of their own, which takes no signals.
#pragma once

#include <iosfwd>

#include "transport/base/log.hpp"

namespace atl {

// at_once: a line is written when it is logged, and whoever logs waits for it. beside: it is queued and written by a thread, so that a full
// disk cache or a reader that stands still holds up nobody who has heartbeats to send. Of 4,096 lines that wait the oldest make room for
// new ones, and a line says how many; setting another sink writes what waits.
enum class LogWrites { at_once, beside };

// Sends the log to `err` until the process ends or another sink is set; lines below `least` are dropped. JSON lines are
// {"time": ISO, "level": …, "line": …}. Of warnings and errors that say the same only the first five of a minute are printed; the next
// after that says how many were not.
void install_log_sink(std::ostream& err, LogLevel least, bool json, LogWrites writes = LogWrites::at_once);

}  // namespace atl
