// Copies of checkpoints, as the coordinator decides on them: who makes one, what comes of a failure, and how a run goes on from one.
#include "coordinator/core/copies.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "coordinator/core/core.hpp"
#include "strategies/specification/run_spec.hpp"
#include "tests/catch.hpp"

namespace of_coordinator_copies_test {

namespace {

using namespace atl;
using namespace atl::coordinator;
using namespace std::chrono_literals;

constexpr const char* kPlace = "s3://bucket/lab";

Digest digest_of(std::uint64_t value) {
  Digest digest;
  std::memcpy(digest.bytes.data(), &value, sizeof value);
  digest.bytes[31] = std::byte{1};
  return digest;
}

RunSpec spec_with_copies(std::uint32_t min, std::uint32_t max) {
  RunSpec spec;
  spec.name = "run";
  spec.islands.min = min;
  spec.islands.max = max;
  spec.strategy.inner_steps = 10;
  spec.training.steps = 200;
  spec.rounds = 20;
  spec.checkpoint.every_rounds = 2;
  spec.checkpoint.copy = kPlace;
  return spec;
}

// A coordinator and islands that do what it says, until nobody has anything to say.
struct World {
  TimePoint now = from_unix_ms(1'700'000'000'000);
  Core core{Settings{}, Recovered{}, now};
  RunId run{"r-1"};
  std::set<std::string> names;
  std::map<std::string, Epoch> epochs;
  std::map<std::string, Round> committed;
  std::vector<std::pair<std::string, Invite>> invites;
  std::vector<std::pair<std::string, Commit>> commits;
  std::vector<EventRecord> events;
  std::optional<RunRecord> record;
  bool fails_to_load = false;

