// Stories of pauses, of islands that are asked to leave or are quarantined, and of copies that are lost.
#include <algorithm>
#include <string>

#include "tests/catch.hpp"
#include "tests/sim/stories.hpp"

using namespace atl;
using namespace atl::sim;
using coordinator::RunState;
using std::chrono::minutes;
using namespace std::chrono_literals;

TEST_CASE("a paused run frees its trainers, and resumed it ends with the bytes of a run that was never paused") {
  const auto outcome = [](int pause_after_ms, int overlap) {
    Scenario scenario = calm(3, 2, 12);
    scenario.spec.strategy.overlap_steps = static_cast<std::uint64_t>(overlap);
    scenario.spec.strategy.eager = overlap == 4;  // the whole period
    Cluster cluster(scenario);
    cluster.start();
    if (pause_after_ms >= 0) {
      REQUIRE(cluster.run_until_committed(Round(3), minutes(2)));
      cluster.run_for(std::chrono::milliseconds(pause_after_ms));
      REQUIRE(cluster.pause());
      REQUIRE(cluster.run_until_state(RunState::paused, minutes(5)));
      cluster.run_for(1s);
      for (std::size_t i = 0; i < 3; ++i) {
        REQUIRE_FALSE(cluster.host(i).trainer_up());
      }
      REQUIRE(cluster.view()->reason.text.find("atoll resume") != std::string::npos);
      cluster.run_for(30s);
      REQUIRE(cluster.resume());
    }
    finish(cluster);
    REQUIRE(cluster.checkers().commits() == 12);
    REQUIRE(events(cluster, "rolled_back") == 0);
    REQUIRE(events(cluster, "data_dealt") == 1);  // everybody goes on in the data that it had
    REQUIRE(cluster.view()->reason.text == "completed with 3 of 3 islands");
    for (std::size_t i = 0; i < 3; ++i) {
      REQUIRE(cluster.host(i).steps() == 48);
    }
    return cluster.ledger().runs.begin()->second.digest;
  };
  for (const int overlap : {0, 2, 4}) {
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
      const Round last = cluster.host(0).stored(cluster.run_id()).back().round;
      for (std::size_t i = 0; i < 4; ++i) {
        REQUIRE_FALSE(cluster.host(i).trainer_up());
        REQUIRE(cluster.host(i).stored(cluster.run_id()).back().round == last);
        REQUIRE(cluster.host(i).stored(cluster.run_id()).back().trainer_state);
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
    while (cluster.host(1).up() && cluster.run_one(end)) {
    }
    REQUIRE_FALSE(cluster.host(1).up());
    REQUIRE(cluster.host(1).steps() <= trained + 1);  // but for the step that was under way
    // Every step that it did was committed: its last contribution is in the ledger, weighted by tokens.
    std::uint64_t tokens = 0;
    for (const auto& [key, round] : cluster.ledger().rounds) {
      for (std::size_t i = 0; round.committed && i < round.members.size(); ++i) {
        tokens += round.members[i] == cluster.host(1).id() && round.round.value > 0 ? round.contributions[i].tokens : 0;
      }
    }
    REQUIRE(tokens == cluster.host(1).steps() * 101);
    REQUIRE(cluster.host(1).stored(cluster.run_id()).back().trainer_state);
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
  std::size_t waited = 0;
  std::size_t went_on = 0;
  for (int milliseconds = 0; milliseconds < 4000; milliseconds += 53) {
    INFO(milliseconds);
    Cluster cluster(calm(2, 1, 40));
    cluster.start();
    REQUIRE(cluster.run_until_committed(Round(5), minutes(2)));
    cluster.host(1).crash();
    cluster.host(1).lose_disk();
    REQUIRE(cluster.run_until_committed(Round(9), minutes(2)));
    cluster.host(1).start();
    cluster.run_for(std::chrono::milliseconds(milliseconds));
    cluster.host(0).crash();
    cluster.run_for(minutes(1));
    const bool caught_up = events(cluster, "island_joined") > 0;  // before the other died, or as it died
    ++(caught_up ? went_on : waited);
    if (!caught_up) {
      REQUIRE(cluster.view()->state == RunState::interrupted);
      REQUIRE(cluster.view()->reason.text.find("i0") != std::string::npos);
      cluster.run_for(minutes(5));
      REQUIRE(cluster.view()->state == RunState::interrupted);
    }
    cluster.host(0).start();
    finish(cluster);
    REQUIRE(cluster.ledger().runs.begin()->second.committed == Round(40));
    REQUIRE((caught_up || cluster.host(0).stored(cluster.run_id()).back().round == Round(40)));
    const auto rollbacks = cluster.ledger().runs.begin()->second.lineage;
    REQUIRE(rollbacks <= 1);  // to the checkpoint on the disk, never to the seed
  }
  CHECK(waited > 1);
  CHECK(went_on > 1);
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
