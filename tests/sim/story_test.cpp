// Single stories: one thing goes wrong at a chosen moment, and the run goes on as it should.
#include <algorithm>
#include <string>

#include "tests/catch.hpp"
#include "tests/sim/cluster.hpp"

namespace {

using namespace atl;
using namespace atl::sim;
using coordinator::RunState;
using std::chrono::minutes;
using namespace std::chrono_literals;

// Islands in a calm world: nothing is lost but by the test's hand.
Scenario calm(std::uint32_t islands, std::uint32_t min, std::uint64_t rounds = 8) {
  Scenario scenario;
  scenario.seed = 7;
  scenario.islands = islands;
  RunSpec& spec = scenario.spec;
  spec.name = "run";
  spec.islands.min = min;
  spec.islands.max = islands;
  spec.islands.deadline = 60s;
  spec.strategy.inner_steps = 4;
  spec.training.steps = 4 * rounds;
  spec.rounds = rounds;
  spec.checkpoint.every_rounds = 2;
  return scenario;
}

Scenario calm_pairs(std::uint32_t islands, std::uint32_t min, std::uint64_t rounds) {
  Scenario scenario = calm(islands, min, rounds);
  StrategySpec& strategy = scenario.spec.strategy;
  strategy.name = "noloco";
  strategy.group = Group::pairs;
  strategy.weighting = Weighting::uniform;
  strategy.outer_optimizer = OuterOptimizerKind::heavy_ball;
  strategy.outer_momentum = 0.5;
  strategy.outer_pull = 0.7;
  strategy.final_merge = true;
  scenario.spec.merge_rounds = 1;
  scenario.spec.rounds = rounds + 1;
  return scenario;
}

std::size_t events(const Cluster& cluster, const std::string& kind) {
  const auto found = cluster.ledger().events.find(kind);
  return found == cluster.ledger().events.end() ? 0 : found->second;
}

void finish(Cluster& cluster) {
  const bool completed = cluster.run_until_state(RunState::completed, minutes(20));
  INFO(cluster.checkers().failure());
  INFO((cluster.view() ? cluster.view()->reason.text : "no coordinator"));
  REQUIRE(completed);
  REQUIRE(cluster.checkers().failure().empty());
}

}  // namespace

TEST_CASE("a calm run completes, and no step is done twice") {
  Cluster cluster(calm(3, 3));
  cluster.start();
  finish(cluster);
  REQUIRE(cluster.checkers().commits() == 8);
  for (std::size_t i = 0; i < 3; ++i) {
    REQUIRE(cluster.host(i).steps() == 32);
    REQUIRE(cluster.host(i).trainer_starts() == 1);
  }
  REQUIRE(cluster.view()->reason.text == "completed with 3 of 3 islands");
}

TEST_CASE("a restarted coordinator costs no island an inner step") {
  for (int milliseconds = 0; milliseconds < 3000; milliseconds += 137) {
    Cluster cluster(calm(3, 3));
    cluster.start();
    REQUIRE(cluster.run_until_committed(Round(2), minutes(2)));
    cluster.run_for(std::chrono::milliseconds(milliseconds));
    cluster.crash_coordinator();
    cluster.run_for(2s);
    cluster.start_coordinator();
    finish(cluster);
    for (std::size_t i = 0; i < 3; ++i) {
      REQUIRE(cluster.host(i).steps() == 32);
      REQUIRE(cluster.host(i).trainer_starts() == 1);
    }
  }
}

TEST_CASE("an island that is killed in a round comes back as the same island, and the absence is told") {
  Cluster cluster(calm(3, 2, 40));
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(3), minutes(2)));
  cluster.host(1).crash();
  cluster.run_for(8s);
  cluster.host(1).start();
  finish(cluster);
  REQUIRE(events(cluster, "island_left") == 1);
  REQUIRE(events(cluster, "island_joined") == 1);
  REQUIRE(events(cluster, "rolled_back") == 0);
  REQUIRE(cluster.view()->reason.text.find("i1 was away from round") != std::string::npos);
}

