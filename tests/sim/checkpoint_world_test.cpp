// Checkpoints survive what a disk does. ATOLL_SIM_DISK_SEEDS: how many seeds; ATOLL_SIM_SEED: only this one.
#include "tests/sim/checkpoint_world.hpp"

#include <cstdlib>
#include <string>

#include "tests/catch.hpp"
#include "transport/base/log.hpp"

TEST_CASE("a checkpoint that was written is there after any loss of power, and what verifies is what was written") {
  const char* only = std::getenv("ATOLL_SIM_SEED");
  const char* many = std::getenv("ATOLL_SIM_DISK_SEEDS");
  const std::uint64_t first = only == nullptr ? 1 : std::strtoull(only, nullptr, 10);
  const std::uint64_t count = only != nullptr ? 1 : many == nullptr ? 20000 : std::strtoull(many, nullptr, 10);
  atl::sim::CheckpointWorldCounts counts;
  atl::set_log_sink([](atl::LogLevel, std::string_view) {});
  std::string wrong;
  std::uint64_t seed = first;
  for (; seed < first + count && wrong.empty(); ++seed) {
    wrong = atl::sim::run_checkpoint_world(seed, counts);
  }
  atl::set_log_sink({});
  INFO("ATOLL_SIM_SEED=" << seed - 1);
  REQUIRE(wrong == "");
  if (only == nullptr) {
    CHECK(counts.written > 3 * count);
    CHECK(counts.refused > count / 2);
    CHECK(counts.crashes > count);
  }
}
