// Whether to punch a hole on the way to a peer: what came of it before.
//
// What fails is tried again after a pause that doubles; a router that gives each connection another port does so for long. A way to the
// peer that was there and is gone makes all that forgotten: an address may have changed.
// Sans-I/O. Threads: a plain value.
#pragma once

#include "transport/base/time.hpp"
#include "transport/control/way.hpp"

namespace atl {

inline constexpr Duration kPunchAgain = std::chrono::minutes(2);
inline constexpr Duration kPunchAgainAtMost = std::chrono::hours(1);

class PunchRecord {
 public:
  void failed(NotPunched why, TimePoint now);
  void forget() { *this = PunchRecord(); }
  [[nodiscard]] bool may_try(TimePoint now) const { return now >= again_; }
  [[nodiscard]] NotPunched why() const { return why_; }
  [[nodiscard]] TimePoint again() const { return again_; }

 private:
  NotPunched why_ = NotPunched::not_tried;
  TimePoint again_{};
  Duration pause_{};
};

}  // namespace atl