TEST_CASE("islands that begin with another state take over the first one's") {
  Cluster cluster(calm(4, 2, 20));
  cluster.host(3).set_other_initial(true);
  cluster.start();
  finish(cluster);
  REQUIRE(events(cluster, "island_joined") == 1);
}

TEST_CASE("when every copy in memory is gone the run goes on from the newest checkpoint and says what was lost") {
  Scenario scenario = calm(3, 3);
  scenario.spec.checkpoint.every_rounds = 3;
  Cluster cluster(scenario);
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(5), minutes(2)));
  for (std::size_t i = 0; i < 3; ++i) {
    cluster.host(i).crash();
  }
  cluster.run_for(1s);
  for (std::size_t i = 0; i < 3; ++i) {
    cluster.host(i).start();
  }
  finish(cluster);
  REQUIRE(events(cluster, "rolled_back") == 1);
  REQUIRE(cluster.ledger().runs.begin()->second.lineage == 1);
}

TEST_CASE("a contribution that is not finite is rejected by name, and the run goes on with the others") {
  Cluster cluster(calm(3, 2));
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(2), minutes(2)));
  cluster.host(2).spoil_next_contribution();
  finish(cluster);
  REQUIRE(events(cluster, "contribution_rejected") == 1);
  REQUIRE(events(cluster, "island_left") == 0);
}

TEST_CASE("in pairs a contribution that is not finite, or explodes, is rejected by name: its partner goes alone, and the island goes on") {
  Scenario scenario = draw_pair_scenario(1);
  scenario.islands = 2;
  scenario.loss = scenario.duplication = scenario.replay = scenario.nonfinite = scenario.exploding = scenario.broken_disk = 0;
  scenario.jitter = 20ms;
  scenario.latency = 5ms;
  RunSpec& spec = scenario.spec;
  spec.islands.min = spec.islands.max = 2;
  spec.islands.deadline = 60s;
  spec.strategy.grouping = FragmentKind::whole;
  spec.strategy.fragments = 0;
  spec.strategy.inner_steps = 4;
  spec.strategy.overlap_steps = 0;
  spec.strategy.merge_alpha = 0;
  spec.strategy.pace = Pace::fixed;
  spec.strategy.max_skew = 2;
  spec.training.steps = 4 * 24;
  spec.merge_rounds = 1;
  spec.rounds = 25;
  Cluster cluster(scenario);
  const auto run_to = [&](std::size_t pairs) {
    for (int i = 0; i < 10'000 && cluster.checkers().met() + cluster.checkers().went_alone() < 2 * pairs; ++i) {
      cluster.run_for(20ms);
    }
    REQUIRE(cluster.checkers().met() + cluster.checkers().went_alone() >= 2 * pairs);
  };
  cluster.start();
  run_to(2);
  CHECK(cluster.checkers().went_alone() == 0);
  cluster.host(1).spoil_next_contribution();
  run_to(12);
  CHECK(cluster.checkers().went_alone() == 2);  // both
  CHECK(events(cluster, "contribution_rejected") == 1);
  CHECK(events(cluster, "pair_alone") == 1);  // the partner's; its own is told as rejected
  cluster.host(0).explode_next_contribution();
  finish(cluster);
  CHECK(cluster.checkers().went_alone() == 4);
  CHECK(events(cluster, "contribution_rejected") == 2);
  CHECK(events(cluster, "pair_alone") == 2);
  CHECK(events(cluster, "island_left") == 0);
  CHECK(cluster.host(0).trainer_starts() == 1);
  CHECK(cluster.host(1).trainer_starts() == 1);
}

TEST_CASE("in pairs an island whose contributions are rejected again and again is quarantined, and the others go on") {
  Cluster cluster(calm_pairs(3, 2, 30));
  cluster.start();
  for (std::size_t rejected = 0; rejected < 3; ++rejected) {
    cluster.host(2).spoil_next_contribution();
    for (int i = 0; i < 10'000 && events(cluster, "contribution_rejected") == rejected; ++i) {
      cluster.run_for(20ms);
    }
    REQUIRE(events(cluster, "contribution_rejected") == rejected + 1);
  }
  CHECK(events(cluster, "island_quarantined") == 1);
  finish(cluster);
  CHECK(cluster.view()->reason.text.find("quarantined") != std::string::npos);
}

