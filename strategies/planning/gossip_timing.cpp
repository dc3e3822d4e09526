#include "strategies/planning/gossip_timing.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "strategies/pairing.hpp"
#include "transport/base/check.hpp"
#include "transport/base/rng.hpp"

namespace atl {
namespace {

constexpr std::uint32_t kTrialsTimesIslands = 1U << 20U;

double draw(const LogNormal& times, Rng& rng) { return std::exp(times.mu + times.sigma * rng.normal()); }

// Until the root has the sum: up a binary tree, each level waiting for the later of two messages.
double up(const LogNormal& message, std::uint32_t islands, Rng& rng) {
  std::vector<double> ready(islands, 0.0);
  while (ready.size() > 1) {
    for (std::size_t i = 0; i < ready.size() / 2; ++i) {
      const double left = ready[2 * i] + draw(message, rng);
      const double right = ready[2 * i + 1] + draw(message, rng);
      ready[i] = std::max(left, right);
    }
    ready.resize(ready.size() / 2);
  }
  return ready.front();
}

// Until the last leaf has what the root sends at `start`.
double down(const LogNormal& message, std::uint32_t islands, double start, Rng& rng) {
  std::vector<double> has{start};
  while (has.size() < islands) {
    std::vector<double> next;
    for (const double time : has) {
      next.push_back(time + draw(message, rng));
      next.push_back(time + draw(message, rng));
    }
    has = std::move(next);
  }
  return *std::max_element(has.begin(), has.end());
}

}  // namespace

double mean_of(const LogNormal& times) { return std::exp(times.mu + times.sigma * times.sigma / 2); }

double mean_of_later(const LogNormal& times) { return (1.0 + std::erf(times.sigma / 2)) * mean_of(times); }

AveragingTimes simulate_averaging(const LogNormal& message, std::uint32_t islands, std::uint32_t trials, std::uint64_t seed) {
  ATOLL_CHECK(islands >= 2 && (islands & (islands - 1)) == 0, "a binary tree has a power of two of leaves");
  Rng rng(seed, stream_of("averaging", islands));
  AveragingTimes sum;
  for (std::uint32_t trial = 0; trial < trials; ++trial) {
    sum.tree += down(message, islands, up(message, islands, rng), rng);
    for (int way = 0; way < 2; ++way) {
      const double one = draw(message, rng);
      sum.pair += std::max(one, draw(message, rng));
    }
  }
  return {sum.tree / trials, sum.pair / trials};
}

BlockingTimes simulate_blocking(const BlockingQuestion& question) {
  std::vector<IslandId> islands;
  for (std::uint32_t i = 0; i < question.islands; ++i) {
    std::string name = std::to_string(i);
    islands.emplace_back(std::string(10 - name.size(), '0') + name);  // in the order of numbers
  }
  const auto place = [](const IslandId& island) { return static_cast<std::size_t>(std::stoul(island.text)); };
  Rng rng(question.seed, stream_of("blocking", question.islands));
  double all = 0;
  std::vector<double> pairs(question.islands, 0.0);
  double alone = 0;
  for (std::uint32_t round = 1; round <= question.rounds; ++round) {
    double slowest = 0;
    for (std::uint32_t i = 0; i < question.islands; ++i) {
      double time = 0;
      for (std::uint32_t step = 0; step < question.inner_steps; ++step) {
        time += draw(question.step, rng);
      }
      slowest = std::max(slowest, time);
      pairs[i] += time;
      alone += time / question.islands;
    }
    all += slowest;
    for (const std::vector<IslandId>& group : pairing(question.seed, Round(round), islands)) {
      double later = 0;
      for (const IslandId& member : group) {
        later = std::max(later, pairs[place(member)]);
      }
      for (const IslandId& member : group) {
        pairs[place(member)] = later;
      }
    }
  }
  return {all, *std::max_element(pairs.begin(), pairs.end()), alone};
}

std::vector<GossipTimingRow> gossip_timing_table(std::uint32_t rounds) {
  const LogNormal times;
  const double unit = std::exp(times.mu);
  std::vector<GossipTimingRow> rows;
  for (std::uint32_t islands = 2; islands <= 1024; islands *= 2) {
    const AveragingTimes averaging = simulate_averaging(times, islands, kTrialsTimesIslands / islands, 1);
    const BlockingTimes blocking = simulate_blocking({islands, 100, rounds, times, 1});
    rows.push_back({islands, std::log2(static_cast<double>(islands)), averaging.tree / unit, averaging.pair / unit,
                    2 * mean_of_later(times) / unit, blocking.all / blocking.pairs, blocking.all / blocking.alone});
  }
  return rows;
}

}  // namespace atl
