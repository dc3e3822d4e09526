// A trainer that takes long to start, as an interpreter with its libraries does: nobody waits for it.
#include <algorithm>
#include <string>

#include "tests/catch.hpp"
#include "tests/sim/stories.hpp"

using namespace atl;
using namespace atl::sim;
using std::chrono::milliseconds;
using std::chrono::minutes;
using namespace std::chrono_literals;

namespace {

// Messages come in the order in which they were sent, as over one connection: an order that overtakes its epoch waits to be sent again.
Scenario in_order(std::uint32_t islands, std::uint32_t min, std::uint64_t rounds) {
  Scenario scenario = calm(islands, min, rounds);
  scenario.jitter = 0ms;
  return scenario;
}

// The longest time without a commit from now on, while so many more rounds are committed.
Duration longest_stop(Cluster& cluster, std::uint64_t rounds) {
  const TimePoint limit = cluster.timeline().now() + minutes(20);
  Round newest = cluster.view()->committed;
  const Round last(newest.value + rounds);
  TimePoint since = cluster.timeline().now();
  Duration longest{};
  while (newest < last && cluster.timeline().now() < limit) {
    cluster.run_for(milliseconds(20));
    longest = std::max<Duration>(longest, cluster.timeline().now() - since);
    if (cluster.view()->committed > newest) {
      newest = cluster.view()->committed;
      since = cluster.timeline().now();
    }
  }
  REQUIRE(newest >= last);
  return longest;
}

}  // namespace

TEST_CASE("an agent that was killed and is back is let in when its trainer is ready, and keeps nobody waiting before") {
  for (const double factor : {0.0, 3.0}) {
    Scenario scenario = in_order(3, 2, 80);
    scenario.spec.islands.straggler_factor = factor;
    Cluster cluster(scenario);
    cluster.start();
    REQUIRE(cluster.run_until_committed(Round(6), minutes(2)));
    cluster.host(1).crash();
    cluster.run_for(8s);  // its silence is noticed
    cluster.host(1).set_trainer_start(15s);
    cluster.host(1).start();
    CHECK(longest_stop(cluster, 40) <= 2s);
    finish(cluster);
    CHECK(events(cluster, "island_left") == 1);
    CHECK(events(cluster, "island_joined") == 1);
    CHECK(cluster.host(1).trainer_starts() == 2);
  }
}

TEST_CASE("an island whose trainer was killed is left out once the others are ready, and is let in with the next trainer") {
  for (const milliseconds at : {0ms, 150ms, 300ms, 450ms, 600ms}) {
    Cluster cluster(in_order(3, 2, 80));
    cluster.start();
    REQUIRE(cluster.run_until_committed(Round(6), minutes(2)));
    cluster.run_for(at);
    cluster.host(1).set_trainer_start(15s);
    cluster.host(1).crash_trainer();
    CHECK(longest_stop(cluster, 40) <= 2s);
    finish(cluster);
    CHECK(events(cluster, "island_left") == 1);
    CHECK(events(cluster, "island_joined") == 1);
    CHECK(cluster.view()->reason.text.find("its trainer ended in round") != std::string::npos);
  }
}

TEST_CASE("where no fewer islands may train, a killed trainer is waited for") {
  Cluster cluster(in_order(3, 3, 12));
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(3), minutes(2)));
  cluster.host(1).set_trainer_start(15s);
  cluster.host(1).crash_trainer();
  CHECK(longest_stop(cluster, 2) >= 15s);
  finish(cluster);
  CHECK(events(cluster, "island_left") == 0);
}

TEST_CASE("gradients are exchanged in every step without an island whose trainer starts again") {
  Scenario scenario = in_order(3, 2, 60);
  scenario.spec.strategy.inner_steps = 1;
  scenario.spec.strategy.payload = PayloadKind::gradient;
  scenario.spec.strategy.outer_optimizer = OuterOptimizerKind::adopt;
  scenario.spec.training.steps = 400;
  scenario.spec.rounds = 400;
  scenario.spec.checkpoint.every_rounds = 20;
  Cluster cluster(scenario);
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(6), minutes(2)));
  cluster.host(1).set_trainer_start(15s);
  cluster.host(1).crash_trainer();
  CHECK(longest_stop(cluster, 60) <= 2s);
  finish(cluster);
  CHECK(events(cluster, "island_joined") >= 1);
}
