// Keeps others from filling a log or the ledger: at most so many lines of a kind in a while, then one line that counts the rest.
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "transport/base/time.hpp"

namespace atl {

class LogLimit {
 public:
  explicit LogLimit(std::uint32_t lines = 5, Duration window = std::chrono::minutes(1)) : lines_(lines), window_(window) {}

  // The line to log now, or nothing. The first line of a new window says how many the last one kept back.
  std::optional<std::string> pass(TimePoint now, const std::string& line) {
    std::string suffix;
    if (!begin_ || now - *begin_ >= window_) {
      if (kept_back_ > 0) {
        suffix = " (and " + std::to_string(kept_back_) + " more like it before)";
      }
      begin_ = now;
      passed_ = 0;
      kept_back_ = 0;
    }
    if (passed_ == lines_) {
      ++kept_back_;
      return std::nullopt;
    }
    ++passed_;
    return line + suffix;
  }

 private:
  std::uint32_t lines_;
  Duration window_;
  std::optional<TimePoint> begin_;
  std::uint32_t passed_ = 0;
  std::uint64_t kept_back_ = 0;
};

}  // namespace atl
