// Pairs under every fault: both of a pair come to the same decision.
#include <cstdlib>
#include <string>

#include "tests/catch.hpp"
#include "tests/sim/pair_world.hpp"

using namespace atl::sim;

TEST_CASE("pairs: under loss, cuts, deaths, joins and an absent coordinator all of a pair or group decide the same") {
  const char* wanted = std::getenv("ATOLL_SIM_SEEDS");
  const std::uint64_t seeds = wanted != nullptr ? std::stoull(wanted) : 2000;
  PairWorldCounts counts;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const std::string wrong = run_pair_world(seed, counts);
    INFO("seed " << seed);
    REQUIRE(wrong == "");
  }
  INFO("met " << counts.met << ", alone " << counts.alone << ", doubts " << counts.doubts << ", handed on " << counts.handed_on
              << ", forgotten " << counts.forgotten << ", deaths " << counts.deaths << ", joins " << counts.joins);
  CHECK(counts.met > 5 * seeds);  // it is not by never meeting that they agree
  CHECK(counts.doubts > 0);
  CHECK(counts.handed_on > 0);
  CHECK(counts.forgotten > 0);
  CHECK(counts.deaths > seeds);
  CHECK(counts.joins > seeds);
}
