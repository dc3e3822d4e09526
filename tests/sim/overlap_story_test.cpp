// Stories of runs whose rounds are under way while the trainers go on, and of those that exchange gradients.
#include <algorithm>
#include <string>

#include "tests/catch.hpp"
#include "tests/sim/stories.hpp"

using namespace atl;
using namespace atl::sim;
using coordinator::RunState;
using std::chrono::minutes;
using namespace std::chrono_literals;

namespace {

// Three fragments in turns, merged five steps after their start, over links so slow that as many rounds are in flight together.
Scenario streaming(std::uint32_t islands, std::uint32_t min, std::uint64_t periods = 8) {
  Scenario scenario = calm(islands, min);
  scenario.latency = 200ms;
  RunSpec& spec = scenario.spec;
  spec.strategy.grouping = FragmentKind::balanced;
  spec.strategy.fragments = 3;
  spec.strategy.inner_steps = 6;
  spec.strategy.overlap_steps = 5;
  spec.strategy.merge_alpha = 0.5;
  spec.training.steps = 6 * periods;
  spec.checkpoint.every_rounds = 3;
  spec.rounds = schedule_of_spec(spec).rounds();
  return scenario;
}

// One fragment, whose exchange takes the whole period: over the slow link a round is committed about when the next one is published.
Scenario whole_period(std::uint32_t islands, std::uint32_t min, std::uint64_t rounds = 12) {
  Scenario scenario = calm(islands, min, rounds);
  scenario.latency = 200ms;
  RunSpec& spec = scenario.spec;
  spec.strategy.overlap_steps = spec.strategy.inner_steps;
  spec.strategy.eager = true;
  return scenario;
}

// Rounds that were planned and are not committed.
std::vector<Round> in_flight(const Cluster& cluster) {
  std::vector<Round> rounds;
  for (const auto& [key, round] : cluster.ledger().rounds) {
    if (!round.committed) {
      rounds.push_back(round.round);
    }
  }
  return rounds;
}

Digest last_digest(const Cluster& cluster) { return cluster.ledger().runs.at(cluster.run_id()).digest; }

}  // namespace

TEST_CASE("overlap: three rounds are in flight together, and no step is done twice") {
  Cluster cluster(streaming(3, 3));
  cluster.start();
  std::size_t most = 0;
  while (cluster.ledger().runs.count(cluster.run_id()) == 0 || cluster.ledger().runs.at(cluster.run_id()).state != RunState::completed) {
    cluster.run_for(20ms);
    REQUIRE(cluster.checkers().failure().empty());
    most = std::max(most, in_flight(cluster).size());
  }
  REQUIRE(most >= 3);
  REQUIRE(cluster.checkers().commits() == cluster.scenario().spec.rounds);
  for (std::size_t i = 0; i < 3; ++i) {
    REQUIRE(cluster.host(i).steps() == 48);
    REQUIRE(cluster.host(i).trainer_starts() == 1);
  }
}

TEST_CASE("overlap: an island that dies with three rounds in flight: each of them is committed by the others") {
  Cluster cluster(streaming(3, 2));
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(4), minutes(2)));
  while (in_flight(cluster).size() < 3) {
    cluster.run_for(10ms);
    REQUIRE(cluster.ledger().runs.at(cluster.run_id()).state == RunState::running);
  }
  const std::vector<Round> rounds = in_flight(cluster);
  const IslandId dead = cluster.host(1).id();
  cluster.host(1).crash();
  finish(cluster);
  std::size_t without = 0;
  for (const Round round : rounds) {
    const coordinator::RoundRecord& record = cluster.ledger().rounds.at({cluster.run_id(), 0, round});
    REQUIRE(record.committed);
    // One whose digests were all said before the death may stand as it was.
    const bool counted = std::find(record.members.begin(), record.members.end(), dead) != record.members.end();
    without += counted ? 0U : 1U;
    REQUIRE(record.members.size() == (counted ? 3U : 2U));
  }
  REQUIRE(without >= 2);
  REQUIRE(events(cluster, "rolled_back") == 0);
}