TEST_CASE("in pairs an island that is released by an order that comes late is assigned anew") {
  Cluster cluster(calm_pairs(3, 2, 60));
  cluster.start();
  for (int i = 0; i < 10'000 && cluster.checkers().met() < 4; ++i) {
    cluster.run_for(20ms);
  }
  cluster.host(1).from_coordinator(cluster.host(1).process()->boot,
                                   Release{cluster.run_id(), Code::cancelled, false, "of an earlier part in the run"});
  finish(cluster);
  CHECK(events(cluster, "island_left") == 1);
  CHECK(cluster.view()->reason.text.find("completed with 3 of 3 islands") == 0);
  CHECK(cluster.view()->reason.text.find("its agent does not work for the run any more") != std::string::npos);
}

TEST_CASE("in a group of three whose decider is killed the others come to one decision") {
  Scenario scenario = calm_pairs(3, 2, 60);
  scenario.spec.strategy.group_size = 3;
  std::size_t met = 0;
  for (std::uint64_t moment = 0; moment < 100; ++moment) {  // at every phase of an exchange
    Cluster cluster(scenario);
    cluster.start();
    for (int i = 0; i < 10'000 && cluster.checkers().met() < 9; ++i) {
      cluster.run_for(10ms);
    }
    cluster.run_for(moment * 7ms);
    cluster.host(0).crash();
    cluster.run_for(2s);
    cluster.host(0).start();
    INFO("moment " << moment);
    finish(cluster);
    met += cluster.checkers().met();
  }
  CHECK(met > 100 * 3 * 10);  // once it is back they meet again
}

TEST_CASE("a run that no island may serve fails with the first cause") {
  Cluster cluster(calm(2, 2));
  cluster.host(0).set_data_refused(true);
  cluster.host(1).set_data_refused(true);
  cluster.start();
  REQUIRE(cluster.run_until_state(RunState::failed, minutes(2)));
  REQUIRE(cluster.view()->error->why.find("the owner does not allow these data") != std::string::npos);
}

TEST_CASE("a trainer that is killed is started again, and its island stays") {
  Cluster cluster(calm(3, 3));
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(3), minutes(2)));
  cluster.host(0).crash_trainer();
  finish(cluster);
  REQUIRE(cluster.host(0).trainer_starts() == 2);
  REQUIRE(events(cluster, "trainer_crashed") == 1);
  REQUIRE(events(cluster, "island_left") == 0);
}

TEST_CASE("with fewer than min islands the run names whom it waits for, and goes on by itself") {
  Cluster cluster(calm(3, 3));
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(2), minutes(2)));
  cluster.host(2).crash();
  REQUIRE(cluster.run_until_state(RunState::interrupted, minutes(2)));
  REQUIRE(cluster.view()->reason.text.find("i2") != std::string::npos);
  cluster.host(2).start();
  finish(cluster);
}

TEST_CASE("two islands that cannot reach each other do not stop the others") {
  Cluster cluster(calm(4, 2));
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(2), minutes(2)));
  cluster.cut("i1", "i2");
  cluster.cut("i2", "i1");
  REQUIRE(cluster.run_until_committed(Round(5), minutes(5)));
  cluster.heal();
  finish(cluster);
}

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

TEST_CASE("overlap: killed with rounds in flight and gone on from the checkpoints, a run comes to the digests of one that never stopped") {
  Cluster undisturbed(streaming(3, 3));
  undisturbed.start();
  finish(undisturbed);

  Cluster cluster(streaming(3, 3));
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(7), minutes(2)));
  // Until every island has the same checkpoint, with the trainer's state, and rounds after it were in flight when it was taken.
  const auto newest = [&](std::size_t island) -> const DiskCheckpoint* {
    const auto& disk = cluster.host(island).disk();
    const auto held = disk.find(cluster.run_id());
    return held == disk.end() || held->second.empty() ? nullptr : &held->second.back();
  };
  const auto complete = [&] {
    for (std::size_t i = 0; i < 3; ++i) {
      const DiskCheckpoint* checkpoint = newest(i);
      if (checkpoint == nullptr || checkpoint->meta.round != newest(0)->meta.round || !checkpoint->trainer ||
          checkpoint->pending.size() < 2) {
        return false;
      }
    }
    return in_flight(cluster).size() >= 2;
  };
  while (!complete()) {
    cluster.run_for(10ms);
    REQUIRE(cluster.ledger().runs.at(cluster.run_id()).state == RunState::running);
  }
  for (std::size_t i = 0; i < 3; ++i) {
    cluster.host(i).crash();
  }
  cluster.run_for(1s);
  for (std::size_t i = 0; i < 3; ++i) {
    cluster.host(i).start();
  }
  finish(cluster);
  REQUIRE(last_digest(cluster) == last_digest(undisturbed));
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

