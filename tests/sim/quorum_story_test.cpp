// Stories of rounds that do not wait for everybody: they close with a quorum of contributions. Who is late stays in the epoch and receives
// every result, and what it has under way goes into a later round, formed against the state that it was trained from.
#include <algorithm>

#include "tests/catch.hpp"
#include "tests/sim/stories.hpp"

using namespace atl;
using namespace atl::sim;
using coordinator::RunState;
using std::chrono::minutes;
using namespace std::chrono_literals;

namespace {

// Two islands are a quorum of three; a round takes them less than a second, the third takes twenty.
Scenario two_of_three(std::uint64_t rounds) {
  Scenario scenario = calm(3, 2, rounds);
  scenario.spec.strategy.quorum = 2;
  scenario.spec.strategy.max_staleness = 1000;  // the third misses some twenty
  scenario.spec.islands.min = 2;
  scenario.spec.checkpoint.every_rounds = 10;
  return scenario;
}

// In which committed rounds an island's contribution counts.
std::vector<Round> contributed(const Cluster& cluster, std::size_t island) {
  std::vector<Round> rounds;
  for (const auto& [key, record] : cluster.ledger().rounds) {
    for (std::size_t i = 0; record.committed && i < record.members.size(); ++i) {
      if (name_of(record.members[i]) == "i" + std::to_string(island) && record.tokens[i] > 0) {
        rounds.push_back(record.round);
      }
    }
  }
  return rounds;
}

}  // namespace

TEST_CASE("a round closes with a quorum: who is late stays in the epoch, receives every result, and contributes to later rounds") {
  constexpr std::uint64_t kRounds = 150;
  const Anchor anchor = GENERATE(Anchor::newest, Anchor::own);
  Scenario scenario = two_of_three(kRounds);
  scenario.spec.strategy.anchor = anchor;
  Cluster cluster(scenario);
  cluster.host(2).set_slow(true);
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(1), minutes(2)));
  const Epoch epoch = cluster.ledger().runs.at(cluster.run_id()).epoch;
  while (cluster.ledger().runs.at(cluster.run_id()).committed.value + 20 < kRounds) {
    const Round committed = cluster.ledger().runs.at(cluster.run_id()).committed;
    cluster.run_for(1s);
    INFO(cluster.checkers().failure());
    REQUIRE(cluster.checkers().failure().empty());
    REQUIRE(cluster.host(2).open_run(cluster.run_id()) != nullptr);
    REQUIRE(cluster.host(2).open_run(cluster.run_id())->round() >= committed);
  }
  finish(cluster);
  REQUIRE(cluster.checkers().commits() == kRounds);
  REQUIRE(cluster.ledger().runs.at(cluster.run_id()).epoch == epoch);
  for (const auto& [key, record] : cluster.ledger().rounds) {
    REQUIRE((record.round == Round(0) || record.members.size() == 3));
  }
  const std::vector<Round> of_late = contributed(cluster, 2);
  INFO(of_late.size() << " late contributions in " << human_duration(cluster.elapsed()));
  REQUIRE(of_late.size() >= 2);
  // Formed against an older state than the newest.
  REQUIRE((anchor == Anchor::own ? cluster.checkers().late() >= of_late.size() : cluster.checkers().late() == 0));
  REQUIRE(contributed(cluster, 0).size() > kRounds / 2);
  REQUIRE(events(cluster, "round_retried") == 0);
}

TEST_CASE("a round that closes with a quorum outlives the death of a member, of a trainer and of the coordinator") {
  Cluster cluster(two_of_three(120));
  cluster.host(2).set_slow(true);
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(20), minutes(2)));
  cluster.host(2).crash_trainer();
  cluster.run_for(3s);
  cluster.host(0).crash();
  cluster.run_for(10s);
  cluster.host(0).start();
  REQUIRE(cluster.run_until_committed(Round(60), minutes(5)));
  cluster.crash_coordinator();
  cluster.run_for(2s);
  cluster.start_coordinator();
  finish(cluster);
  REQUIRE(cluster.ledger().runs.at(cluster.run_id()).committed == Round(120));
}

TEST_CASE("where a quorum closes rounds a contribution that explodes is rejected once, and goes into no later round") {
  Scenario scenario = two_of_three(120);
  scenario.spec.strategy.quorum = 3;
  scenario.spec.islands.min = 3;
  Cluster cluster(scenario);
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(20), minutes(2)));
  cluster.host(2).explode_next_contribution();
  finish(cluster);
  CHECK(events(cluster, "contribution_rejected") == 1);
  CHECK(events(cluster, "island_quarantined") == 0);
  CHECK(cluster.ledger().runs.at(cluster.run_id()).committed == Round(120));
}
