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
