// Single stories of runs of phases whose tasks are done by one island each.
#include <string>

#include "tests/catch.hpp"
#include "tests/sim/cluster.hpp"
#include "tests/sim/stories.hpp"

namespace {

using namespace atl;
using namespace atl::sim;
using coordinator::TaskState;
using std::chrono::minutes;
using namespace std::chrono_literals;

Scenario phases(std::uint32_t islands, std::uint32_t experts) {
  Scenario scenario = calm(islands, 1);
  RunSpec& spec = scenario.spec;
  spec.strategy = {};
  spec.strategy.name = "decentralized-diffusion";
  spec.strategy.group = Group::expert;
  spec.islands.deadline = 30s;
  spec.diffusion.experts = experts;
  spec.diffusion.router_steps = 20;
  spec.diffusion.save_every = 0;
  spec.training.steps = 40;
  spec.training.batch = 1;
  spec.rounds = experts + 1;
  return scenario;
}

// The island of the task, once it runs.
std::string runner(const Cluster& cluster, const std::string& task) {
  const auto found = cluster.ledger().tasks.find({cluster.run_id(), task});
  const bool runs = found != cluster.ledger().tasks.end() && found->second.state == TaskState::running;
  return runs ? name_of(found->second.island) : "";
}

bool done(const Cluster& cluster, const std::string& task) {
  const auto found = cluster.ledger().tasks.find({cluster.run_id(), task});
  return found != cluster.ledger().tasks.end() && found->second.state == TaskState::done;
}

}  // namespace

TEST_CASE(
    "two islands that die with their disks while a third ends its task: it drops nothing that they kept, though they only seem silent") {
  std::size_t alone = 0;
  for (auto before = 100ms; before < 2s; before += 200ms) {
    INFO(before.count() << " ms before the end");
    Scenario scenario = phases(3, 3);
    scenario.step_lag = 0ms;
    Cluster cluster(scenario);
    cluster.start();
    while (runner(cluster, "experts/2").empty()) {
      cluster.run_for(20ms);
      REQUIRE(cluster.elapsed() < minutes(1));
    }
    const std::string third = runner(cluster, "experts/2");
    cluster.run_for(scenario.spec.training.steps * scenario.step_time - before);
    for (std::size_t i = 0; i < cluster.islands(); ++i) {
      if (cluster.host(i).name() != third) {
        cluster.host(i).crash();
        cluster.host(i).lose_disk();
      }
    }
    REQUIRE_FALSE(done(cluster, "experts/2"));
    for (int i = 0; i < 30 && !done(cluster, "experts/2"); ++i) {
      cluster.run_for(100ms);
    }
    cluster.run_for(200ms);
    alone += done(cluster, "experts/2") ? 1U : 0U;
    for (std::size_t i = 0; i < cluster.islands(); ++i) {
      cluster.host(i).start();
    }
    finish(cluster);
  }
  CHECK(alone >= 8);
}