TEST_CASE("a paused run frees its trainers, and resumed it ends with the bytes of a run that was never paused") {
  const auto outcome = [](int pause_after_ms, int overlap) {
    Scenario scenario = calm(3, 2, 12);
    scenario.spec.strategy.overlap_steps = static_cast<std::uint64_t>(overlap);
    Cluster cluster(scenario);
    cluster.start();
    if (pause_after_ms >= 0) {
      REQUIRE(cluster.run_until_committed(Round(3), minutes(2)));
      cluster.run_for(std::chrono::milliseconds(pause_after_ms));
      REQUIRE(cluster.pause());
      REQUIRE(cluster.run_until_state(RunState::paused, minutes(5)));
      cluster.run_for(1s);
      for (std::size_t i = 0; i < 3; ++i) {
        REQUIRE_FALSE(cluster.host(i).process()->trainer.up);
      }
      REQUIRE(cluster.view()->reason.text.find("atoll resume") != std::string::npos);
      cluster.run_for(30s);
      REQUIRE(cluster.resume());
    }
    finish(cluster);
    REQUIRE(cluster.checkers().commits() == 12);
    REQUIRE(events(cluster, "rolled_back") == 0);
    REQUIRE(cluster.view()->reason.text == "completed with 3 of 3 islands");
    for (std::size_t i = 0; i < 3; ++i) {
      REQUIRE(cluster.host(i).steps() == 48);
    }
    return cluster.ledger().runs.begin()->second.digest;
  };
  for (const int overlap : {0, 2}) {
    const Digest unpaused = outcome(-1, overlap);
    for (int ms = 0; ms < 900; ms += 130) {
      INFO(overlap << " " << ms);
      REQUIRE(outcome(ms, overlap) == unpaused);
    }
  }
}

TEST_CASE(
    "in pairs a paused run stands after one round on every island, and resumed it ends with the bytes of a run that was never paused") {
  const auto outcome = [](int pause_after_ms, int overlap) {
    Scenario scenario = calm_pairs(4, 2, 14);
    scenario.spec.strategy.overlap_steps = static_cast<std::uint64_t>(overlap);
    Cluster cluster(scenario);
    cluster.start();
    if (pause_after_ms >= 0) {
      cluster.run_for(std::chrono::milliseconds(pause_after_ms));
      REQUIRE(cluster.pause());
      const bool paused = cluster.run_until_state(RunState::paused, minutes(5));
      INFO(cluster.view()->reason.text << "; " << cluster.checkers().failure());
      REQUIRE(paused);
      cluster.run_for(1s);
      const Round last = cluster.host(0).disk().begin()->second.back().meta.round;
      for (std::size_t i = 0; i < 4; ++i) {
        REQUIRE_FALSE(cluster.host(i).process()->trainer.up);
        REQUIRE(cluster.host(i).disk().begin()->second.back().meta.round == last);
        REQUIRE(cluster.host(i).disk().begin()->second.back().trainer.has_value());
      }
      cluster.run_for(30s);
      REQUIRE(cluster.resume());
    }
    finish(cluster);
    REQUIRE(cluster.checkers().went_alone() == 0);
    REQUIRE(cluster.view()->reason.text == "completed with 4 of 4 islands");
    for (std::size_t i = 0; i < 4; ++i) {
      REQUIRE(cluster.host(i).steps() == 56);
    }
    return cluster.ledger().runs.begin()->second.digest;
  };
  for (const int overlap : {0, 2}) {
    const Digest unpaused = outcome(-1, overlap);
    for (int ms = 4500; ms < 7000; ms += 130) {
      INFO(overlap << " " << ms);
      REQUIRE(outcome(ms, overlap) == unpaused);
    }
  }
}