namespace {

// All islands are killed when they have the same newest checkpoint, taken with so many rounds in flight. False if that moment does not
// come.
bool dies_with_rounds_in_flight(Scenario scenario, std::uint64_t seed, std::size_t rounds) {
  scenario.seed = seed;
  Cluster undisturbed(scenario);
  undisturbed.start();
  finish(undisturbed);

  Cluster cluster(scenario);
  cluster.start();
  if (!cluster.run_until_committed(Round(7), minutes(2))) {
    return false;
  }
  // Until every island has the same checkpoint, with the trainer's state, and rounds after it were in flight when it was taken.
  const auto newest = [&](std::size_t island) -> std::optional<agent::StoredCheckpoint> {
    const std::vector<agent::StoredCheckpoint> held = cluster.host(island).stored(cluster.run_id());
    return held.empty() ? std::nullopt : std::optional(held.back());
  };
  const auto complete = [&] {
    for (std::size_t i = 0; i < 3; ++i) {
      const std::optional<agent::StoredCheckpoint> checkpoint = newest(i);
      if (!checkpoint || checkpoint->round != newest(0)->round || !checkpoint->trainer_state ||
          cluster.host(i).pending_in(cluster.run_id(), checkpoint->round) < rounds) {
        return false;
      }
    }
    return in_flight(cluster).size() >= rounds;
  };
  while (!complete()) {
    cluster.run_for(1ms);
    if (cluster.ledger().runs.at(cluster.run_id()).state != RunState::running) {
      return false;
    }
  }
  WARN("with seed " << seed);
  for (std::size_t i = 0; i < 3; ++i) {
    cluster.host(i).crash();
  }
  cluster.run_for(1s);
  for (std::size_t i = 0; i < 3; ++i) {
    cluster.host(i).start();
  }
  finish(cluster);
  REQUIRE(last_digest(cluster) == last_digest(undisturbed));
  return true;
}

// Of which the first island has checkpoints.
std::vector<std::uint64_t> rounds_of(Cluster& cluster) {
  std::vector<std::uint64_t> rounds;
  for (const agent::StoredCheckpoint& checkpoint : cluster.host(0).stored(cluster.run_id())) {
    rounds.push_back(checkpoint.round.value);
  }
  return rounds;
}

}  // namespace

TEST_CASE("overlap: killed with rounds in flight and gone on from the checkpoints, a run comes to the digests of one that never stopped") {
  // Not in every world do all have the same newest checkpoint at some moment with rounds in flight: in that of seed 5 they had.
  bool killed = false;
  for (std::uint64_t seed = 5; seed <= 34 && !killed; ++seed) {
    killed = dies_with_rounds_in_flight(streaming(3, 3), seed, 2);
  }
  REQUIRE(killed);
}

TEST_CASE("overlap: the same where trainers write their states beside the steps") {
  bool killed = false;
  for (std::uint64_t seed = 5; seed <= 64 && !killed; ++seed) {
    Scenario scenario = streaming(3, 3);
    scenario.saving = 300ms;
    killed = dies_with_rounds_in_flight(scenario, seed, 2);
  }
  REQUIRE(killed);
}

TEST_CASE("overlap: rounds go on while a trainer writes its state, and one that dies meanwhile leaves the checkpoint before") {
  Scenario scenario = streaming(2, 2);
  scenario.saving = minutes(10);
  scenario.spec.checkpoint.keep = 100;
  Cluster cluster(scenario);
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(9), minutes(2)));  // 3 is being written
  cluster.host(0).crash_trainer();
  cluster.run_for(1s);
  CHECK(rounds_of(cluster) == std::vector<std::uint64_t>{0, 3, 6, 9});
  CHECK_FALSE(cluster.host(0).stored(cluster.run_id()).back().trainer_state);
}

TEST_CASE("overlap: the interval of checkpoints is of rounds of the whole model") {
  Scenario scenario = streaming(2, 2);
  scenario.spec.model_rounds = 3;
  scenario.spec.checkpoint.every_rounds = 2;
  scenario.spec.checkpoint.keep = 100;
  Cluster cluster(scenario);
  cluster.start();
  finish(cluster);
  CHECK(rounds_of(cluster) == std::vector<std::uint64_t>{0, 6, 12, 18, 22});
}

TEST_CASE("whole period: killed and gone on from the checkpoints, a run comes to the digests of one that never stopped") {
  // The private part of what each island goes on from comes back with its checkpoint.
  bool killed = false;
  for (std::uint64_t seed = 1; seed <= 30 && !killed; ++seed) {
    killed = dies_with_rounds_in_flight(whole_period(3, 3), seed, 1);
  }
  REQUIRE(killed);
}

