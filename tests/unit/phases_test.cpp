// Runs of phases: which tasks there are, where they are placed, and the coordinator's core with islands that a test plays.
#include "coordinator/core/phases.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "coordinator/core/core.hpp"
#include "tests/catch.hpp"

namespace {

using namespace atl;
using namespace atl::coordinator;
using namespace std::chrono_literals;

RunSpec spec_of(std::uint32_t experts, std::uint32_t max = 4) {
  RunSpec spec;
  spec.name = "images";
  spec.data.set = "digits";
  spec.data.format = "idx";
  spec.training.steps = 100;
  spec.strategy.name = "decentralized-diffusion";
  spec.strategy.group = Group::expert;
  spec.diffusion.experts = experts;
  spec.islands.max = max;
  spec.islands.deadline = 60s;
  spec.rounds = experts;
  return spec;
}

Digest digest(std::uint64_t value) {
  Digest d;
  std::memcpy(d.bytes.data(), &value, sizeof value);
  return d;
}

// Islands that do what their assignment says when the test tells them to.
struct Play {
  TimePoint now = from_unix_ms(1'700'000'000'000);
  Core core{Settings{}, Recovered{}, now};
  RunId run{"r-1"};
  std::map<std::string, Assignment> assignments;
  std::map<std::string, std::map<Digest, std::uint64_t>> held;
  std::vector<std::string> connected;
  std::vector<coordinator::Record> records;
  std::set<std::string> released;
  std::map<std::string, Invite> assigned;  // in the run of a group
  std::uint64_t next_digest = 1;

  void join(const std::string& name, std::uint64_t boot = 1, const std::vector<std::string>& sets = {"digits"}) {
    core.admit(now, IslandId(name), name, "key-" + name);
    Hello hello;
    hello.name = name;
    hello.boot = boot;
    hello.data_sets = sets;
    core.step(now, IslandId(name), boot, hello);
    connected.push_back(name);
    take();
  }
  void submit(const RunSpec& spec) {
    REQUIRE(core.submit(now, run, spec, "", ""));
    wait(3s);
  }
  void lose(const std::string& name) {
    std::erase(connected, name);
    wait(6s);
    assignments.erase(name);  // what it was sent before it counted as lost it never got
  }
  // Time passes, with heartbeats of those that are connected.
  void wait(Duration time) {
    for (const TimePoint until = now + time; now < until;) {
      now += 500ms;
      for (const std::string& name : connected) {
        core.step(now, IslandId(name), 1, Heartbeat{1, {}});
      }
      core.tick(now);
      take();
    }
  }
  void take() {
    coordinator::Ready ready = core.take_ready();
    std::vector<std::string> idle;
    records.insert(records.end(), ready.records.begin(), ready.records.end());
    for (const Outgoing& out : ready.messages) {
      if (const auto* assignment = std::get_if<Assignment>(&out.message);
          assignment != nullptr && assignment->number > assignments[out.island.text].number) {
        assignments[out.island.text] = *assignment;
        if (assignment->task.empty()) {
          idle.push_back(out.island.text);
        }
      } else if (const auto* release = std::get_if<Release>(&out.message)) {
        released.insert(out.island.text);
        if (assigned.contains(out.island.text) && assigned[out.island.text].run == release->run) {
          assigned.erase(out.island.text);
        }
      } else if (const auto* invite = std::get_if<Invite>(&out.message)) {
        assigned[out.island.text] = *invite;
      } else if (const auto* membership = std::get_if<NewEpoch>(&out.message);
                 membership != nullptr && assigned.contains(out.island.text)) {
        assigned[out.island.text].epoch = std::max(assigned[out.island.text].epoch, membership->epoch);
      } else if (const auto* exchange = std::get_if<Exchange>(&out.message)) {
        answers.emplace_back(out.island.text, Exchanged{exchange->run, exchange->epoch, exchange->round, exchange->attempt,
                                                        digest(900 + exchange->round.value), 10, 10, 0.1});
      } else if (const auto* commit = std::get_if<Commit>(&out.message)) {
        if (commit->round.value < 2) {
          answers.emplace_back(out.island.text, ready_for(out.island.text, commit->round.next(), commit->digest));
        } else {
          answers.emplace_back(out.island.text, Checkpointed{commit->run, commit->round, commit->digest, digest(77), 100, std::nullopt});
          answers.emplace_back(out.island.text, RunEnded{commit->run, commit->round, commit->digest, std::nullopt});
        }
      }
    }
    for (const std::string& name : idle) {
      say(name, report(name, "idle"));
    }
  }
  // An island trains with its group: it answers what it was told, until nothing is told any more.
  atl::Ready ready_for(const std::string& name, Round round, const Digest& digest) {
    const Invite& invite = assigned[name];
    return atl::Ready{invite.run, invite.epoch, round, 10, 5, 2.0, 0.1, digest};
  }
  // `on`: to their end, and not only until all have begun with the same.
  void begin_rounds(const std::vector<std::string>& names, bool on = true) {
    for (const std::string& name : names) {
      core.step(now, IslandId(name), 1, ready_for(name, Round(0), digest(900)));
    }
    take();
    if (on) {
      answer();
    }
    answers.clear();
  }
  void answer() {
    while (!answers.empty()) {
      const auto [name, message] = answers.front();
      answers.erase(answers.begin());
      core.step(now, IslandId(name), 1, message);
      take();
    }
  }
  std::vector<std::pair<std::string, Message>> answers;
  // All that the assignment names is there: it can take part in its group's rounds.
  void prepare(const std::string& name) {
    fetch(name);
    say(name, report(name, "ready"));
  }

