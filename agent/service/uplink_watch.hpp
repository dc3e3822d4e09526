// UplinkWatch: tells when an island's calendar changes what it may send.
//
// It looks at the system's clock and its time zone once a second, so a change of either holds within one.
// Threads: one.
#pragma once

#include <functional>
#include <optional>
#include <utility>

#include "agent/service/uplink_calendar.hpp"
#include "transport/base/time.hpp"

namespace atl::agent {

class UplinkWatch {
 public:
  // clock: the time of the week where the island is.
  explicit UplinkWatch(UplinkCalendar calendar, std::function<WeekTime()> clock = local_week_time)
      : calendar_(std::move(calendar)), clock_(std::move(clock)), told_(calendar_.rate_at(clock_())) {}

  // What holds, in bits a second; 0: no limit.
  [[nodiscard]] double rate() const { return told_; }
  // The rate that holds now, if it is another than before.
  std::optional<double> pump(TimePoint now) {
    if (!calendar_.changes() || now < next_look_) {
      return std::nullopt;
    }
    next_look_ = now + std::chrono::seconds(1);
    const double present = calendar_.rate_at(clock_());
    return present == std::exchange(told_, present) ? std::nullopt : std::optional(present);
  }

 private:
  UplinkCalendar calendar_;
  std::function<WeekTime()> clock_;
  double told_;
  TimePoint next_look_{};
};

}  // namespace atl::agent
