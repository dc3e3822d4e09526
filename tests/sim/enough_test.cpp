// A trainer of one's own says that the model is good enough: the run ends for all islands after the next round.
#include <string>

#include "tests/catch.hpp"
#include "tests/sim/stories.hpp"

namespace {

using namespace atl;
using namespace atl::sim;
using coordinator::RunState;
using std::chrono::minutes;
using namespace std::chrono_literals;

Scenario three(std::uint64_t rounds) {
  Scenario scenario = calm(3, 2, rounds);
  scenario.spec.checkpoint.every_rounds = 4;
  return scenario;
}

void say_enough(Cluster& cluster, std::size_t island) { cluster.host(island).call_good_enough("accuracy 0.9"); }

void check_end(Cluster& cluster, Round at_least, Round before) {
  const bool completed = cluster.run_until_state(RunState::completed, minutes(20));
  INFO(cluster.checkers().failure());
  INFO(cluster.view()->reason.text);
  REQUIRE(completed);
  REQUIRE(cluster.checkers().failure().empty());
  const coordinator::RunRecord& run = cluster.ledger().runs.begin()->second;
  REQUIRE(run.committed > at_least);
  REQUIRE(run.committed < before);
  REQUIRE(cluster.view()->reason.text.find("says that the model is good enough: accuracy 0.9") != std::string::npos);
  REQUIRE(cluster.view()->reason.text.find("with 3 of 3 islands") != std::string::npos);
  cluster.run_for(10s);
  for (std::size_t i = 0; i < 3; ++i) {
    REQUIRE_FALSE(cluster.host(i).trainer_up());
  }
}

}  // namespace

TEST_CASE("a run whose model one trainer calls good enough is complete after the next round, for all") {
  for (const int overlap : {0, 2}) {
    for (int milliseconds = 0; milliseconds < 900; milliseconds += 130) {
      INFO(overlap << " " << milliseconds);
      Scenario scenario = three(30);
      scenario.spec.strategy.overlap_steps = static_cast<std::uint64_t>(overlap);
      Cluster cluster(scenario);
      cluster.start();
      REQUIRE(cluster.run_until_committed(Round(3), minutes(2)));
      cluster.run_for(std::chrono::milliseconds(milliseconds));
      say_enough(cluster, 1);
      check_end(cluster, Round(3), Round(9));
    }
  }
}

TEST_CASE("a coordinator that dies after it heard that a model is good enough ends the run all the same") {
  for (int milliseconds = 0; milliseconds < 2500; milliseconds += 211) {
    INFO(milliseconds);
    Cluster cluster(three(30));
    cluster.start();
    REQUIRE(cluster.run_until_committed(Round(2), minutes(2)));
    say_enough(cluster, 0);
    cluster.run_for(std::chrono::milliseconds(milliseconds));
    cluster.crash_coordinator();
    cluster.run_for(1s);
    cluster.start_coordinator();
    check_end(cluster, Round(2), Round(9));
  }
}

TEST_CASE("islands that train alone, or in pairs, end together when one of them says that its model is good enough") {
  for (const bool pairs : {false, true}) {
    INFO(pairs);
    Scenario scenario = three(30);
    StrategySpec& strategy = scenario.spec.strategy;
    strategy.name = pairs ? "noloco" : "local";
    strategy.group = pairs ? Group::pairs : Group::nobody;
    if (pairs) {
      strategy.weighting = Weighting::uniform;
      strategy.outer_optimizer = OuterOptimizerKind::heavy_ball;
      strategy.outer_momentum = 0.5;
      strategy.outer_pull = 0.7;
    }
    Cluster cluster(scenario);
    cluster.start();
    cluster.run_for(6s);
    say_enough(cluster, 2);
    check_end(cluster, Round(0), Round(29));
  }
}
