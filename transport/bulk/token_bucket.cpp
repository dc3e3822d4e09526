#include "transport/bulk/token_bucket.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "transport/base/check.hpp"

namespace atl {
namespace {

constexpr double kLongestWaitSeconds = 1e6;

}  // namespace

TokenBucket::TokenBucket(double bits_per_second, std::uint64_t burst_bytes, TimePoint now)
    : bytes_per_second_(bits_per_second / 8.0), burst_(static_cast<double>(burst_bytes)), level_(burst_), at_(now) {
  ATOLL_CHECK(bits_per_second > 0 && std::isfinite(bits_per_second), "a bucket fills at some rate");
}

void TokenBucket::refill(TimePoint now) {
  const double elapsed = seconds(std::max(now, at_) - at_);
  level_ = std::min(level_ + elapsed * bytes_per_second_, std::max(wanted_ + burst_, level_));
  at_ = std::max(now, at_);
}

TimePoint TokenBucket::next_allowed(TimePoint now, std::uint64_t bytes) {
  refill(now);
  const auto needed = static_cast<double>(bytes);
  wanted_ = needed;
  level_ = std::min(level_, wanted_ + burst_);  // what came together for something larger is not for this
  if (level_ >= needed) {
    return now;
  }
  // Rounded up to a whole unit of the clock, so that at that time the tokens are there.
  const double wait = std::min((needed - level_) / bytes_per_second_, kLongestWaitSeconds);
  return now + std::chrono::ceil<Duration>(std::chrono::duration<double>(wait)) + Duration(1);
}

void TokenBucket::set_rate(double bits_per_second, std::uint64_t burst_bytes, TimePoint now) {
  ATOLL_CHECK(bits_per_second > 0 && std::isfinite(bits_per_second), "a bucket fills at some rate");
  refill(now);
  bytes_per_second_ = bits_per_second / 8.0;
  burst_ = static_cast<double>(burst_bytes);
  level_ = std::min(level_, wanted_ + burst_);
}

void TokenBucket::spend(TimePoint now, std::uint64_t bytes) {
  refill(now);
  level_ -= static_cast<double>(bytes);
}

void TokenBucket::forgo(TimePoint now) {
  refill(now);
  wanted_ = 0;
  level_ = std::min(level_, burst_);
}

}  // namespace atl
