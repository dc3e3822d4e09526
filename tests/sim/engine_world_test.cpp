// Sync engines in trouble. ATOLL_SIM_ENGINE_SEEDS: how many seeds; ATOLL_SIM_SEED: only this one.
#include "tests/sim/engine_world.hpp"

#include <chrono>
#include <string>

#include "tests/catch.hpp"
#include "tests/day.hpp"
#include "transport/base/log.hpp"

TEST_CASE("worlds of engines that found bugs stay safe") {
  // 3272, 4160: a fetch whose size only its source knew, resumed with every piece there, waited for ever.
  for (const std::uint64_t seed : {3272, 4160}) {
    INFO("ATOLL_SIM_SEED=" << seed);
    atl::sim::EngineWorldCounts counts;
    REQUIRE(atl::sim::run_engine_world(seed, counts) == "");
  }
}

TEST_CASE("engines in trouble come to the same state, which is the mean of their contributions, and catch up to it") {
  const atl_test::Seeds seeds = atl_test::seeds_of_the_day("ATOLL_SIM_ENGINE_SEEDS", 1000);
  const std::uint64_t count = seeds.count;
  atl::sim::EngineWorldCounts counts;
  atl::set_log_sink([](atl::LogLevel, std::string_view) {});
  const auto start = std::chrono::steady_clock::now();
  std::string wrong;
  std::uint64_t seed = seeds.first;
  for (; seed < seeds.end() && wrong.empty(); ++seed) {
    wrong = atl::sim::run_engine_world(seed, counts);
  }
  const double minutes = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / 60;
  atl::set_log_sink({});
  INFO("ATOLL_SIM_SEED=" << seed - 1);
  REQUIRE(wrong == "");
  WARN(count << " seeds, " << static_cast<std::uint64_t>(static_cast<double>(count) / minutes) << " a minute: " << counts.rounds
             << " rounds in " << counts.attempts << " attempts, " << counts.crashes << " crashes, " << counts.loaded
             << " checkpoints loaded, " << counts.caught_up << " times caught up, " << counts.broken << " refused or given up");
  if (!seeds.one) {
    CHECK(counts.attempts > counts.rounds);
    CHECK(counts.caught_up > count / 2);
    CHECK(counts.loaded > count / 10);
  }
}
