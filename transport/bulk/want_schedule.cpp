#include "transport/bulk/want_schedule.hpp"

#include <algorithm>
#include <utility>

#include "transport/base/check.hpp"

namespace atl {
namespace {

constexpr std::size_t kMostWants = 4096;  // outstanding of one blob: pieces of fp4 have 32 KiB

}  // namespace

WantSchedule::WantSchedule(IslandId peer, BlobId blob, std::vector<std::uint64_t> ends, const WantSettings& settings, TimePoint now)
    : peer_(std::move(peer)),
      blob_(std::move(blob)),
      ends_(std::move(ends)),
      states_(ends_.empty() ? 0 : ends_.size() - 1, State::waiting),
      settings_(settings),
      patience_(settings.again_after),
      progress_(now),
      ask_after_(now) {
  for (std::size_t i = 0; i < states_.size(); ++i) {
    ATOLL_CHECK(ends_[i] < ends_[i + 1] && ends_[i + 1] - ends_[i] <= kMaxPieceBytes, "pieces are not empty and not too long");
  }
  if (settings_.paths) {
    path_ = settings_.paths->to(peer_);
    stamps_.resize(states_.size());
    patience_ = least_patience();
  }
}

std::uint64_t WantSchedule::window_bytes(TimePoint now) const {
  return path_ ? settings_.paths->bytes(*path_, now) : settings_.window_bytes;
}

void WantSchedule::take(TimePoint now, std::size_t limit, std::vector<OutgoingWant>& out) {
  if (asked_ > 0 && now - progress_ >= patience_) {
    patience_ = std::min(patience_ * 2, settings_.again_at_most);
    take_back();
  }
  if (now < ask_after_) {
    return;
  }
  pausing_ = false;
  limit = std::min(limit, states_.size());
  if (next_ >= limit) {
    return;
  }
  const std::uint64_t window = window_bytes(now);
  const std::size_t most = path_ ? kMostWants : settings_.window_pieces;
  for (; next_ < limit; ++next_) {
    const std::size_t i = next_;
    const std::uint64_t length = ends_[i + 1] - ends_[i];
    if (states_[i] != State::waiting) {
      continue;
    }
    if (asked_ > 0 && (asked_ >= most || asked_bytes_ + length > window)) {
      if (path_) {
        path_->limits();
      }
      return;
    }
    if (asked_ == 0) {
      progress_ = now;
      silent_since_ = silent_since_.value_or(now);
    }
    states_[i] = State::asked;
    if (path_ && stamps_[i].at == TimePoint()) {  // else it was asked for before: it may come for that
      stamps_[i] = path_->asked(now, asked_bytes_);
    }
    ++asked_;
    asked_bytes_ += length;
    asked_up_to_ = std::max(asked_up_to_, i + 1);
    out.push_back(OutgoingWant{peer_, Want{blob_, ends_[i], static_cast<std::uint32_t>(length), settings_.packed}});
  }
}

std::optional<std::size_t> WantSchedule::outstanding(const BlobPiece& piece) const {
  if (states_.empty() || piece.blob != blob_) {
    return std::nullopt;
  }
  const auto found = std::lower_bound(ends_.begin(), ends_.end() - 1, piece.offset);
  if (found == ends_.end() - 1 || *found != piece.offset) {
    return std::nullopt;
  }
  const auto index = static_cast<std::size_t>(found - ends_.begin());
  // A piece of an earlier want is as good: only what was never asked for, or is there, is turned away.
  if (states_[index] == State::arrived || piece.length != ends_[index + 1] - ends_[index]) {
    return std::nullopt;
  }
  return index;
}

void WantSchedule::arrived(TimePoint now, std::size_t index) {
  if (states_[index] == State::arrived) {
    return;
  }
  if (states_[index] == State::asked) {
    --asked_;
    asked_bytes_ -= ends_[index + 1] - ends_[index];
    if (path_) {
      path_->arrived(now, ends_[index + 1] - ends_[index], stamps_[index]);
    }
  }
  states_[index] = State::arrived;
  ++arrived_;
  while (first_open_ < states_.size() && states_[first_open_] == State::arrived) {
    ++first_open_;
  }
  gap_ += (now - progress_ - gap_) / 4;
  progress_ = now;
  patience_ = std::max(least_patience(), std::min(4 * gap_, settings_.again_at_most));
  silent_since_ = asked_ > 0 ? std::optional(now) : std::nullopt;
}

// Nothing can come sooner than the path's round trip.
Duration WantSchedule::least_patience() const {
  const Duration trips = path_ ? 2 * path_->round_trip() : Duration::zero();
  return std::max(settings_.again_after, std::min(trips, settings_.again_at_most));
}

void WantSchedule::take_back() {
  for (std::size_t i = first_open_; i < next_; ++i) {
    states_[i] = states_[i] == State::asked ? State::waiting : states_[i];
  }
  next_ = first_open_;
  asked_ = 0;
  asked_bytes_ = 0;
}

void WantSchedule::ask_again(TimePoint now, Duration pause) {
  take_back();
  ask_after_ = now + pause;
  pausing_ = true;
}

std::optional<TimePoint> WantSchedule::silent_since() const { return done() ? std::nullopt : silent_since_; }

std::optional<TimePoint> WantSchedule::next_deadline() const {
  if (done()) {
    return std::nullopt;
  }
  if (asked_ > 0) {
    return progress_ + patience_;
  }
  return pausing_ ? std::optional(ask_after_) : std::nullopt;
}

}  // namespace atl
