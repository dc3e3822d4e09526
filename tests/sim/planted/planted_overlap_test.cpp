// The agent's decisions were built with ATOLL_PLANTED_OVERLAP_BUG: orders are given as if one round were in flight at a time, so a trainer
// may run past the start of a round that it has no orders for yet, and publishes it late. The mean is still that of what was published and
// all digests agree, so only who compares with the schedule from outside can see it.
#include <string>

#include "tests/catch.hpp"
#include "tests/sim/cluster.hpp"

TEST_CASE("the simulator finds an agent whose trainer runs past the start of a round that is not planned") {
  constexpr std::uint64_t kSeeds = 2000;
  std::string found;
  std::uint64_t seed = 1;
  for (; seed <= kSeeds && found.empty(); ++seed) {
    atl::sim::Cluster cluster(atl::sim::draw_scenario(seed));
    found = cluster.run();
  }
  INFO("seeds tried: " << seed - 1 << "\n" << found);
  REQUIRE(found.find("the schedule says") != std::string::npos);
  WARN("seed " << seed - 1 << ": " << found);
}
