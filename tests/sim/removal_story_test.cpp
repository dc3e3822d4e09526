// Stories of a run that an operator removes, and of what must not be removed.
#include "tests/catch.hpp"
#include "tests/sim/stories.hpp"

namespace of_removal_story_test {

using namespace atl;
using namespace atl::sim;
using coordinator::RunState;
using namespace std::chrono_literals;

namespace {

bool holds(Cluster& cluster, std::size_t island) { return !cluster.host(island).stored(cluster.run_id()).empty(); }

}  // namespace

TEST_CASE("a run that was removed leaves the disks of its islands, and of one that was away when it comes back") {
  const bool coordinator_restarts = GENERATE(false, true);  // between recording the removal and hearing the island
  const bool unheard = GENERATE(false, true);               // the others do not hear it at once either
  const bool pairs = GENERATE(false, true);
  INFO(coordinator_restarts << " " << unheard << " " << pairs);
  Cluster cluster(pairs ? calm_pairs(4, 2, 8) : calm(4, 2, 8));
  cluster.start();
  CHECK_FALSE(cluster.remove().ok());  // it has not ended
  finish(cluster);
  cluster.host(2).crash();
  for (std::size_t i = 0; i < 4; ++i) {
    REQUIRE(holds(cluster, i));
  }
  for (const std::size_t i : {0, 1, 3}) {
    if (unheard) {
      cluster.cut(kCoordinator, "i" + std::to_string(i));
    }
  }
  REQUIRE(cluster.remove().ok());
  if (coordinator_restarts) {
    cluster.crash_coordinator();
  }
  cluster.run_for(2s);
  if (coordinator_restarts) {
    cluster.start_coordinator();
  }
  for (const std::size_t i : {0, 1, 3}) {
    if (unheard) {
      CHECK(holds(cluster, i));
      cluster.join(kCoordinator, "i" + std::to_string(i));
    }
  }
  cluster.run_for(15min);
  for (const std::size_t i : {0, 1, 3}) {
    CHECK_FALSE(holds(cluster, i));
  }
  CHECK(holds(cluster, 2));
  CHECK(cluster.ledger().runs.empty());
  CHECK(cluster.ledger().rounds.empty());
  CHECK(cluster.ledger().memberships.empty());
  CHECK(cluster.remove().error().code == Code::not_found);
  cluster.host(2).start();
  cluster.run_for(10s);
  CHECK_FALSE(holds(cluster, 2));
}

TEST_CASE("a coordinator whose ledger knows nothing of a run removes nothing of it") {
  const bool restored = GENERATE(true, false);  // as a backup, or copied over the newer one by hand
  INFO(restored);
  Cluster cluster(calm(3, 2, 8));
  cluster.start();
  LedgerCopy before = cluster.copy_ledger();
  before.ledger.runs.clear();
  finish(cluster);
  cluster.crash_coordinator();
  cluster.start_coordinator_from(before, restored);
  cluster.run_for(30min);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(holds(cluster, i));
  }
}

TEST_CASE("what islands did after the backup from which a run is removed stays on their disks") {
  Cluster cluster(calm(3, 2, 8));
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(3), 2min));
  LedgerCopy backup = cluster.copy_ledger();
  finish(cluster);
  cluster.crash_coordinator();
  backup.ledger.runs.at(cluster.run_id()).state = RunState::cancelled;  // and was resumed after the backup
  cluster.start_coordinator_from(backup, true);
  cluster.run_for(5s);
  REQUIRE(cluster.remove().ok());
  cluster.run_for(30min);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(holds(cluster, i));
  }
}

TEST_CASE("of a run that ended the newest checkpoint stays for thirty days, and goes then") {
  Cluster cluster(calm(3, 2, 8));
  cluster.start();
  finish(cluster);
  REQUIRE(cluster.host(0).stored(cluster.run_id()).size() > 1);
  const Round newest = cluster.host(0).stored(cluster.run_id()).back().round;
  cluster.run_for(25h);
  REQUIRE(cluster.host(0).stored(cluster.run_id()).size() == 1);
  CHECK(cluster.host(0).stored(cluster.run_id()).back().round == newest);
}

}  // namespace of_removal_story_test
