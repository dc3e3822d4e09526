#include "agent/service/state_watch.hpp"

#include <utility>

namespace atl::agent {
namespace {

constexpr auto kLookEvery = std::chrono::seconds(1);

}  // namespace

std::optional<Error> StateWatch::pump(TimePoint now) {
  if (lost_ || now < next_) {
    return std::nullopt;
  }
  next_ = now + kLookEvery;
  const Status held = lock_->still_held();
  if (std::exchange(missed_, !held.ok()) && missed_) {
    lost_ = held.error();
    return lost_;
  }
  return std::nullopt;
}

}  // namespace atl::agent
