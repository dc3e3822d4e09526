// Stories of rounds that fail again and again, or to which nobody can contribute.
#include <functional>
#include <string>

#include "tests/catch.hpp"
#include "tests/sim/stories.hpp"

using namespace atl;
using namespace atl::sim;
using coordinator::RunState;
using std::chrono::minutes;
using namespace std::chrono_literals;

namespace {

// Whatever came of an attempt, its island says that it failed; by its own fault, or by that of another one.
std::function<void(Message&)> failing(const IslandId& accused, const bool& fails) {
  return [accused, &fails](Message& message) {
    if (const auto* done = std::get_if<Exchanged>(&message); done != nullptr && fails) {
      const Exchanged said = *done;
      message = ExchangeFailed{said.run, said.epoch, said.round, said.attempt, accused, Error{Code::internal, "it does not fit"}};
    }
  };
}

// Every contribution of this island is withdrawn, as the trainer's last step was not finite.
std::function<void(Message&)> withdrawing(const bool& withdraws) {
  return [&withdraws](Message& message) {
    if (const auto* ready = std::get_if<Ready>(&message); ready != nullptr && withdraws && ready->round > Round(0)) {
      const Ready said = *ready;
      message = Withdrawn{said.run, said.epoch, said.round, Error{Code::corrupt, "a loss was not finite"}};
      std::get<Withdrawn>(message).facts = {.fragment = said.facts.fragment, .data = said.facts.data};
    }
  };
}

}  // namespace

TEST_CASE("a round that fails at all its members every time is tried again ever later, and ends the run with the reason") {
  const std::uint32_t islands = GENERATE(1, 2);
  const bool names_itself = GENERATE(true, false);
  INFO(islands << " " << names_itself);
  Cluster cluster(calm(islands, islands, 20));
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(5), minutes(2)));
  const bool fails = true;
  for (std::uint32_t i = 0; i < islands; ++i) {
    cluster.lie(i, failing(names_itself ? cluster.host(i).id() : IslandId(), fails));
  }
  const std::size_t attempts = events(cluster, "round_planned");
  cluster.run_for(10s);
  CHECK(events(cluster, "round_planned") - attempts <= 8);
  REQUIRE(cluster.run_until_state(RunState::failed, minutes(20)));
  CHECK(events(cluster, "round_planned") - attempts <= 14);
  CHECK(events(cluster, "round_retried") <= 14);
  const std::string why = cluster.view()->reason.text;
  INFO(why);
  CHECK(why.find("failed in 12 attempts in a row of i0") != std::string::npos);
  CHECK(why.find("it does not fit") != std::string::npos);
}

TEST_CASE("a round that failed a few times goes on as soon as an attempt passes, and the next round begins without a pause") {
  const std::uint32_t islands = GENERATE(1, 2);
  Cluster cluster(calm(islands, 1, 20));
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(5), minutes(2)));
  bool fails = true;
  for (std::uint32_t i = 0; i < islands; ++i) {
    cluster.lie(i, failing(IslandId(), fails));
  }
  cluster.run_for(8s);
  fails = false;
  REQUIRE(cluster.run_until_committed(Round(7), minutes(2)));
  const std::size_t retried = events(cluster, "round_retried");
  finish(cluster);
  CHECK(events(cluster, "round_retried") == retried);
}

TEST_CASE("two islands whose attempts fail because of the path between them are waited for, however long it takes") {
  Cluster cluster(calm(2, 2, 20));
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(5), minutes(2)));
  bool fails = true;
  cluster.lie(0, failing(cluster.host(1).id(), fails));
  cluster.lie(1, failing(cluster.host(0).id(), fails));
  const std::size_t attempts = events(cluster, "round_planned");
  cluster.run_for(minutes(30));
  CHECK(events(cluster, "round_planned") - attempts <= 100);
  CHECK(cluster.view()->state != RunState::failed);
  fails = false;
  finish(cluster);
}

TEST_CASE("rounds to which nobody can contribute are skipped, and no island is blamed for them") {
  const std::uint32_t islands = GENERATE(1, 2, 3, 5);
  const std::uint64_t before = GENERATE(0, 4);  // rounds that counted
  Scenario scenario = calm(islands, islands, 30);
  SECTION("outer gradients") {}
  SECTION("gradients") {
    scenario.spec.strategy.payload = PayloadKind::gradient;
    scenario.spec.strategy.inner_steps = 1;
    scenario.spec.strategy.outer_optimizer = OuterOptimizerKind::adopt;
    scenario.spec.training.steps = 30;
  }
  SECTION("radial-directional means") { scenario.spec.strategy.aggregator = Aggregator::radial_directional; }
  SECTION("fragments in turns, with overlap") {
    scenario.spec.strategy.grouping = FragmentKind::balanced;
    scenario.spec.strategy.fragments = 2;
    scenario.spec.strategy.overlap_steps = 1;
    scenario.spec.rounds = schedule_of_spec(scenario.spec).rounds();
  }
  SECTION("overlap of a whole period") {
    scenario.spec.strategy.overlap_steps = 4;
    scenario.spec.strategy.eager = true;
  }
  INFO(islands << " " << before);
  Cluster cluster(scenario);
  bool withdraws = before == 0;
  for (std::uint32_t i = 0; i < islands; ++i) {
    cluster.lie(i, withdrawing(withdraws));
  }
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(before), minutes(2)));
  withdraws = true;
  const bool went_on = cluster.run_until_committed(Round(before + 10), minutes(5));
  INFO(cluster.view()->reason.text << cluster.checkers().failure());
  REQUIRE(went_on);
  withdraws = false;
  finish(cluster);
  CHECK(events(cluster, "round_skipped") >= 8);
  CHECK(events(cluster, "island_quarantined") == 0);
  CHECK(events(cluster, "island_left") == 0);
  CHECK(cluster.host(0).steps() == scenario.spec.training.steps);
}

TEST_CASE("a run whose every round has no contribution ends after twenty of them, with islands and causes") {
  Cluster cluster(calm(2, 2, 40));
  const bool withdraws = true;
  cluster.lie(0, withdrawing(withdraws));
  cluster.lie(1, withdrawing(withdraws));
  cluster.start();
  REQUIRE(cluster.run_until_state(RunState::failed, minutes(10)));
  const std::string why = cluster.view()->reason.text;
  INFO(why);
  CHECK(events(cluster, "round_skipped") == 20);
  CHECK(why.find("20 rounds in a row") != std::string::npos);
  CHECK(why.find("i0: a loss was not finite; i1: a loss was not finite") != std::string::npos);
}

TEST_CASE("an island whose contribution alone is not fit to count is still quarantined after three") {
  Cluster cluster(calm(3, 2, 20));
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(5), minutes(2)));
  const bool withdraws = true;
  cluster.lie(1, withdrawing(withdraws));
  finish(cluster);
  CHECK(events(cluster, "island_quarantined") == 1);
  CHECK(events(cluster, "round_skipped") == 0);
}
