// How much of its last minutes a path was there, and how often it came and went. Threads: plain values.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "transport/base/time.hpp"

namespace atl {

// A path is looked back at for so long.
inline constexpr Duration kAvailabilityWindow = std::chrono::minutes(5);

struct Availability {
  Duration watched{};         // for so long of the last minutes it was looked at; zero: never
  Duration there{};           // of that: data passed
  std::uint32_t changes = 0;  // within that time, from there to away or back
  Duration steady{};          // since it was last away; zero: it is away now
  friend bool operator==(const Availability&, const Availability&) = default;

  // 0 to 1.
  [[nodiscard]] double share() const { return watched > Duration::zero() ? seconds(there) / seconds(watched) : 1; }
  // "there 51 % of the last 5 minutes, 50 changes"
  [[nodiscard]] std::string text() const;
};

}  // namespace atl
