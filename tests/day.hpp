// What differs from day to day. Tests of thousands of seeds take others every day, and tests of many cells some of them by turns: within
// days more is tried than any one run could, and whoever runs twice on a day runs the same.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "tests/catch.hpp"

namespace atl_test {

// Days since 1970 (UTC). ATOLL_TEST_DAY stands for another one, to replay what was run on it; on day 0 seeds begin at 1.
inline std::uint64_t day() {
  if (const char* told = std::getenv("ATOLL_TEST_DAY")) {
    return std::strtoull(told, nullptr, 10);
  }
  return static_cast<std::uint64_t>(std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now()).time_since_epoch().count());
}

// Whether a cell of a test is tried today: one of `of` by turns. ATOLL_TEST_ALL=1: all are.
inline bool is_todays(std::uint64_t cell, std::uint64_t of) { return std::getenv("ATOLL_TEST_ALL") != nullptr || cell % of == day() % of; }

struct Seeds {
  std::uint64_t first = 1;
  std::uint64_t count = 1;
  bool one = false;  // asked for by its number

  [[nodiscard]] std::uint64_t end() const { return first + count; }
};

// Those of this day: a `share`th of as many as the variable says, else of `usual`. Of ATOLL_SIM_SEED, that one. Says which.
inline Seeds seeds_of_the_day(const char* variable, std::uint64_t usual, std::uint64_t share = 1) {
  if (const char* only = std::getenv("ATOLL_SIM_SEED")) {
    return {std::strtoull(only, nullptr, 10), 1, true};
  }
  const char* many = std::getenv(variable);
  Seeds seeds;
  seeds.count = std::max<std::uint64_t>(1, (many == nullptr ? usual : std::strtoull(many, nullptr, 10)) / share);
  seeds.first = 1 + day() * seeds.count;
  WARN("ATOLL_TEST_DAY=" << day() << ": seeds " << seeds.first << " to " << seeds.end() - 1);
  return seeds;
}

}  // namespace atl_test