  AssignmentReport report(const std::string& name, const std::string& state) {
    const Assignment& assignment = assignments[name];
    AssignmentReport message;
    message.run = run;
    message.number = assignment.number;
    message.task = assignment.task;
    message.state = state;
    for (const auto& [its, bytes] : held[name]) {
      message.held.push_back(Content{its, bytes, {}});
    }
    return message;
  }
  void say(const std::string& name, AssignmentReport message) {
    core.step(now, IslandId(name), 1, message);
    take();
  }
  // Fetches all that the assignment names.
  void fetch(const std::string& name) {
    std::vector<Content> wanted = assignments[name].keep;
    for (const TaskInput& input : assignments[name].inputs) {
      wanted.push_back(input.content);
    }
    for (const Content& content : wanted) {
      CHECK_FALSE(content.digest.empty());
      held[name][content.digest] = content.bytes;
    }
    say(name, report(name, assignments[name].task.empty() ? "idle" : "running"));
  }
  Digest finish(const std::string& name, const std::string& facts = "{}") { return finish_as(name, digest(next_digest++), facts); }
  Digest finish_as(const std::string& name, const Digest& its, const std::string& facts = "{}") {
    fetch(name);
    AssignmentReport message = report(name, "done");
    message.result = Content{its, 100, {}};
    message.facts = facts;
    held[name][message.result.digest] = 100;
    message.held.push_back(message.result);
    say(name, message);
    return message.result.digest;
  }
  Digest save(const std::string& name, std::uint64_t step) {
    AssignmentReport message = report(name, "running");
    message.checkpoint = Content{digest(next_digest++), 50, {}};
    message.checkpoint_step = step;
    held[name][message.checkpoint.digest] = 50;
    message.held.push_back(message.checkpoint);
    say(name, message);
    return message.checkpoint.digest;
  }
  [[nodiscard]] std::string who(const std::string& task) const {
    for (const auto& [name, assignment] : assignments) {
      if (assignment.task == task) {
        return name;
      }
    }
    return "";
  }
  [[nodiscard]] TaskView view(const std::string& task) const {
    const std::optional<RunView> whole = core.run(now, run);
    for (const TaskView& view : whole->tasks) {
      if (view.task == task) {
        return view;
      }
    }
    FAIL("no task " << task);
    return {};
  }
};

bool keeps(const Assignment& assignment, const Digest& its) {
  return std::any_of(assignment.keep.begin(), assignment.keep.end(), [&](const Content& content) { return content.digest == its; });
}

}  // namespace

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
  CHECK(invite.parts == 2);
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
  Recovered recovered;
  std::map<std::string, TaskRecord> tasks;
  std::map<std::string, MembershipRecord> memberships;
  for (const coordinator::Record& record : play.records) {
    if (const auto* run = std::get_if<RunRecord>(&record)) {
      recovered.runs = {*run};
    } else if (const auto* task = std::get_if<TaskRecord>(&record)) {
      tasks[task->task] = *task;
    } else if (const auto* membership = std::get_if<MembershipRecord>(&record)) {
      memberships[membership->island.text] = *membership;
    } else if (const auto* epoch = std::get_if<EpochRecord>(&record)) {
      recovered.epochs = {*epoch};
    } else if (const auto* island = std::get_if<IslandRecord>(&record)) {
      recovered.islands = {*island};
    }
  }
  for (const auto& [name, task] : tasks) {
    recovered.tasks.push_back(task);
  }
  for (const auto& [name, membership] : memberships) {
    recovered.memberships.push_back(membership);
  }
  const Assignment before = play.assignments["a"];
  play.core = Core(Settings{}, recovered, play.now);
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

namespace {

RunSpec spread_over(std::uint32_t parts, std::uint32_t experts = 2) {
  RunSpec spec = spec_of(experts);
  spec.data.spread = parts;
  return spec;
}

std::string reason(const Play& play) { return play.core.run(play.now, play.run)->reason.text; }

}  // namespace

