#include "transport/bulk/path_window.hpp"

#include <algorithm>

namespace atl {
namespace {

constexpr double kGain = 2.0;
constexpr double kBeyondAnyBudget = 1e18;
constexpr double kProbing = 0.5;  // of the product, while the round trip is looked at anew
constexpr int kFreshTrips = 20;
constexpr Duration kLongestTrip = std::chrono::seconds(8);  // what takes longer was not ready at the owner
constexpr Duration kInUse = std::chrono::seconds(30);       // a window of which nothing was asked for so long needs nothing

}  // namespace

double PathWindow::bytes_per_second() const { return *std::ranges::max_element(rates_); }

bool PathWindow::is_stale(TimePoint now) const { return now - refreshed_ > std::max<Duration>(kFresh, kFreshTrips * round_trip_); }

double PathWindow::product() const { return bytes_per_second() * seconds(round_trip_ + kScheduling); }

PathWindow::Asked PathWindow::asked(TimePoint now, std::uint64_t outstanding) {
  if (outstanding == 0) {
    first_at_ = delivered_at_ = now;
  }
  last_asked_ = now;
  const bool clean = outstanding == 0 || static_cast<double>(outstanding) <= kProbing * product();
  clean_asked_ = clean ? now : clean_asked_;
  return Asked{now, first_at_, delivered_at_, delivered_, clean};
}

void PathWindow::arrived(TimePoint now, std::uint64_t bytes, const Asked& asked) {
  delivered_ += bytes;
  delivered_at_ = now;
  first_at_ = asked.at;
  const Duration trip = std::max<Duration>(now - asked.at, Duration(1));
  const bool renews = is_stale(now) && asked.clean && trip <= kLongestTrip;
  if (round_trip_ == Duration::zero() || trip <= round_trip_ || renews) {
    round_trip_ = trip;
    refreshed_ = now;
  }
  if (asked.delivered >= round_ends_) {
    // A round is over: a piece has come that was asked for when the round began, or later.
    if (limited_) {
      round_ = (round_ + 1) % kRounds;
      rates_[round_] = 0;
    }
    round_ends_ = delivered_;
    limited_ = false;
  }
  const Duration took = std::max({now - asked.delivered_at, asked.at - asked.first_at, Duration(1)});
  rates_[round_] = std::max(rates_[round_], static_cast<double>(delivered_ - asked.delivered) / seconds(took));
}

std::uint64_t PathWindow::need(TimePoint now) const {
  if (delivered_ == 0) {
    return kFirst;
  }
  if (is_stale(now) && now - clean_asked_ > kLongestTrip) {
    return static_cast<std::uint64_t>(std::min(product() * kProbing, kBeyondAnyBudget));
  }
  return std::max(connections_ * kLeastOfEach, static_cast<std::uint64_t>(std::min(product() * kGain, kBeyondAnyBudget)));
}

std::shared_ptr<PathWindow> PathWindows::to(const IslandId& peer) {
  std::shared_ptr<PathWindow>& window = windows_[peer];
  if (!window) {
    window = std::make_shared<PathWindow>();
  }
  return window;
}

std::uint64_t PathWindows::bytes(const PathWindow& window, TimePoint now) const {
  const std::uint64_t need = window.need(now);
  double all = 0;
  for (const auto& [peer, other] : windows_) {
    if (other.get() == &window || now - other->last_asked() < kInUse) {
      all += static_cast<double>(other->need(now));
    }
  }
  if (all <= static_cast<double>(budget_)) {
    return need;
  }
  return static_cast<std::uint64_t>(static_cast<double>(need) * (static_cast<double>(budget_) / all));
}

void PathWindows::keep_only(const std::set<IslandId>& peers) {
  std::erase_if(windows_, [&](const auto& item) { return !peers.contains(item.first); });
}

}  // namespace atl
