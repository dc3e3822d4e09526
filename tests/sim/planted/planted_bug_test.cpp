// A simulation proves nothing until a planted bug is caught. These cores were built with ATOLL_PLANTED_BUG: the coordinator does not
// compare the epoch and attempt of results, so that those of a round's earlier attempt, among other members, count for the present one;
// and the one of a pair who decides does not wait for the other's promise.
#include <string>

#include "tests/catch.hpp"
#include "tests/sim/cluster.hpp"
#include "tests/sim/pair_world.hpp"

TEST_CASE("the simulator finds a coordinator that counts what was said of an earlier attempt") {
  constexpr std::uint64_t kSeeds = 10000;
  std::string stuck;   // a run that never goes on
  std::string unsafe;  // a checker's finding
  std::uint64_t seed = 1;
  for (; seed <= kSeeds && (stuck.empty() || unsafe.empty()); ++seed) {
    atl::sim::Cluster cluster(atl::sim::draw_scenario(seed));
    const std::string found = cluster.run();
    if (!found.empty()) {
      (cluster.checkers().failure().empty() ? stuck : unsafe) = "seed " + std::to_string(seed) + ": " + found;
    }
  }
  INFO("seeds tried: " << seed - 1 << "\n" << stuck << "\n" << unsafe);
  REQUIRE_FALSE(stuck.empty());
  REQUIRE_FALSE(unsafe.empty());
  REQUIRE(unsafe.find("round") != std::string::npos);
  WARN(stuck << "\n" << unsafe);
}

TEST_CASE("the simulator finds a pair whose decider does not wait for the promise") {
  atl::sim::PairWorldCounts counts;
  std::string wrong;
  std::uint64_t seed = 0;
  while (wrong.empty() && seed < 1000) {
    wrong = atl::sim::run_pair_world(++seed, counts);
  }
  INFO("seeds tried: " << seed);
  REQUIRE(wrong.find("which went alone") != std::string::npos);
}
