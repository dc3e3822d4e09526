// Stories of a ledger that is older than what its islands have.
#include <algorithm>
#include <string>

#include "tests/catch.hpp"
#include "tests/sim/stories.hpp"

using namespace atl;
using namespace atl::sim;
using coordinator::RunState;
using std::chrono::minutes;
using namespace std::chrono_literals;

TEST_CASE("a run that goes on from an older backup of the ledger takes the later rounds over from its islands, and loses none") {
  const bool restored = GENERATE(true, false);  // as a backup, or copied over the newer one by hand
  for (const bool one_left : {false, true}) {
    for (std::uint64_t later = 0; later < 6; ++later) {
      INFO(restored << " " << one_left << " " << later);
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
      cluster.start_coordinator_from(backup, restored);
      if (one_left) {
        cluster.run_for(15s);
        cluster.host(2).start();
      }
      finish(cluster);
      const bool behind = restored || newest > backup.ledger.runs.begin()->second.committed;
      CHECK(events(cluster, "ledger_restored") == (behind ? 1 : 0));
      CHECK(events(cluster, "ledger_behind") == (!restored && behind ? 1 : 0));
      REQUIRE(events(cluster, "rolled_back") == 0);
      REQUIRE(cluster.ledger().runs.begin()->second.committed == Round(40));
      REQUIRE(cluster.host(0).steps() == 160);  // no island did a step twice
      REQUIRE(cluster.host(1).steps() == 160);
      REQUIRE(newest.value >= 4 + later);
    }
  }
}

