// The agent's core by itself: who may read from the island, and when.
#include <algorithm>

#include "agent/core/core.hpp"
#include "strategies/specification/run_spec.hpp"
#include "tests/catch.hpp"

namespace of_agent_core_test {

namespace {

using namespace atl;
using namespace atl::agent;
using namespace std::chrono_literals;

struct Bench {
  TimePoint now = from_unix_ms(1'700'000'000'000);
  agent::Core core{agent::Identity{IslandId("i-a"), "a", "test", 1, "tcp://h:1", "", {}}, agent::Settings{}, {}, now};
  std::vector<Effect> effects;
  std::vector<Message> messages;

  void feed(const Event& event) {
    core.step(now, event);
    take();
  }
  void say(const Message& message) { feed(FromCoordinator{message}); }
  void take() {
    agent::Ready ready = core.take_ready();
    effects = std::move(ready.effects);
    messages = std::move(ready.messages);
  }
  template <typename E>
  [[nodiscard]] std::optional<E> newest() const {
    for (auto effect = effects.rbegin(); effect != effects.rend(); ++effect) {
      if (const auto* found = std::get_if<E>(&*effect)) {
        return *found;
      }
    }
    return std::nullopt;
  }
};

RunSpec spec() {
  RunSpec spec;
  spec.name = "run";
  spec.strategy.inner_steps = 4;
  spec.training.steps = 40;
  spec.rounds = 10;
  return spec;
}

// An agent that is linked and invited to a run.
Bench invited() {
  Bench bench;
  bench.feed(agent::LinkUp{});
  bench.say(Welcome{});
  Invite invite;
  invite.run = RunId("r-1");
  invite.spec = to_json(spec());
  invite.epoch = Epoch(1);
  bench.say(invite);
  return bench;
}

const Digest kDigest = [] {
  Digest digest;
  digest.bytes[0] = std::byte{7};
  return digest;
}();

// An agent that is to go on from its checkpoint of this round, of digest kDigest.
Bench invited_to(const RunSpec& run, Round round) {
  Bench bench;
  bench.feed(agent::LinkUp{});
  bench.say(Welcome{});
  Invite invite;
  invite.run = RunId("r-1");
  invite.spec = to_json(run);
  invite.epoch = Epoch(2);
  invite.from = StartFrom::checkpoint;
  invite.committed = round;
  invite.digest = kDigest;
  bench.say(invite);
  return bench;
}

}  // namespace

TEST_CASE("a reader is let in when the coordinator says so, and shut out when it takes that back") {
  Bench bench = invited();
  bench.say(Serve{RunId("r-1"), "key-of-b", Round(0), true});
  bench.say(Serve{RunId("r-1"), "key-of-c", Round(0), true});
  REQUIRE(bench.newest<AllowPeers>());
  CHECK(bench.newest<AllowPeers>()->readers == std::vector<agent::Reader>{{"key-of-b"}, {"key-of-c"}});
  bench.say(Serve{RunId("r-1"), "key-of-b", Round(0), false});
  REQUIRE(bench.newest<AllowPeers>());
  CHECK(bench.newest<AllowPeers>()->readers == std::vector<agent::Reader>{{"key-of-c"}});
}

TEST_CASE("an island whose checkpoint is being read trains on it, and not on what it had: the engine drops that for it") {
  Bench bench = invited();
  Digest digest;
  digest.bytes[0] = std::byte{7};
  const Member self{IslandId("i-a"), "a", "", "tcp://h:1"};
  const auto invite = [&](std::uint64_t epoch, StartFrom from, std::vector<Member> members) {
    Invite message;
    message.run = RunId("r-1");
    message.spec = to_json(spec());
    message.epoch = Epoch(epoch);
    message.from = from;
    message.committed = Round(1);
    message.digest = digest;
    message.members = std::move(members);
    bench.say(message);
  };
  const auto trainer_is_up = [&] {
    REQUIRE(bench.newest<StartTrainer>());
    bench.feed(TrainerReady{.run = RunId("r-1"), .incarnation = bench.newest<StartTrainer>()->incarnation, .step = Step(0)});
  };
  invite(2, StartFrom::checkpoint, {});
  REQUIRE(bench.newest<LoadCheckpoint>());
  bench.feed(CheckpointLoaded{RunId("r-1"), Round(1), digest});
  trainer_is_up();
  bench.say(NewEpoch{RunId("r-1"), Epoch(3), Round(1), {self}, std::nullopt});
  REQUIRE(bench.newest<LoadTrainer>());

  // The others' states were lost, so it is to go back to its checkpoint; before that is read, it is counted on for what it had.
  bench.say(NewEpoch{RunId("r-1"), Epoch(4), Round(1), {}, std::nullopt});
  invite(5, StartFrom::checkpoint, {});
  REQUIRE(bench.newest<LoadCheckpoint>());
  invite(6, StartFrom::memory, {self});
  CHECK_FALSE(bench.newest<LoadTrainer>());
  bench.feed(CheckpointLoaded{RunId("r-1"), Round(1), digest});
  CHECK(std::ranges::any_of(bench.messages, [](const Message& m) { return std::holds_alternative<CaughtUp>(m); }));
  trainer_is_up();
  invite(6, StartFrom::memory, {self});
  CHECK(bench.newest<LoadTrainer>());
}

TEST_CASE("a trainer of one's own takes the last parameters of a completed run, has time to finish, and is named if it is the first") {
  const auto ends = [](const std::string& trainer, const Release& release) {
    RunSpec given = spec();
    given.trainer.name = trainer;
    Bench bench = invited_to(given, Round(10));
    REQUIRE(bench.newest<LoadCheckpoint>());
    bench.feed(CheckpointLoaded{RunId("r-1"), Round(10), kDigest});
    REQUIRE(bench.newest<StartTrainer>());
    bench.feed(TrainerReady{.run = RunId("r-1"), .incarnation = bench.newest<StartTrainer>()->incarnation, .step = Step(40)});
    const Member self{IslandId("i-a"), "a", "", "tcp://h:1"};
    bench.say(NewEpoch{RunId("r-1"), Epoch(3), Round(10), {self}, std::nullopt});
    CheckpointWritten written;
    written.run = RunId("r-1");
    written.round = Round(10);
    written.digest = kDigest;
    bench.feed(written);
    REQUIRE(std::ranges::any_of(bench.messages, [](const Message& m) { return std::holds_alternative<RunEnded>(m); }));
    bench.say(release);
    REQUIRE(bench.newest<StopTrainer>());
    const std::optional<LoadTrainer> load = bench.newest<LoadTrainer>();
    CHECK((!load || load->step == Step(40)));
    return std::pair(bench.newest<StopTrainer>()->end, load.has_value());
  };
  const auto release = [](bool completed, std::uint32_t place) {
    return Release{RunId("r-1"), Code::cancelled, completed, "over", Epoch(3), place};
  };
  CHECK(ends("own", release(true, 1)) == std::pair(RunEnd::completed_first, true));
  CHECK(ends("own", release(true, 2)) == std::pair(RunEnd::completed, true));
  CHECK(ends("own", release(true, 0)) == std::pair(RunEnd::none, false));
  CHECK(ends("own", release(false, 1)) == std::pair(RunEnd::none, false));
  CHECK(ends("", release(true, 1)) == std::pair(RunEnd::none, false));
}

TEST_CASE(
    "a trainer of one's own begins again from its last state after what is not finite, and the built-in one takes nothing in from such a "
    "step") {
  const auto goes_back = [](const std::string& trainer, bool in_parameters) {
    RunSpec given = spec();
    given.trainer.name = trainer;
    Bench bench = invited_to(given, Round(1));
    bench.feed(CheckpointLoaded{RunId("r-1"), Round(1), kDigest});
    REQUIRE(bench.newest<StartTrainer>());
    const std::uint64_t incarnation = bench.newest<StartTrainer>()->incarnation;
    bench.feed(TrainerReady{.run = RunId("r-1"), .incarnation = incarnation, .step = Step(4)});
    bench.say(NewEpoch{RunId("r-1"), Epoch(3), Round(1), {Member{IslandId("i-a"), "a", "", "tcp://h:1"}}, std::nullopt});
    REQUIRE(bench.newest<LoadTrainer>());
    bench.feed(TrainerLoaded{.run = RunId("r-1"), .incarnation = incarnation, .step = Step(4)});
    TrainerPublished published{
        .run = RunId("r-1"), .incarnation = incarnation, .round = Round(2), .step = Step(8), .facts = {.tokens = 10, .steps = 4}};
    published.nonfinite = !in_parameters;
    published.bad_step = in_parameters ? std::nullopt : std::optional(Step(7));
    bench.feed(published);
    if (in_parameters) {
      REQUIRE(bench.newest<FormContribution>());
      bench.feed(ContributionFailed{RunId("r-1"), Round(2), Error{Code::corrupt, "value 3 of the contribution is not finite"}});
    }
    CHECK(bench.newest<StopTrainer>().has_value() == bench.newest<StartTrainer>().has_value());
    return bench.newest<StopTrainer>().has_value();
  };
  CHECK(goes_back("own", true));
  CHECK(goes_back("own", false));
  CHECK_FALSE(goes_back("", false));
}

TEST_CASE("asked to leave without a run it goes at once, in a run it says so until it is released, or its time is up") {
  Bench free;
  free.feed(agent::LinkUp{});
  free.say(Welcome{});
  free.say(Drain{"drained by an operator"});
  CHECK(free.newest<agent::Exit>());

  Bench bench = invited();
  bench.say(Drain{"drained by an operator"});
  CHECK_FALSE(bench.newest<agent::Exit>());
  CHECK(std::any_of(bench.messages.begin(), bench.messages.end(), [](const Message& m) { return std::holds_alternative<Leave>(m); }));
  bench.now += 61s;
  bench.core.tick(bench.now);
  bench.take();
  CHECK(bench.newest<agent::Exit>());
}

TEST_CASE("asked to leave just before the coordinator goes it waits some seconds, and as long as it may once there is one again") {
  Bench bench = invited();
  const auto goes_within = [](Bench& later, std::chrono::seconds time) {
    later.now += time;
    later.core.tick(later.now);
    later.take();
    return later.newest<agent::Exit>().has_value();
  };
  bench.say(Drain{"stopped"});
  CHECK_FALSE(goes_within(bench, 10s));
  bench.feed(agent::LinkDown{});
  CHECK_FALSE(goes_within(bench, 4s));
  bench.feed(agent::LinkUp{});
  bench.say(Welcome{});
  CHECK_FALSE(goes_within(bench, 40s));
  bench.feed(agent::LinkDown{});
  CHECK(goes_within(bench, 6s));
}

TEST_CASE("an island that leaves without a coordinator brings its state to the disk, and goes at its limit though that still lasts") {
  Bench bench = invited_to(spec(), Round(1));
  bench.feed(CheckpointLoaded{RunId("r-1"), Round(1), kDigest});
  bench.say(NewEpoch{RunId("r-1"), Epoch(3), Round(1), {Member{IslandId("i-a"), "a", "", "tcp://h:1"}}, std::nullopt});
  bench.say(Drain{"stopped"});
  bench.feed(agent::LinkDown{});
  bool writes = false;
  std::chrono::seconds after = 0s;
  for (; after < 300s && !bench.newest<agent::Exit>(); after += 1s) {
    bench.now += 1s;
    bench.core.tick(bench.now);
    bench.take();
    writes = writes || bench.newest<WriteCheckpoint>();
  }
  CHECK(writes);
  CHECK(after >= 55s);
  CHECK(after <= 61s);  // leave_limit: a minute
}

TEST_CASE("what turns out about an island is said in a new hello, and not before there is somebody to hear it") {
  const auto hello_of = [](const Bench& bench) {
    const auto found = std::ranges::find_if(bench.messages, [](const Message& m) { return std::holds_alternative<Hello>(m); });
    return found == bench.messages.end() ? std::nullopt : std::optional(std::get<Hello>(*found));
  };
  Bench bench;
  bench.feed(SelfChanged{.kernels = "LibTorch 9.9"});
  CHECK_FALSE(hello_of(bench));
  bench.feed(agent::LinkUp{});
  REQUIRE(hello_of(bench));
  CHECK(hello_of(bench)->kernels == "LibTorch 9.9");
  bench.say(Welcome{});
  bench.feed(SelfChanged{.kernels = "LibTorch 9.9, on 2 × H200"});
  REQUIRE(hello_of(bench));
  CHECK(hello_of(bench)->kernels == "LibTorch 9.9, on 2 × H200");
  bench.say(Welcome{});
  bench.feed(SelfChanged{.uplink_bits_per_second = 5e6});
  REQUIRE(hello_of(bench));
  CHECK(hello_of(bench)->uplink_bits_per_second == 5e6);
  CHECK(hello_of(bench)->kernels == "LibTorch 9.9, on 2 × H200");
}

TEST_CASE("the paths from neighbours are tried, and a new coordinator hears what came of it") {
  Bench bench;
  bench.feed(agent::LinkUp{});
  bench.say(Welcome{});
  const Member b{IslandId("i-b"), "b", "key-of-b", "tcp://b:1"};
  const Member c{IslandId("i-c"), "c", "key-of-c", "tcp://c:1"};
  bench.say(Neighbours{{b, c}});
  REQUIRE(bench.newest<TryPaths>());
  CHECK(bench.newest<TryPaths>()->islands == std::vector{b, c});
  bench.feed(PathTried{b.island, true, ""});
  bench.feed(PathTried{c.island, false, "there is no connection"});
  bench.feed(PathTried{IslandId("i-d"), true, ""});  // of a run: whole, so nobody needs to hear it again
  const auto reports = [&] {
    std::vector<PathReport> said;
    for (const Message& message : bench.messages) {
      if (const auto* report = std::get_if<PathReport>(&message)) {
        said.push_back(*report);
      }
    }
    return said;
  };
  bench.feed(agent::LinkDown{});
  bench.feed(agent::LinkUp{});
  bench.say(Welcome{});
  CHECK(reports() == std::vector{PathReport{b.island, true, ""}, PathReport{c.island, false, "there is no connection"}});
  bench.say(Neighbours{{c}});
  bench.feed(agent::LinkDown{});
  bench.feed(agent::LinkUp{});
  bench.say(Welcome{});
  CHECK(reports() == std::vector{PathReport{c.island, false, "there is no connection"}});
}

TEST_CASE("an island without the checkpoint that it is to go on from fetches the run's copy of it, and loads that") {
  Bench bench;
  bench.feed(agent::LinkUp{});
  bench.say(Welcome{});
  RunSpec with_copies = spec();
  with_copies.checkpoint.copy = "s3://bucket/lab";
  Digest digest;
  digest.bytes[0] = std::byte{7};
  Invite invite;
  invite.run = RunId("r-1");
  invite.spec = to_json(with_copies);
  invite.epoch = Epoch(3);
  invite.from = StartFrom::checkpoint;
  invite.committed = Round(4);
  invite.digest = digest;
  invite.part = 1;
  invite.position = 640;
  bench.say(invite);
  const std::optional<FetchCopy> order = bench.newest<FetchCopy>();
  REQUIRE(order);
  CHECK(order->from == "s3://bucket/lab");
  CHECK(order->round == Round(4));
  CHECK(order->digest == digest);
  CHECK_FALSE(bench.newest<LoadCheckpoint>());
  SECTION("it is there") {
    bench.feed(CopyFetched{RunId("r-1"), Round(4), digest, digest, 1000});
    const std::optional<LoadCheckpoint> load = bench.newest<LoadCheckpoint>();
    REQUIRE(load);
    REQUIRE(load->fetched);
    CHECK(load->fetched->epoch == Epoch(3));
    CHECK(load->fetched->part == 1);
    CHECK(load->fetched->position == 640);
    CHECK(load->fetched->file_bytes == 1000);
    // From now on it is the island's own.
    invite.epoch = Epoch(4);
    bench.feed(CheckpointLoaded{RunId("r-1"), Round(4), digest, {}});
    bench.say(NewEpoch{RunId("r-1"), Epoch(4), Round(4), {}, std::nullopt});
    invite.epoch = Epoch(5);
    bench.say(invite);
    CHECK_FALSE(bench.newest<FetchCopy>());
  }
  SECTION("it is not there") {
    bench.feed(CopyFetched{RunId("r-1"), Round(4), digest, {}, 0, Error{Code::unavailable, "the store says 503"}});
    CHECK_FALSE(bench.newest<LoadCheckpoint>());
    const auto said = std::ranges::find_if(bench.messages, [](const Message& m) { return std::holds_alternative<CaughtUp>(m); });
    REQUIRE(said != bench.messages.end());
    REQUIRE(std::get<CaughtUp>(*said).error);
    CHECK(std::get<CaughtUp>(*said).error->why == "the store says 503");
  }
}

}  // namespace of_agent_core_test
