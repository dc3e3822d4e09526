// NoLoCo, arXiv:2506.10911, §5.3: what gossip saves in time.
#include "strategies/planning/gossip_timing.hpp"

#include <cmath>

#include "tests/catch.hpp"

using namespace atl;

TEST_CASE("NoLoCo §5.3: with equal messages a tree takes log2(n) times a pair's time", "[noloco]") {
  for (const std::uint32_t islands : {2U, 8U, 64U, 1024U}) {
    const AveragingTimes times = simulate_averaging({0.0, 0.0}, islands, 3, 1);
    CHECK(times.pair == Approx(2.0));
    CHECK(times.tree == Approx(2.0 * std::log2(static_cast<double>(islands))));
  }
}

TEST_CASE("NoLoCo §5.3: the closed form of the later of two log-normal times, within 1 % of Monte Carlo", "[noloco]") {
  for (const double sigma : {0.25, 0.70710678118, 1.0}) {
    CAPTURE(sigma);
    const LogNormal times{1.0, sigma};
    CHECK(simulate_averaging(times, 2, 400'000, 3).pair == Approx(2 * mean_of_later(times)).epsilon(0.01));
  }
  CHECK(mean_of_later({0.0, 0.0}) == Approx(1.0));
}

TEST_CASE("NoLoCo §5.3: with random messages too the ratio grows with the logarithm of the islands", "[noloco]") {
  double before = 0;
  double first_step = 0;
  for (std::uint32_t islands = 4; islands <= 256; islands *= 4) {
    const AveragingTimes times = simulate_averaging({1.0, 0.70710678118}, islands, 400'000 / islands, 5);
    const double ratio = times.tree / times.pair;
    CAPTURE(islands, ratio);
    CHECK(ratio > 0.8 * std::log2(static_cast<double>(islands)));
    if (before > 0) {
      first_step = first_step > 0 ? first_step : ratio - before;
      CHECK(ratio - before == Approx(first_step).epsilon(0.35));  // equal steps for equal factors
    }
    before = ratio;
  }
}

TEST_CASE("NoLoCo figure 5B: at 1,024 islands and 100 inner steps all wait about 20 % longer than pairs", "[noloco]") {
  const BlockingTimes times = simulate_blocking({1024, 100, 30, {}, 1});
  CAPTURE(times.all / times.pairs, times.all / times.alone);
  CHECK(times.all / times.pairs > 1.12);
  CHECK(times.all / times.pairs < 1.28);
  const BlockingTimes few = simulate_blocking({2, 100, 200, {}, 1});
  CHECK(few.all == Approx(few.pairs));  // two islands are a pair
}
