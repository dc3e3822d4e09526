// What the coordinator writes down of a round on each island, and of who was away: no number that nobody measured.
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "coordinator/core/core.hpp"
#include "strategies/specification/run_spec.hpp"
#include "tests/catch.hpp"

namespace of_coordinator_accounts_test {

namespace {

using namespace atl;
using namespace atl::coordinator;
using namespace std::chrono_literals;

Digest digest_of(std::uint64_t value) {
  Digest digest;
  std::memcpy(digest.bytes.data(), &value, sizeof value);
  digest.bytes[31] = std::byte{1};
  return digest;
}

// Two islands of a run, that do what the coordinator says, and what it writes down.
struct World {
  TimePoint now = from_unix_ms(1'700'000'000'000);
  Core core{Settings{}, Recovered{}, now};
  RunId run{"r-1"};
  std::set<std::string> names;
  std::map<std::string, std::uint64_t> boots;
  std::map<std::string, Epoch> epochs;
  std::map<std::string, Round> committed;
  std::map<std::pair<std::string, std::uint64_t>, MetricRecord> metrics;
  std::map<std::string, MembershipRecord> memberships;
  std::map<std::string, Round> kept;  // in memory, or as a checkpoint, of an island that comes back
  std::string reason;

  explicit World(RunSpec spec) {
    spec.name = "run";
    spec.islands.min = 2;
    spec.islands.max = 2;
    for (const char* name : {"a", "b"}) {
      join(name);
    }
    REQUIRE(core.submit(now, run, spec, "", "file"));
    settle();
    for (int second = 0; second < 20 && committed.size() < 2; ++second) {
      pass(1s);
    }
    REQUIRE(epochs.size() == 2);
  }

  void join(const std::string& name) {
    core.admit(now, IslandId(name), name, "key-" + name);
    Hello message;
    message.name = name;
    message.boot = ++boots[name];
    if (const auto held = kept.find(name); held != kept.end()) {
      message.runs.push_back(HeldRun{run, epochs[name], false, held->second, digest_of(held->second.value), {}, 0, {}});
      message.runs.back().checkpoints.push_back(HeldCheckpoint{held->second, digest_of(held->second.value)});
    }
    names.insert(name);
    core.step(now, IslandId(name), boots[name], message);
    settle();
  }
  void say(const std::string& name, const Message& message) { core.step(now, IslandId(name), boots[name], message); }
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
        if (const auto* metric = std::get_if<MetricRecord>(&each)) {
          metrics[{metric->island.text, metric->round.value}] = *metric;
        } else if (const auto* membership = std::get_if<MembershipRecord>(&each)) {
          memberships[membership->island.text] = *membership;
        }
      }
      for (const Outgoing& out : ready.messages) {
        answer(out.island.text, out.message);
      }
    }
  }
  void contribute(const std::string& name, double loss, double norm) {
    const Round next = committed[name].next();
    say(name, atl::Ready{run, epochs[name], next, digest_of(committed[name].value), {100, 10, loss, norm}});
  }
  void merge(const std::string& name) { say(name, Merged{run, committed[name], Step(committed[name].value * 10), 3.0, 3.5, 0.1}); }
  void answer(const std::string& name, const Message& message) {
    if (!names.contains(name)) {
      return;  // its agent was killed
    }
    if (const auto* invite = std::get_if<Invite>(&message)) {
      epochs[name] = invite->epoch;
      if (invite->from == StartFrom::scratch) {
        say(name, atl::Ready{run, invite->epoch, Round(0), digest_of(0)});
      } else {
        committed[name] = invite->committed;
        say(name, CaughtUp{run, invite->epoch, invite->committed, invite->digest, std::nullopt, invite->entry});
      }
    } else if (const auto* epoch = std::get_if<NewEpoch>(&message)) {
      epochs[name] = epoch->epoch;
    } else if (const auto* exchange = std::get_if<Exchange>(&message)) {
      say(name, Exchanged{run, exchange->epoch, exchange->round, exchange->attempt, digest_of(exchange->round.value), 1, 1, 0.1});
    } else if (const auto* commit = std::get_if<Commit>(&message)) {
      committed[name] = commit->round;
    } else if (const auto* refused = std::get_if<Refused>(&message)) {
      reason = refused->error.why;
    }
  }
};

RunSpec rounds_of_ten(Group group) {
  RunSpec spec;
  spec.strategy.group = group;
  spec.strategy.inner_steps = 10;
  spec.training.steps = 200;
  spec.rounds = 20;
  return spec;
}

}  // namespace

TEST_CASE("a contribution that an island withdrew has no loss and no norm, and neither has one that nobody reported") {
  World world(rounds_of_ten(Group::all));
  world.contribute("a", 1.0, 20.0);
  world.say("b", Withdrawn{world.run, world.epochs["b"], Round(1), Error{Code::corrupt, "was not finite"}, Fate::rejected});
  world.settle();
  REQUIRE(world.committed["a"] == Round(1));
  world.merge("a");
  world.merge("b");
  world.settle();
  const MetricRecord& good = world.metrics.at({"a", 1});
  CHECK(good.facts.training_loss == 1.0);
  CHECK(good.facts.norm == 20.0);
  const MetricRecord& withdrawn = world.metrics.at({"b", 1});
  CHECK(std::isnan(withdrawn.facts.training_loss));
  CHECK(std::isnan(withdrawn.facts.norm));
  CHECK(withdrawn.facts.tokens == 0);
  CHECK(withdrawn.outer_loss == 3.0);  // it did merge the others' result
  CHECK(std::isnan(MetricRecord{}.facts.norm));
  CHECK(std::isnan(IslandReport{}.training_loss));
}

