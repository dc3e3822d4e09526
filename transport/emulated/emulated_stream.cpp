#include "transport/emulated/emulated_stream.hpp"

#include <algorithm>
#include <cmath>

namespace atl {
namespace {

constexpr double kChunkSeconds = 0.5e-3;
constexpr std::uint64_t kLargestChunk = 256ULL << 10;
constexpr std::uint64_t kChunkWithoutLimit = 1ULL << 20;

Duration time_for(const LineWay* way, std::uint64_t bytes) {
  if (way == nullptr || way->bytes_per_second <= 0) {
    return {};
  }
  return Duration(std::llround(static_cast<double>(bytes) / way->bytes_per_second * 1e9));
}

bool limited(const LineWay* way) { return way != nullptr && way->bytes_per_second > 0; }

}  // namespace

EmulatedStream::EmulatedStream(const LinkTerms& terms, LineWay* out, LineWay* in, Rng rng)
    : terms_(terms), one_way_(terms.round_trip / 2), out_(out), in_(in), rng_(rng) {
  draw_next_loss();
}

EmulatedStream::~EmulatedStream() { give_up_turn(); }

std::uint64_t EmulatedStream::chunk_bytes() const {
  double rate = 0;
  for (const LineWay* way : {out_, in_}) {
    if (limited(way) && (rate <= 0 || way->bytes_per_second < rate)) {
      rate = way->bytes_per_second;
    }
  }
  if (rate <= 0) {
    return kChunkWithoutLimit;
  }
  return std::clamp(static_cast<std::uint64_t>(rate * kChunkSeconds), kSegmentBytes, kLargestChunk);
}

std::uint64_t EmulatedStream::may_leave(TimePoint now) {
  next_leave_.reset();
  std::uint64_t most = chunk_bytes();
  if (terms_.loss > 0) {
    settle_window(now);
    const double room = window_ - static_cast<double>(unacknowledged_);
    if (room < static_cast<double>(kSegmentBytes)) {
      nothing_waits();
      next_leave_ = acknowledgements_.front().at;
      return 0;
    }
    most = std::min(most, static_cast<std::uint64_t>(room));
  }
  if (unread_ >= kMostUnread || in_flight_ >= kMostInFlight) {
    nothing_waits();
    return 0;
  }
  const TimePoint queued = limited(in_) ? last_in_ - one_way_ - kQueue : TimePoint{};
  if (queued > now) {
    give_up_turn();
    held_ = queued;
    next_leave_ = queued;
    return 0;
  }
  if (!limited(out_) || (take_turn() && out_->free <= now)) {
    return most;
  }
  held_ = std::max(out_->free, now);
  next_leave_ = out_->free;
  return 0;
}

// True if it is the first of those that wait for the way out.
bool EmulatedStream::take_turn() {
  if (!in_turn_) {
    out_->turns.push_back(this);
    in_turn_ = true;
  }
  return out_->turns.front() == this;
}

void EmulatedStream::give_up_turn() {
  if (in_turn_) {
    std::erase(out_->turns, this);
    in_turn_ = false;
  }
}

// When the last of so many bytes that begin to leave at `start` has arrived.
TimePoint EmulatedStream::through_both(TimePoint start, std::uint64_t bytes) {
  TimePoint last_out = start;
  if (limited(out_)) {
    start = std::max(start, out_->free);
    out_->free = start + time_for(out_, bytes);
    last_out = out_->free;
  }
  TimePoint last_in = last_out + one_way_;
  if (limited(in_)) {
    in_->free = std::max(start + one_way_, in_->free) + time_for(in_, bytes);
    last_in = std::max(last_in, in_->free);
    last_in_ = last_in;
  }
  return last_in;
}

void EmulatedStream::left(TimePoint now, std::uint64_t bytes) {
  give_up_turn();
  const TimePoint start = held_ ? std::min(*held_, now) : now;
  if (terms_.loss > 0) {
    leave_with_losses(start, bytes);
  } else {
    arrive(through_both(start, bytes), bytes);
  }
}

void EmulatedStream::nothing_waits() {
  held_.reset();
  next_leave_.reset();
  give_up_turn();
}

void EmulatedStream::arrive(TimePoint at, std::uint64_t bytes) {
  if (!chunks_.empty()) {
    at = std::max(at, chunks_.back().at);  // in order
  }
  in_flight_ += bytes;
  chunks_.push_back({at, bytes});
}

std::uint64_t EmulatedStream::arrived(TimePoint now) {
  while (!chunks_.empty() && chunks_.front().at <= now) {
    unread_ += chunks_.front().bytes;
    in_flight_ -= chunks_.front().bytes;
    chunks_.pop_front();
  }
  return unread_;
}

std::optional<TimePoint> EmulatedStream::next_arrival() const { return chunks_.empty() ? std::nullopt : std::optional(chunks_.front().at); }

void EmulatedStream::handed_over(std::uint64_t bytes) { unread_ -= std::min(bytes, unread_); }

// ----------------------------------------------------------------------------------------------------------------- loss

void EmulatedStream::draw_next_loss() {
  if (terms_.loss > 0) {
    until_loss_ = static_cast<std::uint64_t>(std::log(1.0 - rng_.uniform()) / std::log1p(-terms_.loss));
  }
}

void EmulatedStream::leave_with_losses(TimePoint start, std::uint64_t bytes) {
  unacknowledged_ += bytes;
  while (bytes > 0) {
    const std::uint64_t segments = (bytes + kSegmentBytes - 1) / kSegmentBytes;
    const std::uint64_t well = std::min(until_loss_, segments);
    const std::uint64_t intact = std::min(bytes, well * kSegmentBytes);
    if (intact > 0) {
      const TimePoint at = through_both(start, intact);
      arrive(at, intact);
      acknowledgements_.push_back({at + one_way_, intact});
      bytes -= intact;
    }
    until_loss_ -= well;
    if (bytes == 0) {
      return;
    }
    const std::uint64_t lost = std::min(bytes, kSegmentBytes);
    const TimePoint would_arrive = through_both(start, lost);
    losses_.push_back({would_arrive - one_way_, would_arrive + one_way_});
    TimePoint at = would_arrive;
    do {
      through_both(start, lost);  // again
      at += terms_.round_trip;
    } while (rng_.chance(terms_.loss));
    arrive(at, lost);
    acknowledgements_.push_back({would_arrive + one_way_, lost});  // what came behind it is acknowledged, so it is known to be lost
    bytes -= lost;
    draw_next_loss();
  }
}

void EmulatedStream::settle_window(TimePoint now) {
  while (!losses_.empty() && losses_.front().noticed <= now) {
    const Loss loss = losses_.front();
    losses_.pop_front();
    if (loss.left > halved_) {
      window_ = std::max(window_ / 2, 2.0 * kSegmentBytes);
      threshold_ = window_;
      halved_ = loss.noticed;
    }
  }
  while (!acknowledgements_.empty() && acknowledgements_.front().at <= now) {
    acknowledge(acknowledgements_.front().bytes);
    acknowledgements_.pop_front();
  }
}

// A window that is not used does not grow.
void EmulatedStream::acknowledge(std::uint64_t bytes) {
  const auto acknowledged = static_cast<double>(bytes);
  if (2 * static_cast<double>(unacknowledged_) >= window_) {
    window_ += window_ < threshold_ ? acknowledged : acknowledged * kSegmentBytes / window_;
  }
  unacknowledged_ -= std::min(bytes, unacknowledged_);
}

}  // namespace atl
