#include "tests/sim/stories.hpp"

#include "tests/catch.hpp"

namespace atl::sim {

using coordinator::RunState;
using std::chrono::minutes;
using namespace std::chrono_literals;

Scenario calm(std::uint32_t islands, std::uint32_t min, std::uint64_t rounds) {
  Scenario scenario;
  scenario.seed = 7;
  scenario.islands = islands;
  RunSpec& spec = scenario.spec;
  spec.name = "run";
  spec.islands.min = min;
  spec.islands.max = islands;
  spec.islands.deadline = 60s;
  spec.strategy.inner_steps = 4;
  spec.training.steps = 4 * rounds;
  spec.rounds = rounds;
  spec.checkpoint.every_rounds = 2;
  return scenario;
}

Scenario calm_pairs(std::uint32_t islands, std::uint32_t min, std::uint64_t rounds) {
  Scenario scenario = calm(islands, min, rounds);
  StrategySpec strategy = named_strategy("noloco").value();
  strategy.inner_steps = scenario.spec.strategy.inner_steps;
  strategy.pace = Pace::fixed;
  scenario.spec.strategy = strategy;
  scenario.spec.merge_rounds = 1;
  scenario.spec.rounds = rounds + 1;
  return scenario;
}

std::size_t events(const Cluster& cluster, const std::string& kind) {
  const auto found = cluster.ledger().events.find(kind);
  return found == cluster.ledger().events.end() ? 0 : found->second;
}

void finish(Cluster& cluster) {
  const bool completed = cluster.run_until_state(RunState::completed, minutes(20));
  INFO(cluster.checkers().failure());
  INFO((cluster.view() ? cluster.view()->reason.text : "no coordinator"));
  REQUIRE(completed);
  REQUIRE(cluster.checkers().failure().empty());
}

}  // namespace atl::sim
