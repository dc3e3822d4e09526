// Checkpoints survive what a disk does. ATOLL_SIM_DISK_SEEDS: how many seeds; ATOLL_SIM_SEED: only this one.
#include "tests/sim/checkpoint_world.hpp"

#include <string>

#include "tests/catch.hpp"
#include "tests/day.hpp"
#include "transport/base/log.hpp"

TEST_CASE("a checkpoint that was written is there after any loss of power, and what verifies is what was written") {
  const atl_test::Seeds seeds = atl_test::seeds_of_the_day("ATOLL_SIM_DISK_SEEDS", 4000);
  const std::uint64_t count = seeds.count;
  atl::sim::CheckpointWorldCounts counts;
  atl::set_log_sink([](atl::LogLevel, std::string_view) {});
  std::string wrong;
  std::uint64_t seed = seeds.first;
  for (; seed < seeds.end() && wrong.empty(); ++seed) {
    wrong = atl::sim::run_checkpoint_world(seed, counts);
  }
  atl::set_log_sink({});
  INFO("ATOLL_SIM_SEED=" << seed - 1);
  REQUIRE(wrong == "");
  if (!seeds.one) {
    CHECK(counts.written > 3 * count);
    CHECK(counts.refused > count / 2);
    CHECK(counts.crashes > count);
  }
}