TEST_CASE("a data set that is spread over islands is packed before anything else, and its clustering needs no image") {
  std::vector<std::string> names;
  std::map<std::string, std::vector<std::string>> needs;
  for (const TaskPlan& task : tasks_of(spread_over(2))) {
    names.push_back(task.task);
    needs[task.task] = task.needs;
  }
  using Names = std::vector<std::string>;
  CHECK(names == Names{"images/0", "images/1", "features/0", "features/1", "clustering", "experts/0", "experts/1", "router", "assemble"});
  CHECK(needs["images/1"].empty());
  CHECK(needs["features/1"] == Names{"images/1"});
  CHECK(needs["clustering"] == Names{"features/0", "features/1"});
  CHECK(needs["experts/0"] == Names{"clustering", "images/0", "images/1"});
  CHECK(needs["assemble"] == Names{"clustering", "images/0", "images/1", "experts/0", "experts/1", "router"});
  CHECK(phases_of(spread_over(2)) == Names{"images", "features", "clustering", "experts", "router", "assemble"});
  // Labels and chance look at the images themselves.
  RunSpec labels = spread_over(2);
  labels.diffusion.clusters_by = "labels";
  CHECK(tasks_of(labels)[2].needs == Names{"images/0", "images/1"});
}

TEST_CASE("each island packs its own images once, those without any only train, and a part's features are made where its images are") {
  Play play;
  play.join("a", 1, {});
  play.join("b");
  play.submit(spread_over(2));
  REQUIRE(play.who("images/0") == "b");
  CHECK(play.who("images/1").empty());
  play.finish("b");
  play.wait(1s);
  CHECK(play.who("images/1").empty());  // b has packed, a has nothing to pack
  CHECK(
      reason(play).find("waits for 1 more of 2 islands with images of their own; island a has none: its agent maps no data set 'digits'") !=
      std::string::npos);
  play.join("c");
  play.wait(1s);
  REQUIRE(play.who("images/1") == "c");
  // It maps the set, and there is nothing there.
  AssignmentReport failed = play.report("c", "failed");
  failed.error = Error{Code::not_found, "/srv/digits: no such file"};
  play.say("c", failed);
  play.wait(1s);
  CHECK(play.view("images/1").state == TaskState::waiting);
  CHECK(reason(play).find("island c has none: /srv/digits: no such file") != std::string::npos);
  play.join("d");
  play.wait(1s);
  REQUIRE(play.who("images/1") == "d");
  play.finish("d");
  CHECK(play.who("features/0") == "b");
  CHECK(play.who("features/1") == "d");
  play.finish("b");
  play.finish("d");
  const std::string clusters = play.who("clustering");
  REQUIRE_FALSE(clusters.empty());
  CHECK(play.assignments[clusters].inputs.size() == 2);
  play.finish(clusters);
  // An island without images of its own trains on the others'.
  play.wait(1s);
  CHECK_FALSE(play.assignments["a"].task.empty());
  CHECK(play.assignments["a"].inputs.size() == 3);
}

TEST_CASE("islands with the same images are no two parts of a data set") {
  Play play;
  play.join("a");
  play.join("b");
  play.submit(spread_over(2));
  play.finish_as("a", digest(70));
  play.finish_as("b", digest(70));
  CHECK(play.core.run(play.now, play.run)->state == RunState::failed);
  CHECK(reason(play).find("islands a and b have the same images; with data.spread = 2 each of so many islands has images of its own") !=
        std::string::npos);
}

TEST_CASE("packed images that are lost are packed again by their own island alone, and have to be the same") {
  for (const bool same : {true, false}) {
    Play play;
    for (const char* name : {"a", "b", "c"}) {
      play.join(name);
    }
    RunSpec spec = spread_over(2);
    spec.islands.deadline = 1s;  // however long it takes
    play.submit(spec);
    const std::string owner = play.who("images/0");
    const std::string other = play.who("images/1");
    const Digest images = play.finish(owner);
    play.finish(other);
    play.finish(play.who("features/0"));
    play.finish(play.who("features/1"));
    play.finish(play.who("clustering"));
    for (const char* name : {"a", "b", "c"}) {
      play.fetch(name);
      play.held[name].erase(images);  // of all that there is nobody has this any more
    }
    const std::string third = owner != "a" && other != "a" ? "a" : owner != "b" && other != "b" ? "b" : "c";
    play.lose(owner);
    for (const std::string& name : {other, third}) {
      play.say(name, play.report(name, play.assignments[name].task.empty() ? "idle" : "fetching"));
    }
    play.wait(3s);
    CHECK(play.view("images/0").state == TaskState::done);
    INFO(reason(play));
    CHECK(reason(play).find("waits for island " + owner +
                            " or another that has the images of task images/0: nobody else can pack them again") != std::string::npos);
    play.join(owner);
    play.wait(2s);
    play.say(owner, play.report(owner, "idle"));
    play.wait(1s);
    REQUIRE(play.who("images/0") == owner);
    play.finish_as(owner, same ? images : digest(71));
    play.wait(1s);
    if (same) {
      CHECK(play.view("images/0").state == TaskState::done);
      CHECK_FALSE(play.who("experts/0").empty());
    } else {
      CHECK(play.core.run(play.now, play.run)->state == RunState::failed);
      CHECK(reason(play).find("the images of island " + owner + " have changed since they were packed") != std::string::npos);
    }
  }
}
