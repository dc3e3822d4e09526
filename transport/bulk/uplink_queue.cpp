#include "transport/bulk/uplink_queue.hpp"

#include <algorithm>
#include <utility>

#include "transport/base/check.hpp"

namespace atl {
namespace {

constexpr double kBurstSeconds = 0.02;  // what a thread that is woken late makes up for
constexpr double kLeastBurst = 16384;

std::uint64_t burst_of(double bits_per_second) {
  return static_cast<std::uint64_t>(std::max(kLeastBurst, bits_per_second / 8.0 * kBurstSeconds));
}

}  // namespace

UplinkQueue::UplinkQueue(double bits_per_second, std::size_t wants_per_peer, TimePoint now)
    : bucket_(bits_per_second, burst_of(bits_per_second), now), wants_per_peer_(wants_per_peer) {}

void UplinkQueue::add(const IslandId& peer, const WantOver& asked) {
  const Want& want = asked.want;
  if (turn_ && turn_->peer == peer && turn_->served.piece.blob == want.blob && turn_->served.piece.offset == want.offset) {
    return;
  }
  waiting_[peer].push(asked, wants_per_peer_);
}

void UplinkQueue::drop(const IslandId& peer) {
  waiting_.erase(peer);
  if (turn_ && turn_->peer == peer) {
    turn_.reset();
    allowed_.reset();
  }
}

void UplinkQueue::set_rate(double bits_per_second, TimePoint now) {
  if (bits_per_second != bucket_.bits_per_second()) {
    bucket_.set_rate(bits_per_second, burst_of(bits_per_second), now);
  }
}

std::vector<std::pair<IslandId, WantOver>> UplinkQueue::take_all() {
  std::vector<std::pair<IslandId, WantOver>> all;
  if (turn_) {
    const BlobPiece& piece = turn_->served.piece;
    all.emplace_back(turn_->peer, WantOver{Want{piece.blob, piece.offset, piece.length, piece.packed > 0}, turn_->connection});
  }
  for (auto& [peer, wants] : waiting_) {
    while (!wants.empty()) {
      all.emplace_back(peer, wants.pop());
    }
  }
  turn_.reset();
  allowed_.reset();
  waiting_.clear();
  return all;
}

// The next want, peers in turn, whose piece is there.
bool UplinkQueue::choose(const Answer& answer) {
  while (!waiting_.empty()) {
    auto next = waiting_.upper_bound(last_);
    if (next == waiting_.end()) {
      next = waiting_.begin();
    }
    const IslandId peer = next->first;
    const WantOver first = next->second.pop();
    if (next->second.empty()) {
      waiting_.erase(next);
    }
    if (std::optional<Served> served = answer(peer, first)) {
      last_ = peer;
      turn_ = Turn{peer, *std::move(served), first.connection};
      return true;
    }
  }
  return false;
}

const UplinkQueue::Turn* UplinkQueue::ready(TimePoint now, const Answer& answer) {
  if (!turn_ && !choose(answer)) {
    allowed_.reset();
    bucket_.forgo(now);
    return nullptr;
  }
  allowed_ = bucket_.next_allowed(now, turn_->served.payload.bytes.size());
  return *allowed_ <= now ? &*turn_ : nullptr;
}

Served UplinkQueue::pop() {
  ATOLL_CHECK(turn_.has_value(), "a piece is taken once it is ready");
  Served served = std::move(turn_->served);
  turn_.reset();
  allowed_.reset();
  return served;
}

}  // namespace atl
