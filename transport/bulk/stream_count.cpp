#include "transport/bulk/stream_count.hpp"

#include <algorithm>
#include <utility>

namespace atl {
namespace {

constexpr Duration kStretch = std::chrono::seconds(1);  // and eight round trips at least: what a new connection needs to get going
constexpr int kStretchTrips = 8;
constexpr std::uint64_t kStretchBytes = 4ULL << 20;  // so that a piece more or less is hardly seen
constexpr Duration kLongestStretch = std::chrono::seconds(15);
constexpr double kWorthIt = 1.1;
// Where so little comes between two looks, or less, pieces may come further apart than looks; what is quiet for longer is a pause.
constexpr std::uint64_t kSparse = 1ULL << 20;
constexpr Duration kQuiet = std::chrono::seconds(1);
constexpr int kQuietTrips = 4;
constexpr double kAsGood = 0.97;
constexpr unsigned kFewest = 4;  // more, so that it shows where there are few
constexpr double kAsFull = 0.9;

}  // namespace

void StreamCount::look(const Look& look) {
  if (look.round_trip < kFar) {
    count_ = first_;
    before_.reset();
    last_.reset();
    time_ = {};
    bytes_ = 0;
    full_ = 0;
    queued_ = clear_ = 0;
    return;
  }
  if (look.bytes > 0 && !look.busy) {
    last_.reset();
    quiet_ = {};
    return;
  }
  if (look.bytes == 0) {
    quiet_ += look.since_last;
    if (last_ && (last_->second > kSparse || quiet_ > std::max<Duration>(kQuiet, kQuietTrips * look.round_trip))) {
      last_.reset();
    }
    return;
  }
  // Only what lies between two looks in which something came, too, is known to be without a pause.
  const Duration quiet = std::exchange(quiet_, Duration::zero());
  if (const auto inner = std::exchange(last_, std::pair(look.since_last + (last_ ? quiet : Duration::zero()), look.bytes)); inner) {
    time_ += inner->first;
    bytes_ += inner->second;
    ++(look.queue ? queued_ : clear_);
  }
  const std::uint64_t enough = settling_ ? unsettled_ : kStretchBytes;
  if (time_ >= std::max<Duration>(kStretch, kStretchTrips * look.round_trip) && (bytes_ >= enough || time_ >= kLongestStretch)) {
    const double rate = static_cast<double>(std::exchange(bytes_, 0)) / seconds(std::exchange(time_, Duration::zero()));
    if (!std::exchange(settling_, false)) {
      judge(rate, look.outstanding);
    }
    queued_ = clear_ = 0;
  }
}

void StreamCount::settle(std::uint64_t outstanding) {
  settling_ = true;
  unsettled_ = outstanding;
}

// Over a stretch with this rate. A line that was full long ago may have changed since.
bool StreamCount::line_is_full(double rate) {
  if (queued_ > clear_) {
    full_ = rate;
    since_full_ = 0;
  } else if (++since_full_ > kLongestPause) {
    full_ = 0;
  }
  return full_ > 0 && rate >= kAsFull * full_;
}

void StreamCount::judge(double rate, std::uint64_t outstanding) {
  const bool full = line_is_full(rate);
  if (before_) {
    const bool more = count_ > *before_;
    const bool kept = more ? rate >= kWorthIt * rate_ : rate >= kAsGood * rate_;
    if (kept) {
      pause_ = kFirstPause;
      waits_ = more ? 0 : pause_;  // as long as it helps, at once
      rate_ = rate;
    } else {
      count_ = *before_;
      settle(outstanding);
      fewer_next_ = more;
      pause_ = more && count_ > 1 ? pause_ : std::min(2 * pause_, kLongestPause);  // fewer are to be tried, too
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
  const bool fewer = ((fewer_next_ || full) && count_ > 1) || count_ == most_;
  if (fewer ? count_ == 1 : full) {
    return;
  }
  before_ = count_;
  count_ = fewer ? count_ - std::max(count_ / 6, 1U) : std::min(count_ + std::max(count_, kFewest), most_);
  fewer_next_ = false;
  settle(outstanding);
}

}  // namespace atl
