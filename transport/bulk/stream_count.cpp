#include "transport/bulk/stream_count.hpp"

#include <algorithm>
#include <utility>

namespace atl {
namespace {

constexpr Duration kStretch = std::chrono::seconds(1);  // and eight round trips at least: what a new connection needs to get going
constexpr int kStretchTrips = 8;
constexpr std::uint64_t kStretchBytes = 8ULL << 20;  // so that a piece more or less is hardly seen
constexpr Duration kLongestStretch = std::chrono::seconds(15);
constexpr double kWorthIt = 1.1;
// Where so little comes between two looks, or less, pieces may come further apart than looks; what is quiet for longer is a pause.
constexpr std::uint64_t kSparse = 1ULL << 20;
constexpr Duration kQuiet = std::chrono::seconds(1);
constexpr int kQuietTrips = 4;
constexpr double kAsGood = 0.97;

}  // namespace

void StreamCount::look(Duration since_last, std::uint64_t bytes, Duration round_trip) {
  if (round_trip < kFar) {
    count_ = first_;
    before_.reset();
    last_.reset();
    time_ = {};
    bytes_ = 0;
    return;
  }
  if (bytes == 0) {
    quiet_ += since_last;
    if (last_ && (last_->second > kSparse || quiet_ > std::max<Duration>(kQuiet, kQuietTrips * round_trip))) {
      last_.reset();
    }
    return;
  }
  // Only what lies between two looks in which something came, too, is known to be without a pause.
  const Duration quiet = std::exchange(quiet_, Duration::zero());
  if (const auto inner = std::exchange(last_, std::pair(since_last + (last_ ? quiet : Duration::zero()), bytes)); inner) {
    time_ += inner->first;
    bytes_ += inner->second;
  }
  if (time_ >= std::max<Duration>(kStretch, kStretchTrips * round_trip) &&
      (settling_ || bytes_ >= kStretchBytes || time_ >= kLongestStretch)) {
    const double rate = static_cast<double>(std::exchange(bytes_, 0)) / seconds(std::exchange(time_, Duration::zero()));
    if (!std::exchange(settling_, false)) {
      judge(rate);
    }
  }
}

void StreamCount::judge(double rate) {
  if (before_) {
    const bool more = count_ > *before_;
    const bool kept = more ? rate >= kWorthIt * rate_ : rate >= kAsGood * rate_;
    if (kept) {
      pause_ = kFirstPause;
      waits_ = more ? 0 : pause_;  // as long as it helps, at once
      rate_ = rate;
    } else {
      count_ = *before_;
      settling_ = true;
      fewer_next_ = more;
      pause_ = std::min(2 * pause_, kLongestPause);
      waits_ = pause_;
    }
    before_.reset();
    if (waits_ > 0) {
      return;
    }
  }
  if (waits_ > 0) {
    --waits_;
    return;
  }
  rate_ = rate;
  const bool fewer = (fewer_next_ && count_ > 1) || count_ == most_;
  if (fewer ? count_ == 1 : count_ == most_) {
    return;
  }
  before_ = count_;
  count_ = fewer ? count_ - 1 : count_ + 1;
  fewer_next_ = false;
  settling_ = true;
}

}  // namespace atl