TEST_CASE("whole period: a round is always in flight, nobody waits, and no step is done twice") {
  const auto seconds_of = [](Scenario scenario) {
    Cluster cluster(scenario);
    cluster.start();
    REQUIRE(cluster.run_until_committed(Round(1), minutes(2)));
    double taken = 0;
    while (cluster.ledger().runs.at(cluster.run_id()).state != RunState::completed) {
      cluster.run_for(20ms);
      taken += 0.02;
      REQUIRE(cluster.checkers().failure().empty());
    }
    REQUIRE(cluster.checkers().commits() == scenario.spec.rounds);
    for (std::size_t i = 0; i < 3; ++i) {
      REQUIRE(cluster.host(i).steps() == scenario.spec.training.steps);
      REQUIRE(cluster.host(i).trainer_starts() == 1);
    }
    return taken;
  };
  Scenario waiting = whole_period(3, 3, 20);
  waiting.spec.strategy.overlap_steps = 0;
  waiting.spec.strategy.eager = false;
  // A step takes about 60 ms, a round over this link about 1.5 s.
  const double waited = seconds_of(waiting);
  Scenario longer = whole_period(3, 3, 20);
  longer.step_time = 500ms;
  const double trained = seconds_of(longer);
  REQUIRE(waited > 20.0);
  REQUIRE(trained < 20 * 4 * 0.56 + 3.0);
}

TEST_CASE("whole period: an island that dies comes back, and one that is asked to leave goes") {
  for (const bool leaves : {false, true}) {
    INFO(leaves);
    Cluster cluster(whole_period(3, 2, 40));
    cluster.start();
    REQUIRE(cluster.run_until_committed(Round(5), minutes(2)));
    const std::uint64_t boot = cluster.host(2).boot();
    if (leaves) {
      cluster.host(2).leave();
    } else {
      cluster.host(2).crash();
    }
    cluster.run_for(10s);
    REQUIRE(events(cluster, leaves ? "island_left" : "island_lost") == 1);
    if (leaves) {
      REQUIRE(cluster.host(2).boot() > boot);  // it waited for nothing that does not come, and is back
    } else {
      cluster.host(2).start();
    }
    finish(cluster);
    REQUIRE((leaves || events(cluster, "island_joined") == 1));
    REQUIRE(events(cluster, "rolled_back") == 0);
    REQUIRE(cluster.checkers().commits() == 40);
  }
}

TEST_CASE("whole period: a trainer whose loss is not finite takes the others' result") {
  Cluster cluster(whole_period(3, 3));
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(3), minutes(2)));
  cluster.host(1).spoil_next_contribution();
  finish(cluster);
  REQUIRE(cluster.host(1).trainer_starts() == 1);
}

TEST_CASE("gradients are exchanged in every step, and an island that was killed comes back") {
  Scenario scenario = calm(3, 2);
  scenario.spec.strategy.inner_steps = 1;
  scenario.spec.strategy.payload = PayloadKind::gradient;
  scenario.spec.strategy.outer_optimizer = OuterOptimizerKind::adopt;
  scenario.spec.training.steps = 60;
  scenario.spec.rounds = 60;
  scenario.spec.checkpoint.every_rounds = 5;
  Cluster cluster(scenario);
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(7), minutes(2)));
  cluster.host(1).crash();
  cluster.run_for(8s);
  cluster.host(1).start();
  finish(cluster);
  REQUIRE(events(cluster, "rolled_back") == 0);
  REQUIRE(events(cluster, "island_joined") == 1);
}

TEST_CASE("overlap: an island that is asked to leave goes once the rounds it has contributed to are over") {
  Cluster cluster(streaming(3, 2, 20));
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(5), minutes(2)));
  cluster.host(2).leave();
  cluster.run_for(10s);
  REQUIRE(events(cluster, "island_left") == 1);
  finish(cluster);
  REQUIRE(events(cluster, "round_retried") == 0);
}

TEST_CASE("overlap: a joiner is let in though some round is always under way") {
  Cluster cluster(streaming(3, 2, 60));
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(5), minutes(2)));
  cluster.host(1).crash();
  cluster.run_for(10s);
  cluster.host(1).start();
  finish(cluster);
  REQUIRE(events(cluster, "island_joined") == 1);
}
