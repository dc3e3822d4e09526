// A token bucket: how fast bytes may leave.
//
// Tokens are bytes; they come at a rate, which may be changed, and at most `burst` of them are kept while nothing wants to leave. Something
// larger than the burst waits until its tokens have come together, so a link with this bucket takes bytes/rate for them, as a thin link
// would, and does not send first and pay later. While something waits, up to `burst` more than it needs are kept: a thread that is
// woken late for it makes up for that with the next. What leaves unasked (small frames that must not wait) may take the level below
// zero, and the next has to wait for it.
// Sans-I/O: time is an argument and does not run backwards. Threads: one.
#pragma once

#include <cstdint>

#include "transport/base/time.hpp"

namespace atl {

class TokenBucket {
 public:
  // bits_per_second > 0; the bucket begins full.
  TokenBucket(double bits_per_second, std::uint64_t burst_bytes, TimePoint now);

  // When `bytes` may leave: `now` or later. Until then tokens are kept for them beyond the burst, if they are asked for again.
  TimePoint next_allowed(TimePoint now, std::uint64_t bytes);
  // `bytes` left, asked for or not.
  void spend(TimePoint now, std::uint64_t bytes);
  // Nothing wants to leave any more: tokens beyond the burst are lost.
  void forgo(TimePoint now);

  // From now on they come at another rate, and at most so many are kept. What has come together stays.
  void set_rate(double bits_per_second, std::uint64_t burst_bytes, TimePoint now);

  [[nodiscard]] double bits_per_second() const { return bytes_per_second_ * 8.0; }

 private:
  void refill(TimePoint now);

  double bytes_per_second_;
  double burst_;
  double wanted_ = 0;  // what the level may grow to for now, above the burst
  double level_;
  TimePoint at_;
};

}  // namespace atl
