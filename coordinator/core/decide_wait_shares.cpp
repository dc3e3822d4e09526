#include <algorithm>

#include "coordinator/core/decide.hpp"

namespace atl::coordinator {

std::vector<WaitShare> decide_wait_shares(std::span<const RoundTimes> rounds, double wait_seconds, const IslandId& self) {
  std::vector<WaitShare> shares;
  double left = std::max(wait_seconds, 0.0);
  // Backwards from the commit, which ended the wait.
  const auto take = [&](WaitFor what, const IslandId& island, const IslandId& from, Duration at_most) {
    const double share = std::min(left, std::max(seconds(at_most), 0.0));
    if (!(share > 0)) {
      return;
    }
    left -= share;
    if (!shares.empty() && shares.back().what == what && shares.back().island == island && shares.back().from == from) {
      shares.back().seconds += share;
    } else {
      shares.push_back(WaitShare{what, island, from, share});
    }
  };
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    const RoundTimes& round = rounds[i];
    if (i + 1 < rounds.size() && rounds[i + 1].committed > round.exchanged) {
      take(WaitFor::commit, {}, {}, round.committed - rounds[i + 1].committed);
      continue;
    }
    take(WaitFor::commit, {}, {}, round.committed - round.exchanged);
    take(WaitFor::link, round.last_exchanged, round.slowest, round.exchanged - round.planned);
    const bool own = round.last_ready == self;
    take(own ? WaitFor::commit : WaitFor::ready, own ? IslandId() : round.last_ready, {}, Duration::max());
    break;
  }
  return shares;
}

}  // namespace atl::coordinator
