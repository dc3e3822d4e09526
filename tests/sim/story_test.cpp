// Single stories: one thing goes wrong at a chosen moment, and the run goes on as it should.
#include <algorithm>
#include <string>

#include "tests/catch.hpp"
#include "tests/sim/stories.hpp"

using namespace atl;
using namespace atl::sim;
using coordinator::RunState;
using std::chrono::minutes;
using namespace std::chrono_literals;

TEST_CASE("a calm run completes, and no step is done twice") {
  Cluster cluster(calm(3, 3));
  cluster.start();
  finish(cluster);
  REQUIRE(cluster.checkers().commits() == 8);
  for (std::size_t i = 0; i < 3; ++i) {
    REQUIRE(cluster.host(i).steps() == 32);
    REQUIRE(cluster.host(i).trainer_starts() == 1);
  }
  REQUIRE(cluster.view()->reason.text == "completed with 3 of 3 islands");
}

TEST_CASE("a restarted coordinator costs no island an inner step") {
  for (int milliseconds = 0; milliseconds < 3000; milliseconds += 137) {
    Cluster cluster(calm(3, 3));
    cluster.start();
    REQUIRE(cluster.run_until_committed(Round(2), minutes(2)));
    cluster.run_for(std::chrono::milliseconds(milliseconds));
    cluster.crash_coordinator();
    cluster.run_for(2s);
    cluster.start_coordinator();
    finish(cluster);
    for (std::size_t i = 0; i < 3; ++i) {
      REQUIRE(cluster.host(i).steps() == 32);
      REQUIRE(cluster.host(i).trainer_starts() == 1);
    }
  }
}

TEST_CASE("an island that is killed in a round comes back as the same island, and the absence is told") {
  Cluster cluster(calm(3, 2, 40));
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(3), minutes(2)));
  cluster.host(1).crash();
  cluster.run_for(8s);
  cluster.host(1).start();
  finish(cluster);
  REQUIRE(events(cluster, "island_left") == 1);
  REQUIRE(events(cluster, "island_joined") == 1);
  REQUIRE(events(cluster, "rolled_back") == 0);
  REQUIRE(cluster.view()->reason.text.find("i1 was away from round") != std::string::npos);
}

TEST_CASE("islands that begin with another state take over the first one's") {
  Cluster cluster(calm(4, 2, 20));
  cluster.host(3).set_other_initial(true);
  cluster.start();
  finish(cluster);
  REQUIRE(events(cluster, "island_joined") == 1);
}

TEST_CASE("when every copy in memory is gone the run goes on from the newest checkpoint and says what was lost") {
  Scenario scenario = calm(3, 3);
  scenario.spec.checkpoint.every_rounds = 3;
  Cluster cluster(scenario);
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(5), minutes(2)));
  for (std::size_t i = 0; i < 3; ++i) {
    cluster.host(i).crash();
  }
  cluster.run_for(1s);
  for (std::size_t i = 0; i < 3; ++i) {
    cluster.host(i).start();
  }
  finish(cluster);
  REQUIRE(events(cluster, "rolled_back") == 1);
  REQUIRE(cluster.ledger().runs.begin()->second.lineage == 1);
}

TEST_CASE("a contribution that is not finite is rejected by name, and the run goes on with the others") {
  Cluster cluster(calm(3, 2));
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(2), minutes(2)));
  cluster.host(2).spoil_next_contribution();
  finish(cluster);
  REQUIRE(events(cluster, "contribution_rejected") == 1);
  REQUIRE(events(cluster, "island_left") == 0);
}

