// Single stories of groups: islands that train one expert of a run of phases together, and what may befall them.
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/sim/cluster.hpp"

namespace {

using namespace atl;
using namespace atl::sim;
using coordinator::RunState;
using coordinator::TaskState;
using std::chrono::milliseconds;
using std::chrono::minutes;
using namespace std::chrono_literals;

// Islands in a calm world: nothing is lost but by the test's hand.
Scenario calm(std::uint32_t islands, std::uint32_t experts, std::uint64_t rounds, std::uint32_t fragments = 0) {
  Scenario scenario;
  scenario.seed = 7;
  scenario.islands = islands;
  RunSpec& spec = scenario.spec;
  spec.name = "run";
  spec.islands.max = islands;
  spec.islands.deadline = 30s;
  spec.strategy.name = "decentralized-diffusion";
  spec.strategy.group = Group::expert;
  spec.strategy.inner_steps = 4;
  spec.strategy.grouping = fragments > 0 ? FragmentKind::balanced : FragmentKind::whole;
  spec.strategy.fragments = fragments;
  spec.strategy.overlap_steps = fragments > 0 ? 2 : 0;
  spec.diffusion.experts = experts;
  spec.diffusion.router_steps = 20;
  spec.diffusion.save_every = 0;
  spec.training.steps = 4 * rounds;
  spec.training.batch = 1;
  spec.checkpoint.every_rounds = 2;
  spec.rounds = experts + (experts > 1 ? 1 : 0);
  spec.group_rounds = schedule_of_spec(spec).rounds();
  return scenario;
}

std::size_t events(const Cluster& cluster, const std::string& kind) {
  const auto found = cluster.ledger().events.find(kind);
  return found == cluster.ledger().events.end() ? 0 : found->second;
}

coordinator::TaskRecord task(const Cluster& cluster, const std::string& name) {
  const auto found = cluster.ledger().tasks.find({cluster.run_id(), name});
  return found == cluster.ledger().tasks.end() ? coordinator::TaskRecord{} : found->second;
}

// The run of that task's group; an empty record while it has none.
coordinator::RunRecord group(const Cluster& cluster, const std::string& name) {
  const auto found = cluster.ledger().runs.find(task(cluster, name).group);
  return found == cluster.ledger().runs.end() ? coordinator::RunRecord{} : found->second;
}

IslandHost& host_of(Cluster& cluster, const IslandId& island) {
  IslandHost* host = cluster.find(island);
  REQUIRE(host != nullptr);
  return *host;
}

void until(Cluster& cluster, const std::string& what, const std::function<bool()>& happened) {
  INFO(what);
  const TimePoint end = cluster.timeline().now() + minutes(10);
  while (!happened() && cluster.checkers().failure().empty() && cluster.timeline().now() < end) {
    cluster.run_for(20ms);
  }
  INFO(cluster.checkers().failure());
  INFO((cluster.view() ? cluster.view()->reason.text : "no coordinator"));
  REQUIRE(happened());
}

void until_round(Cluster& cluster, std::uint64_t round) {
  until(cluster, "round " + std::to_string(round) + " of the group", [&] {
    const coordinator::RunRecord rounds = group(cluster, "experts/0");
    return rounds.initialised && rounds.committed.value >= round;
  });
}

void finish(Cluster& cluster) {
  until(cluster, "the end", [&] { return cluster.ledger().runs.at(cluster.run_id()).state == RunState::completed; });
  REQUIRE(cluster.checkers().failure().empty());
  for (const auto& [id, run] : cluster.ledger().runs) {
    REQUIRE(coordinator::has_ended(run.state));
  }
}

std::uint64_t steps(Cluster& cluster) {
  std::uint64_t all = 0;
  for (std::size_t i = 0; i < cluster.islands(); ++i) {
    all += cluster.host(i).steps();
  }
  return all;
}

}  // namespace

