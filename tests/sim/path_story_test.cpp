// Stories of islands between which no data pass.
#include <algorithm>
#include <string>

#include "tests/catch.hpp"
#include "tests/sim/stories.hpp"

using namespace atl;
using namespace atl::sim;
using coordinator::RunState;
using std::chrono::minutes;
using namespace std::chrono_literals;

namespace {

// Rounds of some five seconds.
Scenario long_rounds(std::uint32_t min) {
  Scenario scenario = calm(3, min, 60);
  scenario.spec.strategy.inner_steps = 40;
  scenario.spec.training.steps = 40 * 60;
  scenario.parameters = 1200;  // so that every island has a part of the result to sum
  return scenario;
}

Duration until_committed(Cluster& cluster, Round round) {
  const TimePoint begin = cluster.timeline().now();
  REQUIRE(cluster.run_until_committed(round, minutes(10)));
  return cluster.timeline().now() - begin;
}

// Data between these two go nowhere; what they say to the coordinator does.
void part(Cluster& cluster, std::size_t one, std::size_t other, bool apart) {
  const std::string a = cluster.host(one).name();
  const std::string b = cluster.host(other).name();
  if (apart) {
    cluster.cut(a, b);
    cluster.cut(b, a);
  } else {
    cluster.join(a, b);
    cluster.join(b, a);
  }
}

}  // namespace

TEST_CASE("an island from and to which no data pass costs the others little once, then nothing, and takes part again when they do") {
  Cluster cluster(long_rounds(2));
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(3), minutes(5)));
  const Duration usual = until_committed(cluster, Round(8)) / 5;
  part(cluster, 0, 2, true);
  part(cluster, 1, 2, true);
  const Duration first = until_committed(cluster, Round(9));
  INFO(seconds(usual) << " s a round; the one of the fault took " << seconds(first) << " s");
  REQUIRE(first <= usual * 2 + 5s);
  REQUIRE(events(cluster, "island_left") == 1);
  for (std::uint64_t round = 10; round <= 30; ++round) {
    const Duration next = until_committed(cluster, Round(round));
    INFO("round " << round << " took " << seconds(next) << " s");
    REQUIRE(next <= usual + 1s);
  }
  REQUIRE(events(cluster, "island_left") == 1);
  REQUIRE(events(cluster, "path_broken") >= 2);
  cluster.heal();
  finish(cluster);
  REQUIRE(events(cluster, "island_joined") == 1);
}

TEST_CASE("two islands that are cut from each other go on with a third that sums for both, and nobody is left out") {
  Cluster cluster(long_rounds(3));
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(3), minutes(5)));
  const Duration usual = until_committed(cluster, Round(8)) / 5;
  part(cluster, 0, 1, true);
  const Duration first = until_committed(cluster, Round(9));
  INFO(seconds(usual) << " s a round; the one of the fault took " << seconds(first) << " s");
  REQUIRE(first <= usual * 2 + 5s);
  for (std::uint64_t round = 10; round <= 40; ++round) {
    REQUIRE(until_committed(cluster, Round(round)) <= usual + 1s);
  }
  cluster.heal();
  finish(cluster);
  REQUIRE(events(cluster, "island_left") == 0);
  REQUIRE(events(cluster, "path_whole") >= 1);
}

TEST_CASE("two islands that were never connected cost the first round a try of the path and no more, where a third sums for both") {
  Cluster cluster(calm(3, 3));
  part(cluster, 0, 1, true);
  cluster.start();
  const Duration first = until_committed(cluster, Round(1));
  INFO("the first round took " << seconds(first) << " s");
  REQUIRE(first <= 15s);  // islands connect and start, four seconds of the try, the others' reports, the second attempt
  finish(cluster);
  REQUIRE(events(cluster, "island_left") == 0);
}

TEST_CASE("two islands alone that are apart are both named and waited for, and go on from what they did once data pass") {
  Cluster cluster(calm(2, 2));
  part(cluster, 0, 1, true);
  cluster.start();
  cluster.run_for(60s);
  REQUIRE(cluster.view());
  REQUIRE(cluster.view()->reason.text.find("islands i0 and i1 cannot exchange data") != std::string::npos);
  REQUIRE(cluster.view()->committed == Round(0));
  cluster.heal();
  finish(cluster);
  for (std::size_t i = 0; i < 2; ++i) {
    REQUIRE(cluster.host(i).steps() == 32);  // none twice
    REQUIRE(cluster.host(i).trainer_starts() == 1);
  }
}

