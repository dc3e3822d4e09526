// What lies on an island's disk of all runs, as the agent's core knows it.
#include "agent/core/stored_runs.hpp"

#include "agent/core/past_runs.hpp"
#include "tests/catch.hpp"

namespace of_stored_runs_test {

namespace {

using namespace atl;
using namespace atl::agent;

const RunId kRun("r-1");

StoredCheckpoint checkpoint(std::uint64_t round, bool trainer_state = false) {
  StoredCheckpoint value;
  value.round = Round(round);
  value.digest.bytes[0] = std::byte{static_cast<unsigned char>(round)};
  value.trainer_state = trainer_state;
  return value;
}

}  // namespace

TEST_CASE("of a run's checkpoints the newest few are known, one of each round") {
  StoredRuns stored({StoredRun{kRun, {checkpoint(1), checkpoint(2, true)}}});
  stored.add(kRun, checkpoint(3), 3);
  stored.add(kRun, checkpoint(3), 3);
  CHECK(stored.checkpoints(kRun).size() == 3);
  stored.add(kRun, checkpoint(4), 3);
  CHECK(stored.find(kRun, Round(1), checkpoint(1).digest) == nullptr);
  REQUIRE(stored.find(kRun, Round(4), checkpoint(4).digest) != nullptr);
  CHECK(stored.find(kRun, Round(4), checkpoint(3).digest) == nullptr);
  stored.remove(kRun, Round(4));
  CHECK(stored.held(kRun).size() == 2);
  CHECK(stored.checkpoints(RunId("r-2")).empty());
}

TEST_CASE("a trainer goes on from its own newest state, and from none that is newer than the run's") {
  const StoredRuns stored({StoredRun{kRun, {checkpoint(1, true), checkpoint(2, true), checkpoint(3)}}});
  REQUIRE(stored.newest_trainer_state(kRun, std::nullopt) != nullptr);
  CHECK(stored.newest_trainer_state(kRun, std::nullopt)->round == Round(2));
  CHECK(stored.newest_trainer_state(kRun, Round(1))->round == Round(1));
  CHECK(stored.newest_trainer_state(kRun, Round(0)) == nullptr);
}

TEST_CASE("a run that only lies on the disk is served to those whom the coordinator names") {
  StoredRuns stored({StoredRun{kRun, {checkpoint(1)}}});
  CHECK_FALSE(stored.heed(Serve{RunId("r-2"), "key", Round(1), true}));
  REQUIRE(stored.heed(Serve{kRun, "key", Round(1), true}));
  const std::optional<AllowPeers> both = stored.heed(Serve{kRun, "other", Round(1), true});
  REQUIRE(both);
  CHECK(both->readers == std::vector<agent::Reader>{{"key"}, {"other"}});
  CHECK(stored.heed(Serve{kRun, "key", Round(1), false})->readers == std::vector<agent::Reader>{{"other"}});
}

TEST_CASE("a hello names the runs on the disk, but the one in hand, and not more than it may") {
  const StoredRuns stored({StoredRun{kRun, {checkpoint(1)}}, StoredRun{RunId("r-2"), {checkpoint(5)}}, StoredRun{RunId("r-3"), {}}});
  CHECK(stored.held_runs(std::nullopt, 8).size() == 2);
  CHECK(stored.held_runs(std::nullopt, 1).size() == 1);
  REQUIRE(stored.held_runs(kRun, 8).size() == 1);
  CHECK(stored.held_runs(kRun, 8).front().run == RunId("r-2"));
}

TEST_CASE("an invitation of an epoch that was over is stale, one of a later epoch is not") {
  PastRuns past;
  past.add(kRun, Epoch(3));
  CHECK(past.was_over(kRun, Epoch(3)));
  CHECK_FALSE(past.was_over(kRun, Epoch(4)));
  CHECK_FALSE(past.was_over(RunId("r-2"), Epoch(1)));
}

}  // namespace of_stored_runs_test