TEST_CASE("a calm run of phases trains an expert in a group, and no step is done twice") {
  for (const std::uint32_t fragments : {0U, 2U}) {
    Cluster cluster(calm(3, 1, 6, fragments));
    cluster.start();
    finish(cluster);
    REQUIRE(cluster.checkers().trained_by_groups() == 1);
    REQUIRE(cluster.checkers().group_commits() == cluster.scenario().spec.group_rounds);
    REQUIRE(steps(cluster) == 3 * 24 + 2 * 2);  // and of the clustering and the assembly
    REQUIRE(events(cluster, "task_again") == 0);
  }
}

TEST_CASE("a coordinator that is killed while a group trains loses no round and counts no contribution twice") {
  for (const std::uint32_t fragments : {0U, 2U}) {
    for (int after = 0; after < 2000; after += 237) {
      INFO(fragments << " fragments, " << after << " ms");
      Cluster cluster(calm(3, 1, 8, fragments));
      cluster.start();
      until_round(cluster, 1);
      const RunId rounds = task(cluster, "experts/0").group;
      cluster.run_for(milliseconds(after));
      cluster.crash_coordinator();
      cluster.run_for(2s);
      cluster.start_coordinator();
      finish(cluster);
      REQUIRE(task(cluster, "experts/0").group == rounds);
      REQUIRE(cluster.checkers().group_commits() == cluster.scenario().spec.group_rounds);
      REQUIRE(steps(cluster) == 3 * 32 + 2 * 2);
      REQUIRE(events(cluster, "rolled_back") == 0);
      REQUIRE(events(cluster, "task_again") == 0);
    }
  }
}

TEST_CASE("the agent that speaks for a group is killed while it trains: the others go on, and it comes back to them") {
  for (int after = 0; after < 1500; after += 311) {
    INFO(after << " ms");
    Cluster cluster(calm(3, 1, 40));
    cluster.start();
    until_round(cluster, 3);
    cluster.run_for(milliseconds(after));
    const coordinator::TaskRecord before = task(cluster, "experts/0");
    IslandHost& speaker = host_of(cluster, before.island);
    speaker.crash();
    until(cluster, "another speaks", [&] { return task(cluster, "experts/0").island != before.island; });
    speaker.start();
    finish(cluster);
    REQUIRE(task(cluster, "experts/0").group == before.group);
    REQUIRE(cluster.checkers().trained_by_groups() == 1);
    REQUIRE(cluster.checkers().group_commits() == 40);
    REQUIRE(events(cluster, "rolled_back") == 0);
    REQUIRE(events(cluster, "task_again") == 0);
  }
}

TEST_CASE("the island that makes an expert of its group's last round is lost for good: another does, and no round is done again") {
  Cluster cluster(calm(3, 1, 6));
  cluster.start();
  until(cluster, "the end of the rounds", [&] { return group(cluster, "experts/0").state == RunState::completed; });
  const coordinator::TaskRecord before = task(cluster, "experts/0");
  REQUIRE(before.state == TaskState::running);
  host_of(cluster, before.island).crash();
  finish(cluster);
  REQUIRE(task(cluster, "experts/0").island != before.island);
  REQUIRE(task(cluster, "experts/0").group == before.group);
  REQUIRE(cluster.checkers().group_commits() == 6);
  REQUIRE(steps(cluster) == 3 * 24 + 2 * 2);
}

TEST_CASE("a run with a group is paused after the round in hand, by a coordinator that may die meanwhile, and resumed goes on with it") {
  for (const bool dies : {false, true}) {
    for (int after = 0; after < 1500; after += 311) {
      INFO(dies << " " << after << " ms");
      Cluster cluster(calm(3, 1, 12));
      cluster.start();
      until_round(cluster, 2);
      cluster.run_for(milliseconds(after));
      const RunId rounds = task(cluster, "experts/0").group;
      REQUIRE(cluster.pause());
      if (dies) {
        cluster.run_for(100ms);
        cluster.crash_coordinator();
        cluster.run_for(1s);
        cluster.start_coordinator();
      }
      REQUIRE(cluster.run_until_state(RunState::paused, minutes(2)));
      REQUIRE(cluster.ledger().runs.at(rounds).state == RunState::paused);
      const Round stood_at = cluster.ledger().runs.at(rounds).committed;
      const std::uint64_t before = steps(cluster);
      cluster.run_for(20s);
      REQUIRE(steps(cluster) == before);  // nobody trains
      REQUIRE(cluster.resume());
      finish(cluster);
      REQUIRE(stood_at >= Round(2));
      REQUIRE(task(cluster, "experts/0").group == rounds);
      REQUIRE(cluster.checkers().group_commits() == 12);
      REQUIRE(events(cluster, "rolled_back") == 0);
      REQUIRE(events(cluster, "task_again") == 0);
    }
  }
}

