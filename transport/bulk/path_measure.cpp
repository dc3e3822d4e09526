#include "transport/bulk/path_measure.hpp"

#include <algorithm>
#include <utility>

namespace atl {
namespace {

constexpr unsigned kTrips = 5;
constexpr std::size_t kFirstPieces = 4;
constexpr std::uint64_t kEnough = 32 * kProbeBytes;          // in a part of the time, for its rate to be one
constexpr std::size_t kMostPieces = 256;                     // 16 MiB: a path of 1 Gbit/s and 130 ms
constexpr Duration kQueued = std::chrono::milliseconds(50);  // beyond two round trips: more would only wait on the way
constexpr Duration kPauseAfterRefusal = std::chrono::milliseconds(20);

}  // namespace

void PathMeasure::begin(const std::vector<IslandId>& in_turn, Duration each, TimePoint now) {
  waiting_.assign(in_turn.begin(), in_turn.end());
  each_ = each;
  turn_.reset();
  next_turn(now);
}

void PathMeasure::next_turn(TimePoint now) {
  turn_.reset();
  asked_.clear();
  look_ = now;
  if (!waiting_.empty()) {
    Turn turn;
    turn.peer = waiting_.front();
    turn.window = kFirstPieces;
    turn.begun = now;
    turn.end = now + each_;
    turn_ = std::move(turn);
    waiting_.pop_front();
  }
}

MeasuredPath PathMeasure::finding() const {
  MeasuredPath found{turn_->peer, turn_->shortest.value_or(Duration::zero()), 0};
  const std::uint64_t most = *std::ranges::max_element(turn_->came);
  if (most >= kEnough) {
    found.bytes_per_second = static_cast<double>(most) / seconds(each_ / kParts);
  } else if (turn_->bytes > 0) {
    // Without the way of the first want.
    const Duration took = std::max(Duration(1), turn_->last - *turn_->rate_from);
    found.bytes_per_second = static_cast<double>(turn_->bytes) / seconds(took - std::min(found.round_trip, took / 2));
    // Every trip may have waited behind what others have on the line. So what came after the first piece has a say, too.
    if (turn_->last > *turn_->first) {
      found.bytes_per_second =
          std::min(found.bytes_per_second, static_cast<double>(turn_->bytes - kProbeBytes) / seconds(turn_->last - *turn_->first));
    }
  }
  return found;
}

std::vector<MeasuredPath> PathMeasure::take_findings(TimePoint now) {
  while (turn_ && now >= turn_->end) {
    findings_.push_back(finding());
    next_turn(turn_->end + each_ > now ? turn_->end : now);
  }
  return std::exchange(findings_, {});
}

std::span<std::byte> PathMeasure::destination(const IslandId& from, const BlobPiece& piece) {
  if (!turn_ || turn_->peer != from || !asked_.contains(piece.blob.round)) {
    return {};
  }
  sink_.resize(piece.length);
  return sink_;
}

void PathMeasure::arrived(TimePoint now, const IslandId& from, const BlobPiece& piece) {
  const auto asked = asked_.find(piece.blob.round);
  if (!turn_ || turn_->peer != from || asked == asked_.end()) {
    return;
  }
  const Duration took = now - asked->second;
  asked_.erase(asked);
  if (piece.length < kProbeBytes) {
    ++turn_->trips;
    turn_->shortest = std::min(turn_->shortest.value_or(took), took);
    return;
  }
  turn_->bytes += piece.length;
  turn_->first = turn_->first.value_or(now);
  turn_->last = now;
  turn_->took = took;
  if (took < 2 * *turn_->shortest + kQueued) {
    turn_->window = std::min(turn_->window + 1, kMostPieces);
  }
  const auto part = static_cast<std::size_t>((now - turn_->begun) * static_cast<Duration::rep>(kParts) / each_);
  turn_->came[std::min(part, kParts - 1)] += piece.length;
}

// A peer that does not know this kind of blob.
void PathMeasure::gone(TimePoint now, const IslandId& from, const Gone& gone) {
  if (turn_ && turn_->peer == from && asked_.erase(gone.blob.round) > 0) {
    turn_->end = now;
  }
}

void PathMeasure::not_sent(TimePoint now, const OutgoingWant& want) {
  if (turn_ && turn_->peer == want.to) {
    asked_.erase(want.want.blob.round);
    look_ = now + kPauseAfterRefusal;
  }
}

bool PathMeasure::reads(const BlobId& blob) const { return blob.kind == BlobKind::probe && blob.round > Round(0) && blob.part == 0; }

// Whether one more full piece comes before the time is over, if it takes as long as the newest.
bool PathMeasure::fits(TimePoint now) const { return now + turn_->took < turn_->end; }

OutgoingWant PathMeasure::ask(std::uint32_t length, TimePoint now) {
  Want want;
  want.blob.kind = BlobKind::probe;
  want.blob.round = Round(++number_);  // a want that equals one that waits is not served twice
  want.length = length;
  asked_.emplace(want.blob.round, now);
  return {turn_->peer, want};
}

std::vector<OutgoingWant> PathMeasure::take_wants(TimePoint now) {
  std::vector<OutgoingWant> wants;
  if (!turn_ || now >= turn_->end || (look_ && now < *look_)) {
    return wants;
  }
  look_.reset();
  const bool far = now >= turn_->begun + each_ / 8;  // its trips take too long to wait for all of them
  if (turn_->trips < kTrips && !(far && turn_->trips > 0)) {
    if (asked_.empty()) {
      wants.push_back(ask(1, now));
    }
    return wants;
  }
  turn_->rate_from = turn_->rate_from.value_or(now);
  while (asked_.size() < turn_->window && fits(now)) {
    wants.push_back(ask(kProbeBytes, now));
  }
  return wants;
}

std::optional<TimePoint> PathMeasure::next_deadline() const {
  return turn_ ? std::optional(std::min(turn_->end, look_.value_or(turn_->end))) : std::nullopt;
}

}  // namespace atl
