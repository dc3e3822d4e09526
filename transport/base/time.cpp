#include "transport/base/time.hpp"

#include <array>
#include <cstdio>
#include <ctime>

namespace atl {

TimePoint now() {
  static const auto kWallAtStart = std::chrono::system_clock::now().time_since_epoch();
  static const auto kSteadyAtStart = std::chrono::steady_clock::now();
  return TimePoint(std::chrono::duration_cast<Duration>(kWallAtStart) +
                   std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now() - kSteadyAtStart));
}

std::string iso_time(TimePoint time) {
  const std::int64_t ms = unix_ms(time);
  const std::time_t whole = static_cast<std::time_t>(ms / 1000);
  std::tm parts{};
  gmtime_r(&whole, &parts);
  std::array<char, 64> text{};
  const std::size_t length = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  std::array<char, 16> fraction{};
  std::snprintf(fraction.data(), fraction.size(), ".%03dZ", static_cast<int>(ms % 1000));
  return std::string(text.data(), length) + fraction.data();
}

}  // namespace atl
