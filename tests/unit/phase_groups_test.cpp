// Groups of islands that train one expert: who is in which, and a group's run of rounds beside the run that it belongs to.
#include "coordinator/core/phases.hpp"
#include "tests/unit/phases_play.hpp"

namespace of_phase_groups_test {

using namespace atl_test;

TEST_CASE("islands that are left over join the experts, in turn, and no more than an expert has batches for") {
  const IslandId a("a"), b("b"), c("c"), d("d");
  using Groups = std::vector<std::vector<IslandId>>;
  const std::vector<BeginningExpert> experts = {{"experts/0", 100}, {"experts/1", 300}};
  CHECK(decide_groups(experts, {}, 10) == Groups{{}, {}});
  CHECK(decide_groups(experts, {{a, 1}}, 10) == Groups{{}, {a}});                      // the largest cluster first
  CHECK(decide_groups(experts, {{a, 1}, {b, 5}, {c, 3}}, 10) == Groups{{c}, {b, a}});  // and the fastest island
  CHECK(decide_groups(experts, {{a, 4}, {b, 3}, {c, 2}, {d, 1}}, 100) ==
        Groups{{}, {a, b}});                                                          // three batches: three islands, two of them more
  CHECK(decide_groups({{"experts/0", 0}}, {{a, 4}, {b, 3}}, 100) == Groups{{a, b}});  // not known
  CHECK(decide_groups({}, {{a, 4}}, 1).empty());
}

TEST_CASE("more islands than experts train them in groups: a run of rounds each, whose end is what the task goes on from") {
  Play play;
  for (const char* name : {"a", "b", "c", "d", "e"}) {
    play.join(name);
  }
  RunSpec spec = spec_of(2, 5);
  spec.training.batch = 4;
  spec.group_rounds = 2;
  play.submit(spec);
  play.finish(play.who("features"));
  play.finish(play.who("clustering"), R"({"sizes": [40, 60]})");
  // Two experts and the router have an island each; the two others help.
  std::map<std::string, std::vector<std::string>> workers;
  for (const auto& [name, assignment] : play.assignments) {
    workers[assignment.task].push_back(name);
  }
  CHECK(workers["router"].size() == 1);
  REQUIRE(workers["experts/0"].size() == 2);
  REQUIRE(workers["experts/1"].size() == 2);
  const TaskView before = play.view("experts/0");
  CHECK_FALSE(before.group.run.empty());
  CHECK(before.group.name == "images.experts-0");
  CHECK(before.group.rounds == 2);
  CHECK(before.group.members.size() == 2);
  CHECK(play.view("experts/1").group.run != before.group.run);
  CHECK(play.view("router").group.run.empty());
  CHECK(play.assigned.empty());

  // Nobody is let into the rounds who has not what they need.
  const std::vector<std::string>& group = workers["experts/0"];
  CHECK(play.assignments[group[0]].group == before.group.run);
  CHECK(play.assignments[group[0]].group_round == Round(0));
  CHECK(play.assignments[group[0]].inputs.at(0).task == "clustering");
  play.prepare(group[0]);
  CHECK(play.assigned.empty());  // it waits a moment for the other
  play.prepare(group[1]);
  REQUIRE(play.assigned.size() == 2);
  const Invite invite = play.assigned[group[0]];
  CHECK(invite.run == before.group.run);
  CHECK(invite.share.slices == 2);
  CHECK(invite.share.stretches.at(0).classes.size() == 32);
  const RunSpec rounds = run_spec_from_json(invite.spec).value();
  CHECK(rounds.strategy.group == Group::all);
  CHECK(rounds.rounds == 2);
  CHECK(rounds.work.run == "r-1");
  CHECK(rounds.work.task == "experts/0");
  CHECK(rounds.work.sha256 == to_hex(play.view("clustering").result));
  CHECK(play.core.run(play.now, before.group.run)->part_of == play.run);

  play.begin_rounds(group);
  CHECK(play.core.run(play.now, before.group.run)->state == RunState::completed);
  play.wait(1s);
  // One of them makes the result from what its trainer saved; the other is free.
  const std::string owner = play.who("experts/0");
  REQUIRE_FALSE(owner.empty());
  CHECK(play.assignments[owner].group == before.group.run);
  CHECK(play.assignments[owner].group_round == Round(2));
  CHECK(play.view("experts/0").state == TaskState::running);
  const std::string other = owner == group[0] ? group[1] : group[0];
  CHECK(play.assignments[other].task.empty());
  // It has not got it: the other has.
  play.say(owner, play.report(owner, "without"));
  REQUIRE(play.who("experts/0") == other);
  CHECK(play.assignments[other].group_round == Round(2));
  play.finish(other);
  CHECK(play.view("experts/0").state == TaskState::done);
  CHECK(play.view("experts/0").group.members.empty());
}

TEST_CASE("one island an expert has no group: a group whose islands are gone for good begins again, and one that fails fails the run") {
  Play play;
  for (const char* name : {"a", "b", "c"}) {
    play.join(name);
  }
  RunSpec spec = spec_of(2, 3);
  spec.group_rounds = 2;
  play.submit(spec);
  play.finish(play.who("features"));
  play.finish(play.who("clustering"), R"({"sizes": [400, 600]})");
  for (const char* task : {"experts/0", "experts/1", "router"}) {
    CHECK(play.view(task).group.run.empty());
    CHECK(play.view(task).state == TaskState::running);
  }

  Play gone;
  for (const char* name : {"a", "b", "c"}) {
    gone.join(name);
  }
  RunSpec one = spec_of(1, 3);
  one.group_rounds = 2;
  gone.submit(one);
  gone.finish(gone.who("clustering"), R"({"sizes": [600]})");
  const RunId first = gone.view("experts/0").group.run;
  REQUIRE_FALSE(first.empty());
  CHECK(gone.view("experts/0").group.members.size() == 3);
  for (const char* name : {"a", "b", "c"}) {
    gone.prepare(name);
  }
  REQUIRE(gone.assigned.size() == 3);
  // The rounds have begun. One island is lost: the others go on, and its place is kept.
  gone.begin_rounds({"a", "b", "c"}, false);
  CHECK(gone.core.run(gone.now, first)->state == RunState::running);
  gone.lose("b");
  CHECK(gone.view("experts/0").group.run == first);
  CHECK(gone.view("experts/0").state == TaskState::running);
  gone.lose("a");
  gone.lose("c");
  gone.join("d");
  gone.held["d"] = gone.held["a"];  // what it takes over from the disk of another: the clustering is not lost
  gone.say("d", gone.report("d", "idle"));
  gone.wait(70s);
  const RunId second = gone.view("experts/0").group.run;
  CHECK(second != first);
  CHECK(gone.core.run(gone.now, first)->state == RunState::cancelled);

  Play failing;
  for (const char* name : {"a", "b"}) {
    failing.join(name);
  }
  failing.submit(one);
  failing.finish(failing.who("clustering"), R"({"sizes": [600]})");
  const RunId group = failing.view("experts/0").group.run;
  for (const char* name : {"a", "b"}) {
    failing.prepare(name);
  }
  REQUIRE(failing.assigned.size() == 2);
  for (const char* name : {"a", "b"}) {
    failing.core.step(failing.now, IslandId(name), 1,
                      RunEnded{group, Round(0), Digest{}, Error{Code::invalid_argument, "the data are too small"}});
    failing.take();
  }
  failing.wait(1s);
  const auto whole = failing.core.run(failing.now, failing.run);
  CHECK(whole->state == RunState::failed);
  CHECK(whole->reason.text.find("task experts/0 failed in run images.experts-0") != std::string::npos);
  CHECK(whole->reason.text.find("the data are too small") != std::string::npos);
}

TEST_CASE("a run with groups is paused when they have ended the round in hand, and cancelled with them") {
  for (const bool cancels : {false, true}) {
    Play play;
    for (const char* name : {"a", "b"}) {
      play.join(name);
    }
    RunSpec spec = spec_of(1, 2);
    spec.group_rounds = 2;
    play.submit(spec);
    play.finish(play.who("clustering"), R"({"sizes": [600]})");
    const RunId group = play.view("experts/0").group.run;
    REQUIRE_FALSE(group.empty());
    for (const char* name : {"a", "b"}) {
      play.prepare(name);
    }
    REQUIRE(play.assigned.size() == 2);
    if (cancels) {
      REQUIRE(play.core.cancel(play.now, play.run, ""));
      CHECK(play.core.run(play.now, group)->state == RunState::cancelled);
      continue;
    }
    REQUIRE(play.core.pause(play.now, play.run));
    play.take();
    play.wait(1s);
    CHECK(play.core.run(play.now, group)->state == RunState::paused);
    CHECK(play.core.run(play.now, play.run)->state == RunState::paused);
    play.assignments.clear();
    play.assigned.clear();
    REQUIRE(play.core.resume(play.now, play.run));
    play.take();
    play.wait(3s);
    CHECK(play.view("experts/0").group.run == group);
    for (const char* name : {"a", "b"}) {
      REQUIRE(play.assignments[name].group == group);
      play.prepare(name);
    }
    play.wait(3s);
    CHECK(play.assigned.size() == 2);
  }
}

}  // namespace of_phase_groups_test