TEST_CASE("a group that lost everybody with their disks is dissolved, its task begins again, and the run ends") {
  Cluster cluster(calm(4, 1, 12));
  cluster.start();
  until_round(cluster, 4);
  const RunId first = task(cluster, "experts/0").group;
  for (std::size_t i = 0; i < cluster.islands(); ++i) {
    cluster.host(i).crash();
    cluster.host(i).lose_disk();
    cluster.host(i).start();
  }
  finish(cluster);
  REQUIRE(cluster.ledger().runs.at(first).state == RunState::cancelled);
  REQUIRE(task(cluster, "experts/0").group != first);
  REQUIRE(cluster.ledger().runs.at(task(cluster, "experts/0").group).state == RunState::completed);
  REQUIRE(cluster.checkers().trained_by_groups() == 1);
  REQUIRE(events(cluster, "task_again") >= 1);
}

TEST_CASE("what a group needs is lost before its islands have it: it is made again, and a group begins anew") {
  Cluster cluster(calm(3, 1, 6));
  cluster.start();
  until(cluster, "the clustering", [&] { return !task(cluster, "experts/0").group.empty(); });
  const RunId first = task(cluster, "experts/0").group;
  for (std::size_t i = 0; i < cluster.islands(); ++i) {
    cluster.host(i).crash();
    cluster.host(i).lose_disk();
    cluster.host(i).start();
  }
  finish(cluster);
  REQUIRE(cluster.ledger().runs.at(first).state == RunState::cancelled);
  REQUIRE(cluster.checkers().trained_by_groups() == 1);
}

TEST_CASE("a run that is resumed while it is being paused, and interrupted, goes on being paused") {
  Scenario scenario = calm(4, 2, 6);
  scenario.spec.islands.min = 4;
  Cluster cluster(scenario);
  cluster.start();
  until_round(cluster, 1);
  const IslandId router = task(cluster, "router").island;
  host_of(cluster, task(cluster, "experts/0").members.back()).set_slow(true);  // its round takes long
  REQUIRE(cluster.pause());
  host_of(cluster, router).crash();
  REQUIRE(cluster.run_until_state(RunState::interrupted, 15s));
  REQUIRE(group(cluster, "experts/0").state != RunState::paused);
  (void)cluster.resume();
  host_of(cluster, router).start();
  host_of(cluster, task(cluster, "experts/0").members.back()).set_slow(false);
  REQUIRE(cluster.run_until_state(RunState::paused, minutes(2)));
  REQUIRE(cluster.resume());
  finish(cluster);
}

TEST_CASE("what an island made of a task alone does not count once a group has that task") {
  Scenario scenario = calm(4, 2, 6);
  scenario.spec.islands.min = 3;
  scenario.spec.diffusion.router_steps = 400;
  Cluster cluster(scenario);
  cluster.start();
  REQUIRE(cluster.pause());
  cluster.run_for(5s);
  cluster.host(3).crash();
  cluster.run_for(6s);
  REQUIRE(cluster.resume());
  until(cluster, "the experts", [&] { return task(cluster, "experts/0").state == TaskState::running; });
  cluster.host(3).start();
  const std::string alone = name_of(task(cluster, "experts/0").island);
  REQUIRE(task(cluster, "experts/0").group.empty());
  cluster.run_for(600ms);  // it has heard of its task
  cluster.cut(alone, "coordinator");
  cluster.cut("coordinator", alone);
  cluster.run_for(3s);  // it makes its result
  REQUIRE(task(cluster, "experts/0").state == TaskState::running);
  REQUIRE(cluster.pause());
  REQUIRE(cluster.resume());
  cluster.join(alone, "coordinator");
  cluster.run_for(3s);  // it is heard, and hears nothing
  REQUIRE_FALSE(task(cluster, "experts/0").group.empty());
  REQUIRE(task(cluster, "experts/0").state == TaskState::running);
  cluster.join("coordinator", alone);
  finish(cluster);
  REQUIRE(cluster.checkers().trained_by_groups() >= 1);
}

