#include <algorithm>

#include "coordinator/decide.hpp"

namespace atl::coordinator {

std::vector<WaitShare> decide_wait_shares(const RoundTimes& times, double wait_seconds) {
  std::vector<WaitShare> shares;
  double left = std::max(wait_seconds, 0.0);
  // Backwards from the commit, which ended the wait.
  const auto take = [&](WaitFor what, const IslandId& island, const IslandId& from, Duration at_most) {
    const double share = std::min(left, std::max(seconds(at_most), 0.0));
    if (share > 0) {
      shares.push_back(WaitShare{what, island, from, share});
      left -= share;
    }
  };
  take(WaitFor::commit, {}, {}, times.committed - times.exchanged);
  take(WaitFor::link, times.last_exchanged, times.slowest, times.exchanged - times.planned);
  take(WaitFor::ready, times.last_ready, {}, Duration::max());
  return shares;
}

}  // namespace atl::coordinator