TEST_CASE("every round of an island has its row, in whatever order its trainer merges them, and if it never does") {
  World world(rounds_of_ten(Group::nobody));
  const auto ready = [&](std::uint64_t round, std::uint32_t fragment) {
    world.say("a", atl::Ready{world.run, world.epochs["a"], Round(round), digest_of(1), {100 + round, 10, 1.0, 2.0, fragment}});
  };
  const auto merged = [&](std::uint64_t round) { world.say("a", Merged{world.run, Round(round), Step(round * 10), 3.0, 3.5, 0.1}); };
  for (std::uint64_t round = 1; round <= 6; ++round) {
    ready(round, round % 2 == 0 ? 0 : 1);  // faster than they are merged
  }
  merged(2);
  merged(1);  // of the other fragment
  merged(1);  // repeated
  merged(6);  // 4 was overtaken
  world.settle();
  for (const std::uint64_t round : {1, 2, 4, 6}) {
    INFO(round);
    REQUIRE(world.metrics.contains({"a", round}));
    const MetricRecord& metric = world.metrics.at({"a", round});
    CHECK(metric.facts.tokens == 100 + round);
    CHECK(metric.facts.norm == 2.0);
    CHECK(std::isnan(metric.outer_loss) == (round == 4));
  }
  CHECK_FALSE(world.metrics.contains({"a", 3}));  // it may still come
  CHECK_FALSE(world.metrics.contains({"a", 5}));
}

TEST_CASE("who was away when rounds were lost with every copy is away from rounds that there are") {
  World world(rounds_of_ten(Group::all));
  const auto do_rounds = [&](std::uint64_t until) {
    while (world.committed["a"] < Round(until)) {
      const Round before = world.committed["a"];
      world.contribute("a", 1.0, 1.0);
      world.contribute("b", 1.0, 1.0);
      world.settle();
      for (const char* name : {"a", "b"}) {
        world.merge(name);
      }
      world.settle();
      INFO("round " << before.value << ", epoch " << world.epochs["a"].value << " " << world.reason);
      REQUIRE(world.committed["a"] == before.next());
      if (world.committed["a"] == Round(10)) {
        for (const char* name : {"a", "b"}) {
          world.say(name, Checkpointed{world.run, Round(10), digest_of(10), digest_of(11), 100, std::nullopt});
        }
        world.settle();
      }
    }
  };
  do_rounds(16);
  // Both agents are killed, and what they had in memory is lost.
  world.names.clear();
  world.pass(2min);
  REQUIRE(world.memberships.at("b").absences.size() == 1);
  CHECK(world.memberships.at("b").absences[0].from == Round(17));
  for (const char* name : {"a", "b"}) {
    world.kept[name] = Round(10);
    world.join(name);
  }
  for (int second = 0; second < 60; ++second) {
    world.pass(1s);
  }
  REQUIRE(world.committed["a"] == Round(10));
  for (const char* name : {"a", "b"}) {
    const std::vector<Absence>& absences = world.memberships.at(name).absences;
    REQUIRE_FALSE(absences.empty());
    for (const Absence& absence : absences) {
      INFO(name << ": " << absence.from.value << " to " << (absence.to ? absence.to->value : 0));
      CHECK(absence.from == Round(11));
      CHECK((!absence.to || *absence.to == Round(11)));
    }
  }
}

TEST_CASE("an absence from a run whose islands commit on their own counts the rounds of those that are furthest") {
  World world(rounds_of_ten(Group::nobody));
  const auto do_round = [&](const std::string& name) {
    world.committed[name] = world.committed[name].next();
    world.say(name, atl::Ready{world.run, world.epochs[name], world.committed[name], digest_of(1), {100, 10, 1.0, 1.0}});
    world.merge(name);
    world.settle();
  };
  for (int round = 0; round < 5; ++round) {
    do_round("a");
    do_round("b");
  }
  world.names.erase("b");
  world.pass(2min);
  for (int round = 0; round < 3; ++round) {
    do_round("a");
  }
  REQUIRE_FALSE(world.memberships.at("b").absences.empty());
  bool from_six = false;  // it had its troubles before the first round, too
  for (const Absence& absence : world.memberships.at("b").absences) {
    INFO(absence.from.value << " to " << (absence.to ? absence.to->value : 0));
    from_six = from_six || absence.from == Round(6);
    CHECK((!absence.to || *absence.to >= absence.from));
  }
  CHECK(from_six);
}

TEST_CASE("the round that merges islands with states of their own counts no tokens again: its weight is of the rounds before") {
  RunSpec spec = rounds_of_ten(Group::pairs);
  spec.rounds = 3;
  spec.merge_rounds = 1;
  World world(spec);
  for (std::uint64_t round = 1; round <= 2; ++round) {
    for (const char* name : {"a", "b"}) {
      world.committed[name] = Round(round);
      world.say(name, atl::Ready{world.run, world.epochs[name], Round(round), digest_of(1), {100, 10, 1.0, 1.0}});
      world.merge(name);
    }
    world.settle();
  }
  for (const char* name : {"a", "b"}) {
    world.say(name, atl::Ready{world.run, world.epochs[name], Round(3), digest_of(2), {200, 0, 1.0, 1.0}});
  }
  world.pass(1s);
  REQUIRE(world.committed["a"] == Round(3));
  std::uint64_t tokens = 0;
  for (const char* name : {"a", "b"}) {
    world.merge(name);
  }
  world.settle();
  for (const auto& [place, metric] : world.metrics) {
    tokens += metric.facts.tokens;
  }
  CHECK(world.metrics.contains({"a", 3}));
  CHECK(tokens == 400);
}

}  // namespace of_coordinator_accounts_test
