// Pairs under every fault: both of a pair come to the same decision.
#include <string>

#include "tests/catch.hpp"
#include "tests/day.hpp"
#include "tests/sim/pair_world.hpp"

using namespace atl::sim;

TEST_CASE("pairs: under loss, cuts, deaths, joins and an absent coordinator all of a pair or group decide the same") {
  const atl_test::Seeds of_day = atl_test::seeds_of_the_day("ATOLL_SIM_SEEDS", 1000);
  const std::uint64_t seeds = of_day.count;
  PairWorldCounts counts;
  for (std::uint64_t seed = of_day.first; seed < of_day.end(); ++seed) {
    const std::string wrong = run_pair_world(seed, counts);
    INFO("ATOLL_SIM_SEED=" << seed);
    REQUIRE(wrong == "");
  }
  INFO("met " << counts.met << ", alone " << counts.alone << ", doubts " << counts.doubts << ", handed on " << counts.handed_on
              << ", forgotten " << counts.forgotten << ", deaths " << counts.deaths << ", joins " << counts.joins);
  if (of_day.one) {
    return;
  }
  CHECK(counts.met > 5 * seeds);  // it is not by never meeting that they agree
  CHECK(counts.doubts > 0);
  CHECK(counts.handed_on > 0);
  CHECK(counts.forgotten > 0);
  CHECK(counts.deaths > seeds);
  CHECK(counts.joins > seeds);
}