TEST_CASE("a run that stands for want of a path is interrupted, said once, and goes on when data pass, also after a restart") {
  const std::uint64_t begun = GENERATE(0, 5);  // rounds before they are apart
  const bool restarts = GENERATE(false, true);
  INFO(begun << " " << restarts);
  Cluster cluster(calm(2, 2));
  if (begun == 0) {
    part(cluster, 0, 1, true);
  }
  cluster.start();
  if (begun > 0) {
    REQUIRE(cluster.run_until_committed(Round(begun), minutes(5)));
    part(cluster, 0, 1, true);
  }
  cluster.run_for(minutes(3));
  const auto interrupted = [&] {
    return cluster.view()->state == RunState::interrupted &&
           cluster.view()->reason.text.find("cannot be exchanged: ") != std::string::npos && !cluster.view()->reason.until;
  };
  INFO(cluster.view()->reason.text);
  REQUIRE(interrupted());
  REQUIRE(events(cluster, "run_interrupted") == 1);
  if (restarts) {
    cluster.crash_coordinator();
    cluster.start_coordinator();
    cluster.run_for(10s);
    INFO(cluster.view()->reason.text);
    REQUIRE(interrupted());
  }
  cluster.run_for(minutes(30));
  INFO(cluster.view()->reason.text);
  REQUIRE(interrupted());
  REQUIRE(events(cluster, "run_interrupted") == 1);
  REQUIRE(events(cluster, "run_continues") == 0);
  REQUIRE(cluster.view()->committed.value <= begun + 1);
  cluster.heal();
  finish(cluster);
  REQUIRE(events(cluster, "run_continues") == 1);
}

TEST_CASE("two members between which no data pass go on as soon as a third has come that reaches both, or one of them") {
  const bool one_way = GENERATE(false, true);     // data pass in one direction between the two
  const std::uint64_t begun = GENERATE(0, 5);     // rounds before they are apart
  const bool comes_back = GENERATE(false, true);  // the third was a member before
  const bool reaches_both = GENERATE(true, false);
  if (comes_back && begun == 0) {
    return;
  }
  INFO(one_way << " " << begun << " " << comes_back << " " << reaches_both);
  Cluster cluster(long_rounds(2));
  const auto cut = [&] {
    cluster.cut("i0", "i1");
    if (!one_way) {
      cluster.cut("i1", "i0");
    }
    if (!reaches_both) {
      part(cluster, 1, 2, true);
    }
  };
  if (begun == 0) {
    cut();
  }
  if (!comes_back) {
    cluster.cut("i2", kCoordinator);
  }
  cluster.start();
  if (begun > 0) {
    REQUIRE(cluster.run_until_committed(Round(begun), minutes(5)));
  }
  if (comes_back) {
    cluster.host(2).crash();
    cluster.run_for(7s);
  }
  cut();
  cluster.run_for(minutes(3));
  const Round before = cluster.view()->committed;
  if (comes_back) {
    cluster.host(2).start();
  } else {
    cluster.join("i2", kCoordinator);
  }
  const TimePoint since = cluster.timeline().now();
  const bool went_on = cluster.run_until_committed(before.next(), minutes(20));
  INFO(cluster.view()->reason.text);
  INFO(seconds(cluster.timeline().now() - since) << " s until the next round");
  REQUIRE(went_on);
  CHECK(cluster.timeline().now() - since <= 30s);
  const TimePoint then = cluster.timeline().now();
  REQUIRE(cluster.run_until_committed(Round(before.value + 11), minutes(20)));
  CHECK(cluster.timeline().now() - then <= 120s);  // ten of five seconds, and a change of the members
}

TEST_CASE("a public island comes back in a second to a run that only an island behind a router holds, with a new address too") {
  const bool moves = GENERATE(false, true);
  const bool loses_disk = GENERATE(false, true);
  const bool in_pairs = GENERATE(false, true);
  INFO(moves << " " << loses_disk << " " << in_pairs);
  Cluster cluster(in_pairs ? calm_pairs(2, 1, 2000) : calm(2, 1, 2000));
  cluster.reach_at(0, "");
  cluster.start();
  const auto joined = [&] { return events(cluster, "island_joined"); };
  const auto wait_for = [&](std::size_t count) {
    for (int i = 0; i < 2000 && joined() < count; ++i) {
      cluster.run_for(100ms);
    }
    return joined() >= count;
  };
  cluster.run_for(20s);
  REQUIRE(cluster.view()->committed > Round(2));
  for (int times = 0; times < 2; ++times) {
    cluster.host(1).crash();
    cluster.run_for(15s);
    if (loses_disk) {
      cluster.host(1).lose_disk();
    }
    if (moves) {
      cluster.host(1).set_address("sim://elsewhere-" + std::to_string(times));
      cluster.reach_at(1, cluster.host(1).address());
    }
    const std::size_t before = joined();
    const TimePoint since = cluster.timeline().now();
    cluster.host(1).start();
    const bool back = wait_for(before + 1);
    INFO(seconds(cluster.timeline().now() - since) << " s until it was back for the " << times + 1 << ". time");
    REQUIRE(back);
    CHECK(cluster.timeline().now() - since <= 6s);
    cluster.run_for(5s);
  }
  REQUIRE(cluster.checkers().failure().empty());
}