TEST_CASE("in pairs a pause asked for again and again, by a coordinator that dies meanwhile, loses no round") {
  for (int milliseconds = 0; milliseconds < 2500; milliseconds += 211) {
    INFO(milliseconds);
    Cluster cluster(calm_pairs(4, 2, 30));
    cluster.start();
    for (int time = 0; time < 3; ++time) {
      cluster.run_for(time == 0 ? 5s : 3s);
      REQUIRE(cluster.pause());
      cluster.run_for(std::chrono::milliseconds(milliseconds));
      cluster.crash_coordinator();
      cluster.run_for(1s);
      cluster.start_coordinator();
      REQUIRE(cluster.run_until_state(RunState::paused, minutes(5)));
      REQUIRE(cluster.resume());
    }
    finish(cluster);
    REQUIRE(cluster.checkers().went_alone() == 0);
  }
}

TEST_CASE("a coordinator that dies while it pauses a run pauses it all the same") {
  for (int milliseconds = 0; milliseconds < 2500; milliseconds += 211) {
    INFO(milliseconds);
    Cluster cluster(calm(3, 3, 12));
    cluster.start();
    REQUIRE(cluster.run_until_committed(Round(2), minutes(2)));
    REQUIRE(cluster.pause());
    cluster.run_for(std::chrono::milliseconds(milliseconds));
    cluster.crash_coordinator();
    cluster.run_for(1s);
    cluster.start_coordinator();
    REQUIRE(cluster.run_until_state(RunState::paused, minutes(5)));
    REQUIRE(cluster.ledger().runs.begin()->second.committed == Round(3));
    REQUIRE(cluster.resume());
    finish(cluster);
  }
}

TEST_CASE("a drained island contributes the steps done so far, keeps its trainer's state, and the others lose nothing") {
  for (int milliseconds = 0; milliseconds < 900; milliseconds += 97) {
    INFO(milliseconds);
    Cluster cluster(calm(3, 2, 40));
    cluster.start();
    REQUIRE(cluster.run_until_committed(Round(3), minutes(2)));
    cluster.run_for(std::chrono::milliseconds(milliseconds));
    REQUIRE(cluster.drain(1));
    cluster.run_for(cluster.scenario().latency + cluster.scenario().jitter +
                    20ms);  // by then the order is at the island, and at its trainer
    const std::uint64_t trained = cluster.host(1).steps();
    const TimePoint end = cluster.timeline().now() + 60s;
    while (cluster.host(1).up() && cluster.timeline().run_one(end)) {
    }
    REQUIRE_FALSE(cluster.host(1).up());
    REQUIRE(cluster.host(1).steps() <= trained + 1);  // but for the step that was under way
    // Every step that it did was committed: its last contribution is in the ledger, weighted by tokens.
    std::uint64_t tokens = 0;
    for (const auto& [key, round] : cluster.ledger().rounds) {
      for (std::size_t i = 0; round.committed && i < round.members.size(); ++i) {
        tokens += round.members[i] == cluster.host(1).id() && round.round.value > 0 ? round.tokens[i] - 1 : 0;
      }
    }
    REQUIRE(tokens == cluster.host(1).steps() * 101);
    REQUIRE(cluster.host(1).disk().begin()->second.back().trainer.has_value());
    finish(cluster);
    REQUIRE(cluster.host(0).trainer_starts() == 1);
    REQUIRE(cluster.host(2).trainer_starts() == 1);
    REQUIRE(cluster.view()->reason.text.find("i1 was away") != std::string::npos);
  }
}

