// The agent's core in a run of phases: an assignment is carried out, and how it stands is said.
#include <algorithm>

#include "agent/core/core.hpp"
#include "strategies/specification/run_spec.hpp"
#include "tests/catch.hpp"

namespace of_tasks_test {

namespace {

using namespace atl;
using namespace atl::agent;
using namespace std::chrono_literals;

Content content(std::uint8_t number, std::vector<IslandId> sources = {}) {
  Content value;
  value.digest.bytes[0] = std::byte{number};
  value.bytes = 10U * number;
  value.sources = std::move(sources);
  return value;
}

Assignment assignment(std::uint64_t number, const std::string& task) {
  RunSpec spec;
  spec.name = "images";
  spec.data.set = "digits";
  spec.data.format = "idx";
  spec.strategy.name = "decentralized-diffusion";
  spec.strategy.group = Group::expert;
  spec.training.steps = 100;
  spec.rounds = 2;
  Assignment message;
  message.run = RunId("r-1");
  message.number = number;
  message.spec = to_json(spec);
  message.task = task;
  return message;
}

struct Bench {
  TimePoint now = from_unix_ms(1'700'000'000'000);
  agent::Core core{agent::Identity{IslandId("i-a"), "a", "test", 1, "tcp://h:1", "", {}}, agent::Settings{}, {}, now};
  std::vector<Effect> effects;  // of the newest event
  std::vector<AssignmentReport> reports;
  std::vector<Message> messages;

