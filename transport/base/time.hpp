// Time as a value. Cores and simulations get it as an argument; only drivers ask `now()`.
//
// A TimePoint counts nanoseconds since 1970-01-01 UTC. `now()` is the wall clock at the start of the process plus
// the monotonic time since then: it never goes back, and it can be printed as a date.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace atl {

using Duration = std::chrono::nanoseconds;

struct UnixTime {
  using rep = Duration::rep;
  using period = Duration::period;
  using duration = Duration;
  using time_point = std::chrono::time_point<UnixTime>;
  static constexpr bool is_steady = true;
};
using TimePoint = UnixTime::time_point;

// The present. Thread-safe. Only for drivers, never inside a core.
TimePoint now();

[[nodiscard]] constexpr std::int64_t unix_ms(TimePoint time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
}
[[nodiscard]] constexpr TimePoint from_unix_ms(std::int64_t ms) { return TimePoint(std::chrono::milliseconds(ms)); }
[[nodiscard]] constexpr double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }
// Not beyond a century, so that it can be added to a time; 0 for NaN.
[[nodiscard]] constexpr Duration from_seconds(double value) {
  constexpr double kCentury = 3'153'600'000.0;
  const double bounded = value > kCentury ? kCentury : value < -kCentury ? -kCentury : value == value ? value : 0.0;
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(bounded));
}

// "2026-01-31T12:30:05.123Z".
std::string iso_time(TimePoint time);

}  // namespace atl