TEST_CASE("in pairs a contribution that is not finite, or explodes, is rejected by name: its partner goes alone, and the island goes on") {
  Scenario scenario = draw_pair_scenario(1);
  scenario.islands = 2;
  scenario.loss = scenario.duplication = scenario.replay = scenario.nonfinite = scenario.exploding = scenario.broken_disk = 0;
  scenario.jitter = 20ms;
  scenario.latency = 5ms;
  RunSpec& spec = scenario.spec;
  spec.islands.min = spec.islands.max = 2;
  spec.islands.deadline = 60s;
  spec.strategy.grouping = FragmentKind::whole;
  spec.strategy.fragments = 0;
  spec.strategy.inner_steps = 4;
  spec.strategy.overlap_steps = 0;
  spec.strategy.merge_alpha = 0;
  spec.strategy.pace = Pace::fixed;
  spec.strategy.max_skew = 2;
  spec.training.steps = 4 * 24;
  spec.merge_rounds = 1;
  spec.rounds = 25;
  Cluster cluster(scenario);
  const auto run_to = [&](std::size_t pairs) {
    for (int i = 0; i < 10'000 && cluster.checkers().met() + cluster.checkers().went_alone() < 2 * pairs; ++i) {
      cluster.run_for(20ms);
    }
    REQUIRE(cluster.checkers().met() + cluster.checkers().went_alone() >= 2 * pairs);
  };
  cluster.start();
  run_to(2);
  CHECK(cluster.checkers().went_alone() == 0);
  cluster.host(1).spoil_next_contribution();
  run_to(12);
  CHECK(cluster.checkers().went_alone() == 2);  // both
  CHECK(events(cluster, "contribution_rejected") == 1);
  CHECK(events(cluster, "pair_alone") == 1);  // the partner's; its own is told as rejected
  cluster.host(0).explode_next_contribution();
  finish(cluster);
  CHECK(cluster.checkers().went_alone() == 4);
  CHECK(events(cluster, "contribution_rejected") == 2);
  CHECK(events(cluster, "pair_alone") == 2);
  CHECK(events(cluster, "island_left") == 0);
  CHECK(cluster.host(0).trainer_starts() == 1);
  CHECK(cluster.host(1).trainer_starts() == 1);
}

TEST_CASE("in pairs an island whose contributions are rejected again and again is quarantined, and the others go on") {
  Cluster cluster(calm_pairs(3, 2, 30));
  cluster.start();
  for (std::size_t rejected = 0; rejected < 3; ++rejected) {
    cluster.host(2).spoil_next_contribution();
    for (int i = 0; i < 10'000 && events(cluster, "contribution_rejected") == rejected; ++i) {
      cluster.run_for(20ms);
    }
    REQUIRE(events(cluster, "contribution_rejected") == rejected + 1);
  }
  CHECK(events(cluster, "island_quarantined") == 1);
  finish(cluster);
  CHECK(cluster.view()->reason.text.find("quarantined") != std::string::npos);
}

TEST_CASE("in pairs an island that is released by an order that comes late is assigned anew") {
  Cluster cluster(calm_pairs(3, 2, 60));
  cluster.start();
  for (int i = 0; i < 10'000 && cluster.checkers().met() < 4; ++i) {
    cluster.run_for(20ms);
  }
  cluster.host(1).from_coordinator(cluster.host(1).boot(),
                                   Release{cluster.run_id(), Code::cancelled, false, "of an earlier part in the run"});
  finish(cluster);
  CHECK(events(cluster, "island_left") == 1);
  CHECK(cluster.view()->reason.text.find("completed with 3 of 3 islands") == 0);
  CHECK(cluster.view()->reason.text.find("its agent does not work for the run any more") != std::string::npos);
}

TEST_CASE("in a group of three whose decider is killed the others come to one decision") {
  Scenario scenario = calm_pairs(3, 2, 60);
  scenario.spec.strategy.group_size = 3;
  std::size_t met = 0;
  for (std::uint64_t moment = 0; moment < 100; ++moment) {  // at every phase of an exchange
    Cluster cluster(scenario);
    cluster.start();
    for (int i = 0; i < 10'000 && cluster.checkers().met() < 9; ++i) {
      cluster.run_for(10ms);
    }
    cluster.run_for(moment * 7ms);
    cluster.host(0).crash();
    cluster.run_for(2s);
    cluster.host(0).start();
    INFO("moment " << moment);
    finish(cluster);
    met += cluster.checkers().met();
  }
  CHECK(met > 100 * 3 * 10);  // once it is back they meet again
}