  Bench() {
    feed(agent::LinkUp{});
    say(Welcome{});
  }
  void feed(const Event& event) {
    core.step(now, event);
    take();
  }
  void say(const Message& message) { feed(FromCoordinator{message}); }
  void wait(Duration time) {
    now += time;
    core.tick(now);
    take();
  }
  void take() {
    agent::Ready ready = core.take_ready();
    effects = std::move(ready.effects);
    messages = std::move(ready.messages);
    for (const Message& message : messages) {
      if (const auto* report = std::get_if<AssignmentReport>(&message)) {
        reports.push_back(*report);
      }
    }
  }
  template <typename E>
  [[nodiscard]] std::vector<E> all() const {
    std::vector<E> found;
    for (const Effect& effect : effects) {
      if (const auto* one = std::get_if<E>(&effect)) {
        found.push_back(*one);
      }
    }
    return found;
  }
  void hold(const Content& its, std::uint64_t start = 0, std::uint64_t step = 0) {
    feed(ContentHeld{RunId("r-1"), its, start, step, 0, 0});
  }
};

}  // namespace

TEST_CASE(
    "what an earlier order to fetch missed is not fetched before it is known what lies on the disk, and the agent sleeps until then") {
  Bench bench;
  Assignment order = assignment(7, "experts/0");
  order.inputs = {{"clustering", content(1, {IslandId("i-b")})}};
  bench.say(order);
  bench.feed(ContentOpened{RunId("r-1")});
  CHECK(bench.all<FetchContent>().size() == 1);
  // The run is given anew, with the fetch of before still under way: its folder is read once more.
  bench.say(Release{RunId("r-1"), Code::cancelled, false, "the coordinator was started anew", Epoch(0), 0});
  order.number = 8;
  bench.say(order);
  REQUIRE(bench.all<OpenContent>().size() == 1);
  bench.feed(ContentMissed{RunId("r-1"), content(1).digest, 0, Error{Code::unavailable, "gone"}});
  bench.wait(3s);
  CHECK(bench.all<FetchContent>().empty());
  CHECK(bench.core.next_deadline() > bench.now);

  bench.feed(ContentOpened{RunId("r-1")});
  CHECK(bench.all<FetchContent>().size() == 1);
  bench.feed(ContentMissed{RunId("r-1"), content(1).digest, 0, Error{Code::unavailable, "gone"}});
  bench.wait(3s);
  CHECK(bench.all<FetchContent>().size() == 1);
}

TEST_CASE("an assignment is carried out: inputs are fetched, the task runs, is continued after a crash, and its result is said") {
  Bench bench;
  Assignment order = assignment(7, "experts/0");
  order.inputs = {{"clustering", content(1, {IslandId("i-b")})}};
  order.resume = content(2, {IslandId("i-b")});
  bench.say(order);
  CHECK(bench.all<OpenContent>().size() == 1);
  CHECK(bench.all<FetchContent>().empty());
  CHECK(bench.reports.empty());  // the coordinator would take what is not said for what is not there

  bench.feed(ContentOpened{RunId("r-1")});
  CHECK(bench.all<FetchContent>().size() == 2);
  REQUIRE_FALSE(bench.reports.empty());
  CHECK(bench.reports.back().number == 7);
  CHECK(bench.reports.back().state == "fetching");
  bench.hold(content(1));
  CHECK(bench.all<StartTask>().empty());
  bench.feed(ContentMissed{RunId("r-1"), content(2).digest, 0, Error{Code::unavailable, "gone"}});
  CHECK(bench.reports.back().state == "fetching");
  REQUIRE(bench.reports.back().error);
  CHECK(bench.reports.back().error->why == "gone");
  bench.wait(3s);  // it is tried again
  REQUIRE(bench.all<FetchContent>().size() == 1);
  CHECK(bench.all<FetchContent>()[0].content.digest == content(2).digest);
  bench.hold(content(2));
  CHECK_FALSE(bench.reports.back().error);
  REQUIRE(bench.all<StartTask>().size() == 1);
  StartTask started = bench.all<StartTask>()[0];
  CHECK(started.task == "experts/0");
  CHECK(started.inputs == order.inputs);
  CHECK(started.resume.digest == content(2).digest);

  // What its model draws goes on at once; of an older start it does not.
  const auto drawn = [&] {
    const auto found = std::ranges::find_if(bench.messages, [](const Message& m) { return std::holds_alternative<TaskImages>(m); });
    return found == bench.messages.end() ? TaskImages{} : std::get<TaskImages>(*found);
  };
  bench.feed(TaskDrew{RunId("r-1"), started.start, 12, {std::byte{1}}});
  CHECK(drawn() == TaskImages{RunId("r-1"), "experts/0", 12, {std::byte{1}}});
  bench.feed(TaskDrew{RunId("r-1"), started.start + 1, 12, {std::byte{1}}});
  CHECK(drawn().png.empty());

  // A checkpoint becomes content; after a crash the task goes on from it.
  bench.feed(TaskWrote{RunId("r-1"), started.start, "/work/checkpoint.20", 20, false, {}});
  REQUIRE(bench.all<AdoptContent>().size() == 1);
  CHECK(bench.all<AdoptContent>()[0].step == 20);
  bench.hold(content(3), started.start, 20);
  CHECK(bench.reports.back().checkpoint.digest == content(3).digest);
  CHECK(bench.reports.back().checkpoint_step == 20);
  bench.feed(TaskEnded{RunId("r-1"), started.start, false, false, Error{Code::unavailable, "the trainer was killed"}});
  CHECK(bench.reports.back().state == "running");
  bench.wait(60s);
  REQUIRE(bench.all<StartTask>().size() == 1);
  CHECK(bench.all<StartTask>()[0].start > started.start);
  CHECK(bench.all<StartTask>()[0].resume.digest == content(3).digest);
  // What the trainer that is gone says comes too late.
  bench.feed(TaskWrote{RunId("r-1"), started.start, "/work/checkpoint.40", 40, false, {}});
  CHECK(bench.effects.empty());
  started = bench.all<StartTask>().empty() ? started : bench.all<StartTask>()[0];

  bench.feed(TaskWrote{RunId("r-1"), started.start + 1, "/work/result", 0, true, "{\"loss\": 1}"});
  CHECK(bench.all<StopTask>().size() == 1);
  REQUIRE(bench.all<AdoptContent>().size() == 1);
  CHECK(bench.reports.back().state == "running");  // until it lies where it can be served
  bench.hold(content(4), started.start + 1, 0);
  CHECK(bench.reports.back().state == "done");
  CHECK(bench.reports.back().result.digest == content(4).digest);
  CHECK(bench.reports.back().facts == "{\"loss\": 1}");

  // An older assignment changes nothing. A newer one says what goes, and nothing else does: a coordinator that was started anew does not
  // know what lies here.
  bench.say(assignment(6, "router"));
  CHECK(bench.effects.empty());
  Assignment next = assignment(8, "");
  next.keep = {content(4)};
  bench.say(next);
  CHECK(bench.all<DropContent>().empty());
  next.number = 9;
  next.drop = {content(1), content(5)};
  bench.say(next);
  const std::vector<DropContent> dropped = bench.all<DropContent>();
  REQUIRE(dropped.size() == 1);  // it never had the other
  CHECK(dropped[0].digest == content(1).digest);
  CHECK(bench.reports.back().state == "idle");
  CHECK(std::ranges::none_of(bench.reports.back().held, [](const Content& held) { return held.digest == content(1).digest; }));

  // What the task before had written, and is adopted only now, is not what the new one goes on from.
  next.number = 10;
  next.task = "router";
  next.inputs = {{"clustering", content(7, {IslandId("i-b")})}};
  bench.say(next);
  bench.hold(content(5), started.start + 1, 60);
  CHECK(bench.reports.back().task == "router");
  CHECK(bench.reports.back().checkpoint.digest.empty());
  next = assignment(11, "");
  next.keep = {content(4)};
  bench.say(next);

  // A fetch that a newer assignment does not name is given up; what came of it all the same does not count.
  next.number = 12;
  next.keep = {content(4), content(6, {IslandId("i-b")})};
  bench.say(next);
  REQUIRE(bench.all<FetchContent>().size() == 1);
  next.number = 13;
  next.keep = {content(4)};
  bench.say(next);
  REQUIRE(bench.all<DropContent>().size() == 1);
  CHECK(bench.all<DropContent>()[0].digest == content(6).digest);
  bench.hold(content(6));
  CHECK(std::ranges::none_of(bench.reports.back().held, [](const Content& held) { return held.digest == content(6).digest; }));
}

TEST_CASE(
    "an island trains an expert with others in a run of rounds beside its assignment, and makes the result of what its trainer saved") {
  for (const bool saved : {true, false}) {
    Bench bench;
    Assignment order = assignment(1, "experts/0");
    order.inputs = {{"clustering", content(1, {IslandId("i-b")})}};
    order.group = RunId("g-1");
    bench.say(order);
    bench.feed(ContentOpened{RunId("r-1")});
    CHECK(bench.reports.back().state == "fetching");
    bench.hold(content(1));
    CHECK(bench.reports.back().state == "ready");
    CHECK(bench.all<StartTask>().empty());

    // The group's run is assigned: the assignment stays, its trainer is told what the expert is of.
    RunSpec spec = run_spec_from_json(order.spec).value();
    spec.strategy = StrategySpec{};
    spec.strategy.inner_steps = 50;
    spec.rounds = 2;
    spec.work = GroupWork{"r-1", "experts/0", to_hex(content(1).digest)};
    Invite invite;
    invite.run = RunId("g-1");
    invite.spec = to_json(spec);
    invite.epoch = Epoch(1);
    invite.from = StartFrom::scratch;
    bench.say(invite);
    REQUIRE(bench.all<StartTrainer>().size() == 1);
    const StartTrainer trainer = bench.all<StartTrainer>()[0];
    CHECK(trainer.run == RunId("g-1"));
    CHECK(trainer.spec.work == spec.work);
    CHECK(bench.all<DropContent>().empty());
    // A newer assignment does not end the rounds; both are reported, and what the group does counts for the run.
    order.number = 2;
    bench.say(order);
    CHECK(bench.all<StopTrainer>().empty());
    bench.feed(TrainerReady{RunId("g-1"), trainer.incarnation, Step(0), 0, 1, true, 90});
    TrainerProgress progress;
    progress.run = RunId("g-1");
    progress.incarnation = trainer.incarnation;
    progress.step = Step(7);
    progress.tokens_per_second = 12;
    progress.compute_seconds = 3;
    bench.feed(progress);
    bench.wait(1s);
    const auto reports_of = [&] {
      for (const Message& message : bench.messages) {
        if (const auto* beat = std::get_if<Heartbeat>(&message)) {
          return beat->reports;
        }
      }
      return std::vector<IslandReport>{};
    };
    const std::vector<IslandReport> reports = reports_of();
    REQUIRE(reports.size() == 2);
    CHECK(reports[0].run == RunId("g-1"));
    CHECK(reports[1].run == RunId("r-1"));
    CHECK(reports[1].step == Step(7));
    CHECK(reports[1].compute_seconds == 3);
    CHECK(reports[1].reason.find("task experts/0 with its group") != std::string::npos);
    if (saved) {
      bench.feed(CheckpointWritten{RunId("g-1"), Round(2), content(9).digest, content(9).digest, 100, true, Step(100), 400, 0});
    }
    Release release;
    release.run = RunId("g-1");
    release.completed = true;
    bench.say(release);
    CHECK(bench.all<StopTrainer>().size() == 1);
    bench.wait(1s);
    REQUIRE(reports_of().size() == 1);
    CHECK(reports_of()[0].compute_seconds == 3);  // is not forgotten

    order.number = 3;
    order.group_round = Round(2);
    bench.say(order);
    if (saved) {
      REQUIRE(bench.all<StartTask>().size() == 1);
      CHECK(bench.all<StartTask>()[0].group == RunId("g-1"));
      CHECK(bench.all<StartTask>()[0].group_round == Round(2));
    } else {
      CHECK(bench.all<StartTask>().empty());
      CHECK(bench.reports.back().state == "without");
    }
  }
}

TEST_CASE("a task whose trainer says why it cannot is not tried again, one that the owner does not allow ends this island's part") {
  Bench bench;
  bench.say(assignment(1, "features"));
  bench.feed(ContentOpened{RunId("r-1")});
  REQUIRE(bench.all<StartTask>().size() == 1);
  bench.feed(TaskEnded{RunId("r-1"), bench.all<StartTask>()[0].start, false, true, Error{Code::unavailable, "images of mixed sizes"}});
  CHECK(bench.reports.back().state == "failed");
  REQUIRE(bench.reports.back().error);
  CHECK(bench.reports.back().error->why == "images of mixed sizes");
  bench.wait(60s);
  CHECK(bench.all<StartTask>().empty());

  Bench other;
  other.say(assignment(1, "features"));
  other.feed(ContentOpened{RunId("r-1")});
  REQUIRE(other.all<StartTask>().size() == 1);
  other.feed(TaskEnded{RunId("r-1"), other.all<StartTask>()[0].start, true, false,
                       Error{Code::unauthorized, "its owner does not allow the data"}});
  CHECK(std::any_of(other.messages.begin(), other.messages.end(), [](const Message& m) { return std::holds_alternative<RunEnded>(m); }));
}

TEST_CASE("an island with an assignment that is asked to leave says so and goes when it is released, readers come and go") {
  Bench bench;
  bench.say(assignment(1, "features"));
  bench.feed(ContentOpened{RunId("r-1")});
  bench.say(Serve{RunId("r-1"), "key-of-b", Round(0), true});
  bench.say(Serve{RunId("r-1"), "key-of-c", Round(0), true});
  REQUIRE(bench.all<AllowPeers>().size() == 1);
  CHECK(bench.all<AllowPeers>()[0].readers == std::vector<agent::Reader>{{"key-of-b"}, {"key-of-c"}});
  bench.say(assignment(2, "features"));
  REQUIRE(bench.all<AllowPeers>().size() == 1);
  CHECK(bench.all<AllowPeers>()[0].readers.size() == 2);
  bench.say(Serve{RunId("r-1"), "key-of-b", Round(0), false});
  REQUIRE(bench.all<AllowPeers>().size() == 1);
  CHECK(bench.all<AllowPeers>()[0].readers == std::vector<agent::Reader>{{"key-of-c"}});

  bench.feed(LeaveAsked{"asked to stop"});
  CHECK(bench.all<agent::Exit>().empty());
  CHECK(std::any_of(bench.messages.begin(), bench.messages.end(), [](const Message& m) { return std::holds_alternative<Leave>(m); }));
  Release release;
  release.run = RunId("r-1");
  bench.say(release);
  CHECK(bench.all<StopTask>().size() == 1);
  CHECK(bench.all<agent::Exit>().size() == 1);
}

}  // namespace of_tasks_test
