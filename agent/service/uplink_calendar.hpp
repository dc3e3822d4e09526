// UplinkCalendar: what an island may send to the others, by the time of day: "50mbit mon-fri 08:00-18:00, 500mbit otherwise".
//
//   calendar  = RATE | entry {"," entry} "," RATE "otherwise"
//   entry     = RATE [DAYS] HH:MM-HH:MM
//   DAYS      = mon … sun, or two of them with - between: mon-fri, sat-mon
//   RATE      = as 50mbit, at least 500kbit; or max: as much as the line bears
// A span may go over midnight: 22:00-06:00 on fri ends on Saturday at 06:00. 24:00 is the end of a day. Of entries whose spans overlap the
// first one holds. Times are the island's own: those of the time zone that its agent runs in (TZ, or else the system's). In the night in
// which clocks are set back an hour comes twice, and is twice what it is.
// Threads: a plain value.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "transport/base/result.hpp"

namespace atl::agent {

// A time of the week at a place.
struct WeekTime {
  int day = 0;     // 0 is Monday
  int minute = 0;  // of the day, from 0 to 1439
};

class UplinkCalendar {
 public:
  // No limit at any time.
  UplinkCalendar() = default;
  // Errors: invalid_argument naming the entry and what is wrong with it.
  static Result<UplinkCalendar> parse(std::string_view text);

  // In bits a second; 0: as much as the line bears.
  [[nodiscard]] double rate_at(WeekTime time) const;
  // Whether the rate depends on the time.
  [[nodiscard]] bool changes() const { return !entries_.empty(); }

 private:
  struct Entry {
    double bits_per_second = 0;
    int first_day = 0;
    int last_day = 6;  // before first_day: over the end of the week
    int from = 0;      // minutes
    int until = 0;     // at or before `from`: of the next day
  };
  static Result<Entry> parse_entry(std::string_view text);

  std::vector<Entry> entries_;
  double otherwise_ = 0;
};

// "at most 50 Mbit/s", "as much as the line bears": for people.
std::string uplink_text(double bits_per_second);

// The present, where this process is.
WeekTime local_week_time();

}  // namespace atl::agent