TEST_CASE("an island whose contributions are rejected again and again is quarantined, until the run is resumed") {
  Cluster cluster(calm(3, 2, 40));
  cluster.start();
  for (std::uint64_t round = 2; round <= 4; ++round) {
    REQUIRE(cluster.run_until_committed(Round(round), minutes(2)));
    cluster.host(2).spoil_next_contribution();
  }
  REQUIRE(cluster.run_until_committed(Round(7), minutes(2)));
  REQUIRE(events(cluster, "contribution_rejected") == 3);
  REQUIRE(events(cluster, "island_quarantined") == 1);
  cluster.host(2).crash();
  cluster.run_for(3s);
  cluster.host(2).start();  // a restart is no pardon
  REQUIRE(cluster.run_until_committed(Round(10), minutes(2)));
  REQUIRE(events(cluster, "island_joined") == 0);
  REQUIRE(cluster.pause());
  REQUIRE(cluster.run_until_state(RunState::paused, minutes(2)));
  REQUIRE(cluster.resume());
  finish(cluster);
  REQUIRE(cluster.view()->reason.text.find("quarantined") != std::string::npos);
}

TEST_CASE("healed first: the last healed island dies while another catches up, and the run waits instead of starting anew") {
  for (int milliseconds = 0; milliseconds < 4000; milliseconds += 311) {
    INFO(milliseconds);
    Cluster cluster(calm(2, 1, 40));
    cluster.start();
    REQUIRE(cluster.run_until_committed(Round(5), minutes(2)));
    cluster.host(1).crash();
    cluster.host(1).lose_disk();
    REQUIRE(cluster.run_until_committed(Round(9), minutes(2)));
    cluster.host(1).start();
    cluster.run_for(std::chrono::milliseconds(milliseconds));
    const bool caught_up = events(cluster, "island_joined") > 0;
    cluster.host(0).crash();
    if (!caught_up) {
      REQUIRE(cluster.run_until_state(RunState::interrupted, minutes(2)));
      REQUIRE(cluster.view()->reason.text.find("i0") != std::string::npos);
      cluster.run_for(minutes(5));
      REQUIRE(cluster.view()->state == RunState::interrupted);
    }
    cluster.host(0).start();
    finish(cluster);
    REQUIRE(cluster.ledger().runs.begin()->second.committed == Round(40));
    REQUIRE(cluster.host(0).disk().begin()->second.back().meta.round == Round(40));
    const auto rollbacks = cluster.ledger().runs.begin()->second.lineage;
    REQUIRE(rollbacks <= 1);  // to the checkpoint on the disk, never to the seed
  }
}

TEST_CASE("when every copy of a run is lost it says so and waits, it never starts again from a fresh model") {
  Cluster cluster(calm(2, 2, 40));
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(5), minutes(2)));
  for (std::size_t i = 0; i < 2; ++i) {
    cluster.host(i).crash();
    cluster.host(i).lose_disk();
    cluster.host(i).start();
  }
  cluster.run_for(minutes(5));
  REQUIRE(cluster.view()->state == RunState::interrupted);
  REQUIRE(cluster.view()->committed >= Round(5));
  REQUIRE(cluster.view()->reason.text.find("it cannot go on") != std::string::npos);
}

TEST_CASE("a run that goes on from an older backup of the ledger takes the later rounds over from its islands, and loses none") {
  for (const bool one_left : {false, true}) {
    for (std::uint64_t later = 0; later < 6; ++later) {
      INFO(one_left << " " << later);
      Cluster cluster(calm(3, 2, 40));
      cluster.start();
      REQUIRE(cluster.run_until_committed(Round(4), minutes(2)));
      const LedgerCopy backup = cluster.copy_ledger();
      if (one_left) {
        cluster.host(2).crash();  // epochs grow after the backup
      }
      REQUIRE(cluster.run_until_committed(Round(4 + later), minutes(2)));
      const Round newest = cluster.ledger().runs.begin()->second.committed;
      cluster.crash_coordinator();
      cluster.run_for(2s);
      cluster.start_coordinator_from(backup);
      if (one_left) {
        cluster.run_for(15s);
        cluster.host(2).start();
      }
      finish(cluster);
      REQUIRE(events(cluster, "ledger_restored") == 1);
      REQUIRE(events(cluster, "ledger_behind") == 0);
      REQUIRE(events(cluster, "rolled_back") == 0);
      REQUIRE(cluster.ledger().runs.begin()->second.committed == Round(40));
      REQUIRE(cluster.host(0).steps() == 160);  // no island did a step twice
      REQUIRE(cluster.host(1).steps() == 160);
      REQUIRE(newest.value >= 4 + later);
    }
  }
}

