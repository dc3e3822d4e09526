// Thousands of seeds of trouble. ATOLL_SIM_SEEDS: how many; ATOLL_SIM_SEED: only this one.
#include <cstdlib>
#include <string>

#include "tests/catch.hpp"
#include "tests/sim/cluster.hpp"

namespace {

using namespace atl;
using namespace atl::sim;

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

std::string simulate(std::uint64_t seed, std::size_t& commits) {
  Cluster cluster(draw_scenario(seed));
  const std::string failure = cluster.run();
  commits += cluster.checkers().commits();
  return failure;
}

}  // namespace

TEST_CASE("clusters in trouble stay safe, and go on once healed") {
  const std::uint64_t only = number_from("ATOLL_SIM_SEED", 0);
  const std::uint64_t first = only == 0 ? 1 : only;
  const std::uint64_t count = only == 0 ? number_from("ATOLL_SIM_SEEDS", 10000) : 1;
  std::size_t commits = 0;
  std::size_t failures = 0;
  std::string report;
  for (std::uint64_t seed = first; seed < first + count && failures < 10; ++seed) {
    const std::string failure = simulate(seed, commits);
    if (!failure.empty()) {
      ++failures;
      report += "\nATOLL_SIM_SEED=" + std::to_string(seed) + ": " + failure;
    }
  }
  INFO(report);
  REQUIRE(failures == 0);
  REQUIRE(commits > count);
}
