#include "transport/relay/punch_record.hpp"

#include <algorithm>

namespace atl {

void PunchRecord::failed(NotPunched why, TimePoint now) {
  const bool for_long = why == NotPunched::own_router || why == NotPunched::peers_router;
  pause_ = for_long ? kPunchAgainAtMost : std::clamp<Duration>(pause_ * 2, kPunchAgain, kPunchAgainAtMost);
  again_ = now + pause_;
  why_ = why;
}

}  // namespace atl