TEST_CASE("an island that is lost with the last round, and done before it is back, is done") {
  for (int after = 0; after < 1000; after += 97) {
    INFO(after << " ms");
    Scenario scenario = calm(2, 1, 8);
    scenario.seed = 1;  // both islands are there when the task begins
    Cluster cluster(scenario);
    cluster.start();
    until_round(cluster, 4);
    cluster.host(1).crash();
    until_round(cluster, 7);
    cluster.run_for(milliseconds(after));
    cluster.cut("i0", "coordinator");
    cluster.cut("coordinator", "i0");
    cluster.run_for(8s);
    cluster.join("i0", "coordinator");
    cluster.join("coordinator", "i0");
    finish(cluster);
    REQUIRE(cluster.checkers().group_commits() == 8);
    REQUIRE(events(cluster, "task_again") == 0);
  }
}

TEST_CASE("worlds in which groups once went wrong stay safe") {
  for (const std::uint64_t seed : {2415, 2838, 5712, 6450, 6674}) {
    INFO("ATOLL_SIM_SEED=" << seed);
    Cluster cluster(draw_group_scenario(seed));
    REQUIRE(cluster.run() == "");
  }
}

namespace {

// Data between these two go nowhere; what they say to the coordinator does.
void part(Cluster& cluster, const std::string& a, const std::string& b) {
  cluster.cut(a, b);
  cluster.cut(b, a);
}

}  // namespace

TEST_CASE("islands between which no data pass leave a task to one that gets all that it needs, and the run of phases completes") {
  const std::uint32_t experts = GENERATE(1, 2, 3);
  const bool from_the_start = GENERATE(true, false);
  const std::pair<std::string, std::string> apart = GENERATE(std::pair("i0", "i1"), std::pair("i0", "i2"), std::pair("i1", "i2"));
  INFO(experts << " experts, apart " << apart.first << " and " << apart.second << (from_the_start ? "" : " after the clustering"));
  Scenario scenario = calm(3, experts, 6);
  scenario.spec.strategy.grouping = FragmentKind::whole;
  Cluster cluster(scenario);
  if (from_the_start) {
    part(cluster, apart.first, apart.second);
  }
  cluster.start();
  until(cluster, "the clustering", [&] { return task(cluster, "clustering").state == TaskState::done; });
  if (!from_the_start) {
    part(cluster, apart.first, apart.second);
  }
  finish(cluster);
}

TEST_CASE("a run of phases whose islands get nothing from each other says who has to reach whom, and goes on once one does") {
  Scenario scenario = calm(2, 2, 6);
  scenario.spec.islands.min = 2;
  Cluster cluster(scenario);
  cluster.start();
  // Each trains an expert: the results are made when data do not pass any more.
  until(cluster, "both experts",
        [&] { return task(cluster, "experts/0").state == TaskState::running && task(cluster, "experts/1").state == TaskState::running; });
  const std::uint64_t before = steps(cluster);
  until(cluster, "both trainers", [&] { return steps(cluster) >= before + 4; });
  part(cluster, "i0", "i1");
  const auto said = [&] { return cluster.view() ? cluster.view()->reason.text : std::string(); };
  until(cluster, "the reason", [&] { return said().find("islands i0 and i1 cannot exchange data") != std::string::npos; });
  INFO(said());
  CHECK(said().find("waits for an island that gets all that it needs") != std::string::npos);
  CHECK(said().find("One of them has to reach the other: open sim://i0 of i0 for i1, or open sim://i1 of i1 for i0") != std::string::npos);
  cluster.run_for(minutes(5));
  INFO(said());
  CHECK(said().find("waits for an island that gets all that it needs") != std::string::npos);
  cluster.heal();
  finish(cluster);
}