TEST_CASE("an older coordinator that comes back beside the one that was restored from its backup decides nothing, and stays away") {
  for (std::uint64_t later = 1; later < 4; ++later) {
    INFO(later);
    Cluster cluster(calm(3, 2, 40));
    cluster.start();
    REQUIRE(cluster.run_until_committed(Round(4), minutes(2)));
    const LedgerCopy old = cluster.copy_ledger();
    cluster.crash_coordinator();
    cluster.run_for(2s);
    cluster.start_coordinator_from(old);  // as a backup, on another machine
    REQUIRE(cluster.run_until_committed(Round(4 + later), minutes(2)));
    const LedgerCopy restored = cluster.copy_ledger();
    cluster.crash_coordinator();
    cluster.run_for(1s);
    cluster.start_coordinator_from(old, false);  // the machine of before is switched on again
    cluster.run_for(30s);
    REQUIRE_FALSE(cluster.view());  // it has ended
    REQUIRE(cluster.ledger().superseded);
    REQUIRE(cluster.ledger().superseded->by.restored == 1);
    REQUIRE(cluster.ledger().runs.begin()->second.committed == old.ledger.runs.begin()->second.committed);
    REQUIRE(events(cluster, "superseded") == 1);
    cluster.start_coordinator_from(restored, false);
    finish(cluster);
    REQUIRE(events(cluster, "superseded") == 0);
    REQUIRE(cluster.ledger().runs.begin()->second.committed == Round(40));
    REQUIRE(cluster.host(0).steps() == 160);  // no island did a step twice
    REQUIRE(cluster.host(1).steps() == 160);
  }
}

TEST_CASE("with adaptive pace islands of unequal speed come to the synchronisation point together, and nobody trains less than it can") {
  const auto times = [](Pace pace) {
    Scenario scenario = calm(3, 3, 10);
    scenario.spec.strategy.inner_steps = 20;
    scenario.spec.training.steps = 200;
    scenario.spec.strategy.pace = pace;
    scenario.spec.strategy.min_inner_steps = 3;
    Cluster cluster(scenario);
    cluster.start();
    REQUIRE(cluster.run_until_committed(Round(0), minutes(2)));
    const TimePoint begin = cluster.timeline().now();
    finish(cluster);
    REQUIRE(cluster.checkers().commits() == 10);
    std::vector<double> steps_a_second;
    for (std::size_t i = 0; i < 3; ++i) {
      steps_a_second.push_back(static_cast<double>(cluster.host(i).steps()) / seconds(cluster.timeline().now() - begin));
      REQUIRE(cluster.host(i).steps() >= 30);
      REQUIRE(cluster.host(i).steps() <= 200);
      REQUIRE(cluster.host(i).trainer_starts() == 1);
    }
    return steps_a_second;
  };
  // A step takes 60, 90 and 120 ms on average.
  const std::vector<double> fixed = times(Pace::fixed);
  const std::vector<double> adaptive = times(Pace::adaptive);
  REQUIRE(fixed[0] == fixed[2]);  // all as slow as the slowest
  REQUIRE(adaptive[0] > 1.5 * fixed[0]);
  REQUIRE(adaptive[2] > 0.85 * fixed[2]);  // the slowest hardly loses: rounds are shorter, and each has its exchange
  REQUIRE(adaptive[0] > 1.6 * adaptive[2]);
}

TEST_CASE("a straggler is left out of the round with the reason, and joins the next") {
  Scenario scenario = calm(3, 2, 12);
  scenario.spec.islands.straggler_factor = 3;
  Cluster cluster(scenario);
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(2), minutes(2)));
  cluster.host(2).crash_trainer();  // and its trainer takes a while to come up again
  cluster.host(2).set_slow(true);
  REQUIRE(cluster.run_until_committed(Round(4), minutes(2)));
  REQUIRE(events(cluster, "island_left") >= 1);
  cluster.host(2).set_slow(false);
  finish(cluster);
  REQUIRE(events(cluster, "island_joined") >= 1);
  REQUIRE(cluster.view()->reason.text.find("straggler_factor") != std::string::npos);
}