TEST_CASE("a run that no island may serve fails with the first cause") {
  Cluster cluster(calm(2, 2));
  cluster.host(0).set_data_refused(true);
  cluster.host(1).set_data_refused(true);
  cluster.start();
  REQUIRE(cluster.run_until_state(RunState::failed, minutes(2)));
  REQUIRE(cluster.view()->error->why.find("the owner does not allow these data") != std::string::npos);
}

TEST_CASE("a trainer that is killed is started again, and its island stays") {
  Cluster cluster(calm(3, 3));
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(3), minutes(2)));
  cluster.host(0).crash_trainer();
  finish(cluster);
  REQUIRE(cluster.host(0).trainer_starts() == 2);
  REQUIRE(events(cluster, "trainer_crashed") == 1);
  REQUIRE(events(cluster, "island_left") == 0);
}

TEST_CASE("with fewer than min islands the run names whom it waits for, and goes on by itself") {
  Cluster cluster(calm(3, 3));
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(2), minutes(2)));
  cluster.host(2).crash();
  REQUIRE(cluster.run_until_state(RunState::interrupted, minutes(2)));
  REQUIRE(cluster.view()->reason.text.find("i2") != std::string::npos);
  cluster.host(2).start();
  finish(cluster);
}

TEST_CASE("two islands that cannot reach each other do not stop the others") {
  Cluster cluster(calm(4, 2));
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(2), minutes(2)));
  cluster.cut("i1", "i2");
  cluster.cut("i2", "i1");
  REQUIRE(cluster.run_until_committed(Round(5), minutes(5)));
  cluster.heal();
  finish(cluster);
}

TEST_CASE("with adaptive pace islands of unequal speed come to the synchronisation point together, and nobody trains less than it can") {
  const auto times = [](Pace pace) {
    Scenario scenario = calm(3, 3, 10);
    scenario.spec.strategy.inner_steps = 20;
    scenario.spec.training.steps = 200;
    scenario.spec.strategy.pace = pace;
    scenario.spec.strategy.min_inner_steps = 3;
    Cluster cluster(scenario);
    cluster.start();
    REQUIRE(cluster.run_until_committed(Round(0), minutes(2)));
    const TimePoint begin = cluster.timeline().now();
    finish(cluster);
    REQUIRE(cluster.checkers().commits() == 10);
    std::vector<double> steps_a_second;
    for (std::size_t i = 0; i < 3; ++i) {
      steps_a_second.push_back(static_cast<double>(cluster.host(i).steps()) / seconds(cluster.timeline().now() - begin));
      REQUIRE(cluster.host(i).steps() >= 30);
      REQUIRE(cluster.host(i).steps() <= 200);
      REQUIRE(cluster.host(i).trainer_starts() == 1);
    }
    return steps_a_second;
  };
  // A step takes 60, 90 and 120 ms on average.
  const std::vector<double> fixed = times(Pace::fixed);
  const std::vector<double> adaptive = times(Pace::adaptive);
  REQUIRE(fixed[0] == fixed[2]);  // all as slow as the slowest
  REQUIRE(adaptive[0] > 1.5 * fixed[0]);
  REQUIRE(adaptive[2] > 0.85 * fixed[2]);  // the slowest hardly loses: rounds are shorter, and each has its exchange
  REQUIRE(adaptive[0] > 1.6 * adaptive[2]);
}

TEST_CASE("a straggler is left out of the round with the reason, and joins the next") {
  Scenario scenario = calm(3, 2, 12);
  scenario.spec.islands.straggler_factor = 3;
  Cluster cluster(scenario);
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(2), minutes(2)));
  cluster.host(2).crash_trainer();  // and its trainer takes a while to come up again
  cluster.host(2).set_slow(true);
  REQUIRE(cluster.run_until_committed(Round(4), minutes(2)));
  REQUIRE(events(cluster, "island_left") >= 1);
  cluster.host(2).set_slow(false);
  finish(cluster);
  REQUIRE(events(cluster, "island_joined") >= 1);
  REQUIRE(cluster.view()->reason.text.find("straggler_factor") != std::string::npos);
}
