// Stories of accounts: whatever happens to contributions, each sample that an island trained on is in one class of the data's audit.
#include <algorithm>
#include <map>

#include "coordinator/ledger/data_audit.hpp"
#include "strategies/specification/model_kind.hpp"
#include "tests/catch.hpp"
#include "tests/sim/stories.hpp"

using namespace atl;
using namespace atl::sim;
using coordinator::DataAudit;
using coordinator::tokens_held;
using std::chrono::minutes;
using namespace std::chrono_literals;

namespace {

// As the ledger does it, of the cluster's one.
DataAudit audit_of(const Cluster& cluster) {
  std::map<std::uint32_t, Round> bases;
  for (const auto& [key, record] : cluster.ledger().rounds) {
    if (record.committed && record.members.empty() && record.lineage > 0) {
      bases[record.lineage] = record.round;
    }
  }
  DataAudit audit(bases);
  for (const auto& [key, record] : cluster.ledger().dropped) {
    audit.take(record);
  }
  for (const auto& [key, record] : cluster.ledger().rounds) {
    audit.take(record);
  }
  return audit;
}

// No fault in any part, the classes of each sum to its position, and the run's tokens are those of the committed class.
void check_whole(const DataAudit& audit, const Cluster& cluster) {
  std::uint64_t committed = 0;
  for (const auto& [number, part] : audit.parts()) {
    INFO("part " << number << ": " << part.fault);
    CHECK(part.fault.empty());
    CHECK(part.committed + part.passed_over + part.taken_over == part.position);
    committed += part.committed;
  }
  for (const auto& [id, run] : cluster.ledger().runs) {
    CHECK(run.tokens == committed * tokens_per_sequence(cluster.scenario().spec));
  }
}

// The third island takes some twenty rounds for one.
Scenario late_third(std::uint64_t rounds) {
  Scenario scenario = calm(3, 2, rounds);
  scenario.spec.strategy.quorum = 2;
  scenario.spec.checkpoint.every_rounds = 10;
  return scenario;
}

}  // namespace

TEST_CASE("accounts: what was too stale is passed over with its reason, and no sample is in two classes") {
  Scenario scenario = late_third(100);
  scenario.spec.strategy.max_staleness = 2;
  scenario.spec.strategy.overlap_steps = GENERATE(0U, 2U);
  Cluster cluster(scenario);
  cluster.host(2).set_slow(true);
  cluster.start();
  finish(cluster);
  const DataAudit audit = audit_of(cluster);
  check_whole(audit, cluster);
  // The trainers count 100 tokens a sequence, the second island's 101, the third's 102.
  std::uint64_t stale = 0;
  for (const auto& [number, part] : audit.parts()) {
    std::map<IslandId, std::uint64_t> tokens;
    for (const auto& [key, record] : cluster.ledger().rounds) {
      for (std::size_t i = 0; record.committed && i < record.members.size(); ++i) {
        tokens[record.members[i]] += record.contributions[i].data.part == number ? tokens_held(record, i) : 0;
      }
    }
    for (std::size_t i = 0; i < 3; ++i) {
      const auto found = part.islands.find(cluster.host(i).id());
      INFO("part " << number << ", island " << i);
      CHECK((found == part.islands.end() ? 0 : found->second) * (100 + i) == tokens[cluster.host(i).id()]);
    }
  }
  for (const auto& [island, fates] : audit.fates()) {
    const auto found = fates.dropped.find(Fate::too_stale);
    stale += found == fates.dropped.end() ? 0 : found->second;
  }
  INFO(stale << " tokens were too stale");
  CHECK(stale > 0);
}

TEST_CASE("accounts: what was in hand when islands went back to a checkpoint is told, and its samples come again") {
  Scenario scenario = late_third(60);
  scenario.spec.strategy.max_staleness = 40;
  Cluster cluster(scenario);
  cluster.host(2).set_slow(true);
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(17), minutes(2)));
  if (GENERATE(false, true)) {  // what was committed by which round is known from the ledger, too
    cluster.crash_coordinator();
    cluster.run_for(1s);
    cluster.start_coordinator();
    cluster.run_for(3s);
  }
  for (std::size_t i = 0; i < 3; ++i) {
    cluster.host(i).crash();
  }
  cluster.run_for(2s);
  for (std::size_t i = 0; i < 3; ++i) {
    cluster.host(i).start();
  }
  finish(cluster);
  REQUIRE(events(cluster, "rolled_back") == 1);
  const DataAudit audit = audit_of(cluster);
  check_whole(audit, cluster);
  std::uint64_t lost = 0;
  for (const auto& [island, fates] : audit.fates()) {
    lost += fates.lost;
  }
  CHECK(lost > 0);
}