TEST_CASE("an island that was away when rounds were taken over says how far its part of the data was by then") {
  for (const std::uint64_t later : {1, 3}) {
    INFO(later);
    Cluster cluster(calm(3, 2, 40));
    cluster.start();
    REQUIRE(cluster.run_until_committed(Round(4), minutes(2)));
    const LedgerCopy backup = cluster.copy_ledger();
    REQUIRE(cluster.run_until_committed(Round(4 + later), minutes(2)));
    cluster.run_for(1s);  // all have heard of it
    cluster.crash_coordinator();
    cluster.cut("i2", kCoordinator);
    cluster.run_for(2s);
    cluster.start_coordinator_from(backup);
    cluster.run_for(30s);
    CHECK(events(cluster, "ledger_restored") == 1);  // without it
    cluster.join("i2", kCoordinator);
    finish(cluster);  // no sample of its part counts twice
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

// Two copies of a coordinator, each with two of four islands, as after a network split in which an operator restored a backup elsewhere.
// The older one makes more epochs and more rounds.
TEST_CASE("rounds that an older copy of the coordinator committed beside the newer one are not taken over, however many they are") {
  for (const std::uint64_t later : {3, 12}) {     // rounds of the newer copy
    for (const bool restarted : {false, true}) {  // the older one's islands know their rounds from their disks alone
      INFO(later << " " << restarted);
      Scenario scenario = calm(4, 2, 60);
      scenario.spec.checkpoint.every_rounds = 2;
      Cluster cluster(scenario);
      cluster.start();
      REQUIRE(cluster.run_until_committed(Round(4), minutes(2)));
      const LedgerCopy backup = cluster.copy_ledger();
      for (const char* island : {"i2", "i3"}) {
        cluster.cut(island, kCoordinator);
      }
      for (int times = 0; times < 4; ++times) {
        cluster.run_for(15s);
        cluster.host(1).crash();
        cluster.run_for(15s);
        cluster.host(1).start();
      }
      REQUIRE(cluster.run_until_committed(Round(20), minutes(5)));
      cluster.crash_coordinator();
      for (const char* island : {"i0", "i1"}) {
        cluster.cut(island, kCoordinator);
        cluster.join(std::string(island) == "i0" ? "i2" : "i3", kCoordinator);
      }
      cluster.run_for(2s);
      cluster.start_coordinator_from(backup);
      REQUIRE(cluster.run_until_committed(Round(4 + later), minutes(5)));
      const Digest digest = cluster.ledger().runs.begin()->second.digest;
      const Round committed = cluster.ledger().runs.begin()->second.committed;
      if (restarted) {
        cluster.host(0).crash();
        cluster.host(1).crash();
        cluster.run_for(1s);
        cluster.host(0).start();
        cluster.host(1).start();
      }
      cluster.join("i0", kCoordinator);
      cluster.join("i1", kCoordinator);
      finish(cluster);
      CHECK(events(cluster, "ledger_behind") == 0);
      CHECK(events(cluster, "rolled_back") == 0);
      CHECK(events(cluster, "ledger_restored") == 1);
      bool kept = false;
      for (const auto& [key, record] : cluster.ledger().rounds) {
        kept = kept || (record.committed && record.round == committed && record.digest == digest &&
                        record.lineage == cluster.ledger().runs.begin()->second.lineage);
      }
      CHECK(kept);
      CHECK(cluster.ledger().runs.begin()->second.committed == Round(60));
    }
  }
}

TEST_CASE("a run that was still queued in the backup begins once, and is no run of a backup from then on") {
  for (const bool one_away : {false, true}) {
    INFO(one_away);
    Cluster cluster(calm(3, 2, 40));
    cluster.start();
    const LedgerCopy backup = cluster.copy_ledger();  // no island has come yet
    cluster.crash_coordinator();
    cluster.run_for(1s);
    cluster.start_coordinator_from(backup);
    REQUIRE(cluster.run_until_committed(Round(9), minutes(2)));
    cluster.crash_coordinator();
    if (one_away) {
      cluster.host(2).crash();  // nobody waits for what it may have
    }
    cluster.run_for(2s);
    cluster.start_coordinator();
    REQUIRE_FALSE(cluster.ledger().runs.begin()->second.restored);
    REQUIRE(cluster.run_until_committed(Round(12), 20s));
    if (one_away) {
      cluster.host(2).start();
    }
    finish(cluster);
    CHECK(events(cluster, "ledger_restored") == 0);
    CHECK(events(cluster, "rolled_back") == 0);
    CHECK(cluster.host(0).steps() == 160);
    CHECK(cluster.host(1).steps() == 160);
  }
}

TEST_CASE("a run that had not begun by the backup goes on from the rounds that its islands have done since") {
  const bool restored = GENERATE(true, false);   // as a backup, or copied over the newer ledger by hand
  const bool starting = GENERATE(false, true);   // or queued
  for (const std::size_t late : {3, 0, 1, 2}) {  // 3: none
    for (std::uint64_t later = 0; later < 6; ++later) {
      INFO(restored << " " << starting << " " << late << " " << later);
      Cluster cluster(calm(3, 2, 40));
      cluster.start();
      REQUIRE(cluster.run_until_state(starting ? RunState::starting : RunState::queued, minutes(1)));
      const LedgerCopy backup = cluster.copy_ledger();
      REQUIRE(cluster.run_until_committed(Round(later), minutes(2)));
      cluster.crash_coordinator();
      if (late < 3) {
        cluster.cut("i" + std::to_string(late), kCoordinator);
      }
      cluster.run_for(2s);
      cluster.start_coordinator_from(backup, restored);
      if (late < 3) {
        cluster.run_for(15s);
        cluster.join("i" + std::to_string(late), kCoordinator);
      }
      finish(cluster);
      CHECK(events(cluster, "rolled_back") == 0);
      REQUIRE(cluster.ledger().runs.begin()->second.committed == Round(40));
      for (const std::size_t i : {0, 1}) {
        CHECK((i == late || cluster.host(i).steps() == 160));  // no island that stayed did a step twice
      }
    }
  }
}

// Islands with states of their own have nothing to be taken over: each goes on from what it has, in epochs after all that anybody knows.
TEST_CASE("islands that meet in pairs go on where they were under an older copy of the ledger, and once only") {
  const bool restored = GENERATE(true, false);
  for (const std::uint64_t before : {0, 1, 4}) {  // 0: the run is queued
    for (std::uint64_t later = 0; later < 4; ++later) {
      INFO(restored << " " << before << " " << later);
      Cluster cluster(calm_pairs(4, 2, 30));
      cluster.start();
      cluster.run_for(before > 0 ? 3s + before * 500ms : Duration(0));
      const LedgerCopy backup = cluster.copy_ledger();
      cluster.run_for(before > 0 ? Duration(0) : 4s);
      cluster.host(3).crash();  // epochs grow after the backup
      cluster.run_for(later * 500ms);
      cluster.host(3).start();
      cluster.run_for(2s);
      cluster.crash_coordinator();
      cluster.run_for(2s);
      cluster.start_coordinator_from(backup, restored);
      cluster.run_for(5s);
      cluster.crash_coordinator();
      cluster.run_for(1s);
      cluster.start_coordinator();
      REQUIRE_FALSE(cluster.ledger().runs.begin()->second.restored);
      finish(cluster);
      REQUIRE(cluster.ledger().runs.begin()->second.committed == Round(31));
      CHECK(cluster.host(0).steps() == 120);
    }
  }
}
