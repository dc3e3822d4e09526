// Runs of phases: which tasks there are, where they are placed, and the coordinator's core with islands that a test plays.
#include "coordinator/core/phases.hpp"

#include <map>

#include "tests/unit/phases_play.hpp"

namespace of_phases_test {

using namespace atl_test;

TEST_CASE("the tasks of a run come after those they need, a run of rounds has one phase") {
  const auto tasks = tasks_of(spec_of(3));
  std::vector<std::string> names;
  for (const TaskPlan& task : tasks) {
    for (const std::string& need : task.needs) {
      CHECK(std::find(names.begin(), names.end(), need) != names.end());
    }
    names.push_back(task.task);
  }
  CHECK(names == std::vector<std::string>{"features", "clustering", "experts/0", "experts/1", "experts/2", "router", "assemble"});
  CHECK(tasks.back().needs == std::vector<std::string>{"clustering", "experts/0", "experts/1", "experts/2", "router"});
  CHECK(phases_of(spec_of(3)) == std::vector<std::string>{"features", "clustering", "experts", "router", "assemble"});
  RunSpec dense = spec_of(3);
  dense.diffusion.distill_steps = 10;
  CHECK(phases_of(dense) == std::vector<std::string>{"features", "clustering", "experts", "router", "distillation", "assemble"});
  const auto distilled = tasks_of(dense);
  CHECK(distilled[distilled.size() - 2].needs == std::vector<std::string>{"clustering", "experts/0", "experts/1", "experts/2"});
  CHECK(distilled.back().needs.back() == "distill");
  CHECK(phases_of(spec_of(1)) == std::vector<std::string>{"clustering", "experts", "assemble"});
  RunSpec random = spec_of(2);
  random.diffusion.clusters_by = "random";
  CHECK(tasks_of(random).front().task == "clustering");
  CHECK(phases_of(RunSpec{}) == std::vector<std::string>{"train"});
  CHECK(tasks_of(RunSpec{}).empty());
}

TEST_CASE("the largest task goes to the fastest island, and to one that can continue it") {
  const IslandId a("a"), b("b"), c("c");
  const std::vector<WaitingTask> tasks = {{"t0", 10, {}}, {"t1", 30, {}}, {"t2", 20, {a}}};
  CHECK(decide_placement(tasks, {{a, 5}, {b, 9}, {c, 7}}) == std::vector<Placement>{{"t1", b}, {"t2", a}, {"t0", c}});
  CHECK(decide_placement(tasks, {{c, 7}}) == std::vector<Placement>{{"t1", c}});
  CHECK(decide_placement({}, {{a, 1}}).empty());
  CHECK(decide_placement(tasks, {}).empty());
  CHECK(cluster_sizes(R"({"sizes": [3, 1]})") == std::vector<std::uint64_t>{3, 1});
  CHECK(cluster_sizes("no JSON").empty());
}

TEST_CASE("experts queue over islands, results are copied, and the run ends with all of them") {
  Play play;
  play.join("a");
  play.join("b");
  play.submit(spec_of(3));
  const std::string first = play.who("features");
  REQUIRE_FALSE(first.empty());
  const Digest features = play.finish(first);
  // The other island keeps a copy of it.
  const std::string other = first == "a" ? "b" : "a";
  CHECK(keeps(play.assignments[other], features));
  const std::string second = play.who("clustering");
  REQUIRE_FALSE(second.empty());
  CHECK(play.assignments[second].inputs.at(0).task == "features");
  CHECK(play.assignments[second].inputs.at(0).content.digest == features);
  play.finish(second, R"({"sizes": [10, 30, 20]})");
  // The two largest first.
  CHECK_FALSE(play.who("experts/1").empty());
  CHECK_FALSE(play.who("experts/2").empty());
  CHECK(play.who("experts/0").empty());
  play.finish(play.who("experts/1"));
  CHECK_FALSE(play.who("experts/0").empty());
  CHECK(play.core.run(play.now, play.run)->reason.text.find("3 of 7 tasks are done") != std::string::npos);
  while (play.core.run(play.now, play.run)->state == RunState::running) {
    for (const std::string& name : std::vector<std::string>{"a", "b"}) {
      if (!play.assignments[name].task.empty() && play.view(play.assignments[name].task).state == TaskState::running) {
        play.finish(name);
      }
    }
  }
  CHECK(play.core.run(play.now, play.run)->state == RunState::completed);
  const auto results = play.core.serve_results(play.now, play.run, "reader");
  REQUIRE(results);
  CHECK(results->size() == 6);  // all but the features, which are no part of it
}

TEST_CASE("a lost island's task goes on elsewhere from its copy, and its result is made again only if nobody has it") {
  Play play;
  for (const char* name : {"a", "b", "c"}) {
    play.join(name);
  }
  play.submit(spec_of(2, 3));
  play.finish(play.who("features"));
  play.finish(play.who("clustering"));
  const std::string owner = play.who("experts/0");
  REQUIRE_FALSE(owner.empty());
  const Digest saved = play.save(owner, 25);
  std::string keeper;
  for (const char* name : {"a", "b", "c"}) {
    if (name != owner && keeps(play.assignments[name], saved)) {
      keeper = name;
    }
  }
  REQUIRE_FALSE(keeper.empty());
  play.fetch(keeper);
  CHECK(play.view("experts/0").copies == 2);
  play.lose(owner);
  CHECK(play.view("experts/0").starts >= 1);
  // The others finish what they have; then one of them goes on with the lost one.
  for (int round = 0; round < 6 && play.who("experts/0").empty(); ++round) {
    for (const std::string& name : std::vector<std::string>(play.connected)) {
      if (!play.assignments[name].task.empty() && play.assignments[name].task != "experts/0") {
        play.finish(name);
      }
    }
  }
  const std::string heir = play.who("experts/0");
  REQUIRE_FALSE(heir.empty());
  CHECK(heir != owner);
  CHECK(play.assignments[heir].resume.digest == saved);
  CHECK(play.view("experts/0").starts == 2);
  CHECK(play.view("experts/0").checkpoint_step == 25);
}

TEST_CASE("an island drops a copy only while those that keep it are heard: who is silent may have lost its disk") {
  Play play;
  for (const char* name : {"a", "b", "c"}) {
    play.join(name);
  }
  play.submit(spec_of(2, 3));
  play.finish(play.who("features"));
  const std::string owner = play.who("clustering");
  const Digest clusters = play.finish(owner);
  std::string third;
  for (const char* name : {"a", "b", "c"}) {
    play.fetch(name);
    third = name != owner && !keeps(play.assignments[name], clusters) ? name : third;
  }
  REQUIRE_FALSE(third.empty());
  REQUIRE(play.held[third].contains(clusters));
  const auto drops = [&] {
    const std::vector<Content>& drop = play.assignments[third].drop;
    return std::ranges::find(drop, clusters, &Content::digest) != drop.end();
  };
  // These heartbeats tell of no run: an island has to say something else within a few seconds.
  play.connected = {third};
  play.wait(500ms);
  play.finish(third);
  CHECK_FALSE(drops());
  SECTION("they are heard again") {
    play.connected = {"a", "b", "c"};
    play.wait(1s);
    CHECK_FALSE(drops());  // that may be late messages of islands that are gone
    for (int again = 0; again < 11; ++again) {
      for (const char* name : {"a", "b", "c"}) {
        play.say(name, play.report(name, play.assignments[name].task.empty() ? "idle" : "running"));
      }
      play.wait(500ms);
    }
    CHECK(drops());
  }
  SECTION("one of them is heard") {
    play.connected = {owner, third};
    play.wait(1s);
    CHECK_FALSE(drops());
  }
  SECTION("they are lost") {
    play.wait(1s);
    CHECK_FALSE(drops());
    play.say(third, play.report(third, "idle"));
    play.wait(5s);
    CHECK_FALSE(drops());
    CHECK(keeps(play.assignments[third], clusters));
  }
}

TEST_CASE("a paused run of phases has no running task, and resumed goes on from what was saved") {
  Play play;
  play.join("a");
  play.join("b");
  play.submit(spec_of(1));
  play.finish(play.who("clustering"));
  const std::string owner = play.who("experts/0");
  REQUIRE_FALSE(owner.empty());
  const Digest saved = play.save(owner, 40);
  const std::uint64_t before = play.assignments[owner].number;
  REQUIRE(play.core.pause(play.now, play.run));
  play.take();
  CHECK(play.core.run(play.now, play.run)->state == RunState::paused);
  CHECK(play.core.run(play.now, play.run)->reason.text.find("go on from what they saved") != std::string::npos);
  CHECK(play.view("experts/0").state == TaskState::waiting);
  CHECK(play.released == std::set<std::string>{"a", "b"});
  play.wait(3s);
  CHECK(play.view("experts/0").starts == 1);
  play.assignments.clear();  // an island that is released forgets its assignment
  REQUIRE(play.core.resume(play.now, play.run));
  play.take();
  // Nothing is placed before both have said what lies on their disks: the second may have what can be continued.
  const std::string heir = play.who("experts/0");
  REQUIRE_FALSE(heir.empty());
  CHECK(play.assignments[heir].number > before);
  CHECK(play.view("experts/0").starts == 2);
  CHECK(play.assignments[heir].resume.digest == saved);
  CHECK(play.view("clustering").starts == 1);
}

TEST_CASE("a task that fails ends the run with its reason, and resume tries it again") {
  Play play;
  play.join("a");
  play.submit(spec_of(2));
  AssignmentReport failed = play.report("a", "failed");
  failed.error = Error{Code::invalid_argument, "images of mixed sizes"};
  play.say("a", failed);
  const auto view = play.core.run(play.now, play.run);
  CHECK(view->state == RunState::failed);
  CHECK(view->reason.text == "task features failed on island a: images of mixed sizes");
  REQUIRE(play.core.resume(play.now, play.run));
  play.take();
  CHECK(play.core.run(play.now, play.run)->state == RunState::running);
  CHECK(play.who("features") == "a");
  CHECK(play.view("features").starts == 2);
}

TEST_CASE("a core that is built from its records goes on: nothing that is done is done again") {
  Play play;
  play.join("a");
  play.submit(spec_of(2));
  const Digest features = play.finish("a");
  const Assignment before = play.assignments["a"];
  play.core = Core(Settings{}, recovered_from(play.records), play.now);
  play.connected.clear();
  play.join("a");
  CHECK(play.view("features").state == TaskState::done);
  CHECK(play.view("clustering").state == TaskState::running);
  CHECK(play.view("clustering").starts == 1);
  // The island reports the assignment it knows; the new coordinator's has a higher number.
  AssignmentReport known = play.report("a", "running");
  known.number = before.number;
  known.task = before.task;
  play.say("a", known);
  CHECK(play.assignments["a"].number > before.number);
  CHECK(play.assignments["a"].task == "clustering");
  CHECK(keeps(play.assignments["a"], features));
}

TEST_CASE("a completed run of phases has its phases, figures and results after a restart of the coordinator") {
  Play play;
  for (const char* name : {"a", "b"}) {
    play.join(name);
  }
  play.submit(spec_of(2));
  play.finish(play.who("features"));
  play.finish(play.who("clustering"), R"({"sizes": [10, 30]})");
  while (play.core.run(play.now, play.run)->state == RunState::running) {
    for (const std::string& name : std::vector<std::string>{"a", "b"}) {
      if (!play.assignments[name].task.empty() && play.view(play.assignments[name].task).state == TaskState::running) {
        play.finish(name);
      }
    }
  }
  const RunView before = *play.core.run(play.now, play.run);
  REQUIRE(before.state == RunState::completed);
  const auto results = play.core.serve_results(play.now, play.run, "reader");
  REQUIRE(results);
  play.core = Core(Settings{}, recovered_from(play.records), play.now);
  play.connected.clear();
  const RunView after = *play.core.run(play.now, play.run);
  REQUIRE(after.tasks.size() == before.tasks.size());
  for (std::size_t i = 0; i < after.tasks.size(); ++i) {
    CHECK(after.tasks[i].task == before.tasks[i].task);
    CHECK(after.tasks[i].phase == before.tasks[i].phase);
    CHECK(after.tasks[i].state == TaskState::done);
    CHECK(after.tasks[i].island == before.tasks[i].island);
    CHECK(after.tasks[i].facts == before.tasks[i].facts);
    CHECK(after.tasks[i].result == before.tasks[i].result);
  }
  CHECK(after.committed == before.committed);
  play.join("a", 2);
  play.join("b", 2);
  const auto again = play.core.serve_results(play.now, play.run, "reader");
  REQUIRE(again);
  REQUIRE(again->size() == results->size());
  for (std::size_t i = 0; i < again->size(); ++i) {
    CHECK((*again)[i].task == (*results)[i].task);
    CHECK((*again)[i].digest == (*results)[i].digest);
    CHECK_FALSE((*again)[i].sources.empty());
  }
}

}  // namespace of_phases_test