  void join(const std::string& name, std::vector<std::string> copies) {
    core.admit(now, IslandId(name), name, "key-" + name);
    Hello message;
    message.name = name;
    message.boot = 1;
    message.copies = std::move(copies);
    core.step(now, IslandId(name), 1, message);
    names.insert(name);
    settle();
  }
  void say(const std::string& name, const Message& message) { core.step(now, IslandId(name), 1, message); }
  void pass(Duration time) {
    now += time;
    for (const std::string& name : names) {
      say(name, Heartbeat{1, {}});
    }
    core.tick(now);
    settle();
  }
  void settle() {
    for (atl::coordinator::Ready ready = core.take_ready(); !ready.empty(); ready = core.take_ready()) {
      for (const Record& each : ready.records) {
        if (const auto* event = std::get_if<EventRecord>(&each)) {
          events.push_back(*event);
        } else if (const auto* of_run = std::get_if<RunRecord>(&each)) {
          record = *of_run;
        }
      }
      for (const Outgoing& out : ready.messages) {
        answer(out.island.text, out.message);
      }
    }
  }
  void contribute(const std::string& name) {
    const Round next = committed[name].next();
    say(name, atl::Ready{run, epochs[name], next, digest_of(committed[name].value), {100, 10, 2.0, 0.1}});
  }
  // All that take part do a round.
  void do_round() {
    const std::map<std::string, Round> all = committed;
    for (const auto& [name, round] : all) {
      contribute(name);
    }
    settle();
  }
  void answer(const std::string& name, const Message& message) {
    if (const auto* invite = std::get_if<Invite>(&message)) {
      invites.emplace_back(name, *invite);
      epochs[name] = invite->epoch;
      if (invite->from == StartFrom::scratch) {
        say(name, atl::Ready{run, invite->epoch, Round(0), digest_of(0)});
      } else if (invite->from == StartFrom::checkpoint) {
        const std::optional<Error> error = fails_to_load ? std::optional(Error{Code::unavailable, "the store says 503"}) : std::nullopt;
        committed[name] = invite->committed;
        say(name, CaughtUp{run, invite->epoch, invite->committed, error ? Digest{} : invite->digest, error, invite->entry});
      }
    } else if (const auto* epoch = std::get_if<NewEpoch>(&message)) {
      epochs[name] = epoch->epoch;
    } else if (const auto* exchange = std::get_if<Exchange>(&message)) {
      say(name, Exchanged{run, exchange->epoch, exchange->round, exchange->attempt, digest_of(exchange->round.value), 1, 1, 0.1});
    } else if (const auto* commit = std::get_if<Commit>(&message)) {
      commits.emplace_back(name, *commit);
      committed[name] = commit->round;
    }
  }
  // Who is asked to copy the checkpoint of this round.
  [[nodiscard]] std::vector<std::string> asked(std::uint64_t round) const {
    std::vector<std::string> chosen;
    for (const auto& [name, commit] : commits) {
      if (commit.round == Round(round) && commit.copy) {
        chosen.push_back(name);
      }
    }
    return chosen;
  }
  [[nodiscard]] std::size_t told(const std::string& kind) const {
    return static_cast<std::size_t>(std::ranges::count(events, kind, &EventRecord::kind));
  }
};

// Two islands take part in a run.
World started(const std::vector<std::string>& copies_a, const std::vector<std::string>& copies_b) {
  World world;
  world.join("a", copies_a);
  world.join("b", copies_b);
  REQUIRE(world.core.submit(world.now, world.run, spec_with_copies(2, 2), "", "file"));
  world.settle();
  for (int second = 0; second < 20 && world.committed.size() < 2; ++second) {
    world.pass(1s);
  }
  REQUIRE(world.committed.size() == 2);
  return world;
}

}  // namespace

TEST_CASE("who copies: of those that may, the one that failed least, of these the last one, else the first") {
  const std::vector<CopyCandidate> all = {{IslandId("a"), true}, {IslandId("b"), false}, {IslandId("c"), true}};
  CHECK(decide_copier(all, {}, IslandId()) == IslandId("a"));
  CHECK(decide_copier(all, {}, IslandId("c")) == IslandId("c"));
  CHECK(decide_copier(all, {}, IslandId("b")) == IslandId("a"));
  CHECK(decide_copier(all, {{IslandId("c"), 1}}, IslandId("c")) == IslandId("a"));
  CHECK(decide_copier(all, {{IslandId("a"), 2}, {IslandId("c"), 1}}, IslandId("a")) == IslandId("c"));
  CHECK_FALSE(decide_copier({{IslandId("b"), false}}, {}, IslandId("b")));
  CHECK_FALSE(decide_copier({}, {}, IslandId()));
}

TEST_CASE("one island is asked to copy each checkpoint, and another one after it has failed, and the run does not wait for either") {
  World world = started({"s3://bucket"}, {kPlace});
  for (int round = 1; round <= 2; ++round) {
    world.do_round();
  }
  CHECK(world.asked(1).empty());
  REQUIRE(world.asked(2) == std::vector<std::string>{"a"});
  for (int round = 3; round <= 4; ++round) {
    world.do_round();  // nothing was heard of the copy
  }
  CHECK(world.asked(4) == std::vector<std::string>{"a"});
  world.say("a", Copied{world.run, Round(4), digest_of(4), 0, 0, 1, kPlace, Error{Code::unauthorized, "the store says 403"}});
  world.settle();
  CHECK(world.told("checkpoint_not_copied") == 1);
  CHECK(world.record->copied == Round(0));
  for (int round = 5; round <= 6; ++round) {
    world.do_round();
  }
  CHECK(world.asked(6) == std::vector<std::string>{"b"});
  world.say("b", Copied{world.run, Round(6), digest_of(6), 1000, 1000, 1, kPlace, std::nullopt});
  world.settle();
  CHECK(world.told("checkpoint_copied") == 1);
  CHECK(world.record->copied == Round(6));
  // Of another history, or by a stranger: of no use.
  world.say("b", Copied{world.run, Round(4), digest_of(99), 1000, 1000, 1, kPlace, std::nullopt});
  world.settle();
  CHECK(world.record->copied == Round(6));
}

TEST_CASE("where no island may copy, that is said once, and the run goes on") {
  World world = started({"s3://bucket/other"}, {});
  for (int round = 1; round <= 6; ++round) {
    world.do_round();
  }
  CHECK(world.committed["a"] == Round(6));
  CHECK(world.asked(6).empty());
  REQUIRE(world.told("checkpoint_not_copied") == 1);
  const auto event = std::ranges::find(world.events, "checkpoint_not_copied", &EventRecord::kind);
  CHECK(event->text.find("atoll agent --allow-copy s3://bucket/lab") != std::string::npos);
}

TEST_CASE("on an empty ledger a run goes on from a copy: with its id, behind its rounds, epochs and data") {
  World world;
  world.join("a", {});
  world.join("b", {"s3://bucket"});
  const CopyToGoOnFrom copy{Round(10), digest_of(10), Epoch(7), {{0, 0, 1'000}, {1, 0, 900}, {9, 0, 5}}};
  REQUIRE(world.core.submit(world.now, world.run, spec_with_copies(2, 2), "", "file", copy).value() == world.run);
  world.settle();
  world.pass(1s);
  REQUIRE_FALSE(world.invites.empty());
  const auto& [name, invite] = world.invites.front();
  CHECK(name == "b");  // the one that may fetch it
  CHECK(invite.from == StartFrom::checkpoint);
  CHECK(invite.committed == Round(10));
  CHECK(invite.digest == digest_of(10));
  CHECK(invite.epoch > Epoch(7));
  CHECK(invite.position == (invite.part == 0 ? 1'000U : 900U));
  CHECK(world.record->committed == Round(10));
  CHECK(world.record->copied == Round(10));
  CHECK(world.record->tokens == 1'905 * 128);  // sequences of all that the copy's islands had
  // The other one comes in by a copy of its state.
  CHECK(std::ranges::any_of(world.invites, [](const auto& each) { return each.first == "a" && each.second.from == StartFrom::peers; }));
  CHECK(world.told("copy_taken_over") == 1);
  const Result<RunId> again = world.core.submit(world.now, world.run, spec_with_copies(2, 2), "other", "file", copy);
  REQUIRE_FALSE(again);
  CHECK(again.error().code == Code::conflict);
}

TEST_CASE("an island alone goes on from a copy with the round after it, and what cannot be fetched is tried again later") {
  World world;
  world.fails_to_load = true;
  world.join("a", {kPlace});
  const CopyToGoOnFrom copy{Round(10), digest_of(10), Epoch(7), {}};
  REQUIRE(world.core.submit(world.now, world.run, spec_with_copies(1, 2), "", "file", copy));
  world.settle();
  REQUIRE(world.invites.size() == 1);
  world.pass(1s);
  CHECK(world.invites.size() == 1);
  CHECK(world.told("catch_up_failed") == 1);
  const std::optional<RunView> waits = world.core.run(world.now, world.run);
  REQUIRE(waits);
  CHECK(waits->reason.text.find("or may fetch the copy (`atoll agent --allow-copy s3://bucket/lab`)") != std::string::npos);
  world.fails_to_load = false;
  for (int second = 0; second < 60 && world.invites.size() < 2; ++second) {
    world.pass(1s);
  }
  REQUIRE(world.invites.size() == 2);
  world.do_round();
  CHECK(world.committed["a"] == Round(11));
}

TEST_CASE("where every island of a run lost its disk, a new one that may fetch the copy goes on from it") {
  World world = started({kPlace}, {});
  for (int round = 1; round <= 5; ++round) {
    world.do_round();
  }
  world.say("a", Copied{world.run, Round(4), digest_of(4), 1000, 1000, 1, kPlace, std::nullopt});
  world.settle();
  world.core.revoke(world.now, IslandId("a"), "its disk is gone");
  world.core.revoke(world.now, IslandId("b"), "its disk is gone");
  world.committed.clear();
  world.names.clear();
  world.invites.clear();
  world.settle();
  world.join("c", {kPlace});
  world.join("d", {kPlace});
  for (int second = 0; second < 40 && world.invites.size() < 2; ++second) {
    world.pass(1s);
  }
  REQUIRE(world.invites.size() == 2);
  for (const auto& [name, invite] : world.invites) {
    CHECK(invite.from == StartFrom::checkpoint);
    CHECK(invite.committed == Round(4));
    CHECK(invite.digest == digest_of(4));
  }
  CHECK(world.told("rolled_back") == 1);
  world.do_round();
  CHECK(world.committed["c"] == Round(5));
}

}  // namespace of_coordinator_copies_test
