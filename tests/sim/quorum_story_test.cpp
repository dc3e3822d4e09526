// Stories of rounds that do not wait for everybody: they close with a quorum of contributions. Who is late stays in the epoch and receives
// every result, and what it has under way goes into a later round, formed against the state that it was trained from.
#include <algorithm>
#include <map>

#include "strategies/specification/model_kind.hpp"
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
      if (name_of(record.members[i]) == "i" + std::to_string(island) && record.contributions[i].tokens > 0) {
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

TEST_CASE(
    "a buffer of two is full with a fast and a slow island's contribution, however late that is, and each contribution is in one round") {
  constexpr std::uint64_t kRounds = 150;
  Scenario scenario = two_of_three(kRounds);
  scenario.spec.strategy.quorum_of = QuorumOf::any_age;
  scenario.spec.strategy.grace = "0s";
  scenario.spec.strategy.anchor = Anchor::own;
  scenario.spec.strategy.weighting = Weighting::uniform;
  Cluster cluster(scenario);
  cluster.host(2).set_slow(true);
  cluster.start();
  finish(cluster);
  REQUIRE(cluster.ledger().runs.at(cluster.run_id()).committed == Round(kRounds));
  std::size_t full_with_late = 0;
  std::map<IslandId, std::uint64_t> counted;
  for (const auto& [key, record] : cluster.ledger().rounds) {
    if (!record.committed || record.round == Round(0)) {
      continue;
    }
    const auto contributions = std::ranges::count_if(record.contributions, [](const ContributionFacts& each) { return each.tokens > 0; });
    INFO("round " << record.round.value);
    CHECK(contributions >= 2);
    for (std::size_t i = 0; i < record.members.size(); ++i) {
      counted[record.members[i]] += record.contributions[i].tokens;
      full_with_late += record.contributions[i].tokens > 0 && record.contributions[i].staleness > 5 && contributions == 2 ? 1 : 0;
    }
  }
  CHECK(full_with_late >= 2);
  for (std::size_t i = 0; i < 3; ++i) {  // no sample twice: the tokens that counted are of the data that were passed
    CHECK(counted[cluster.host(i).id()] <= cluster.host(i).tokens_published());
    CHECK(counted[cluster.host(i).id()] > 0);
  }
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
  auto dropped = cluster.ledger().dropped;
  // Others say what was overwritten, or was in hand when the island went on from another state.
  std::erase_if(dropped, [](const auto& each) { return each.second.facts.tokens == 0 || each.second.fate == Fate::dropped; });
  REQUIRE(dropped.size() == 1);
  CHECK(dropped.begin()->second.fate == Fate::rejected);
  CHECK(dropped.begin()->second.island == cluster.host(2).id());
  CHECK(cluster.ledger().runs.at(cluster.run_id()).committed == Round(120));
}

TEST_CASE("where a quorum closes rounds each token that was published has one fate, and the fates sum to what was published") {
  Scenario scenario = two_of_three(100);
  scenario.spec.strategy.max_staleness = GENERATE(2U, 1000U);
  Cluster cluster(scenario);
  cluster.host(2).set_slow(true);
  cluster.start();
  finish(cluster);
  std::map<IslandId, std::uint64_t> told;
  std::map<Fate, std::uint64_t> dropped;
  std::uint64_t late = 0;
  for (const auto& [key, record] : cluster.ledger().rounds) {
    for (std::size_t i = 0; record.committed && record.round > Round(0) && i < record.members.size(); ++i) {
      told[record.members[i]] +=
          record.contributions[i].tokens > 0 ? record.contributions[i].tokens + record.contributions[i].overwritten : 0;
      late += record.contributions[i].staleness > 0 ? record.contributions[i].tokens : 0;
    }
  }
  for (const auto& [key, record] : cluster.ledger().dropped) {
    told[record.island] += record.facts.tokens + record.facts.overwritten;
    dropped[record.fate] += record.facts.tokens;
  }
  for (std::size_t i = 0; i < 3; ++i) {
    INFO("island " << i << ", max_staleness " << scenario.spec.strategy.max_staleness);
    CHECK(told[cluster.host(i).id()] == cluster.host(i).tokens_published());
  }
  CHECK(dropped[Fate::rejected] == 0);
  CHECK((dropped[Fate::too_stale] > 0) == (scenario.spec.strategy.max_staleness == 2));
  CHECK((late > 0) == (scenario.spec.strategy.max_staleness == 1000));
  // One that found the run at its end is not told of as rejected.
  CHECK((dropped[Fate::overrun] > 0) == (events(cluster, "contribution_overrun") > 0));
  CHECK((events(cluster, "contribution_rejected") > 0) == (scenario.spec.strategy.max_staleness == 2));
}

TEST_CASE("what islands train while a round waits for a slower one, or for one that died, is merged and not overwritten") {
  Scenario scenario = two_of_three(60);
  scenario.spec.strategy.quorum = 3;
  scenario.spec.strategy.max_staleness = 2;
  scenario.spec.strategy.inner_steps = 25;
  scenario.spec.training.steps = 25 * scenario.spec.rounds;
  Cluster cluster(scenario);
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(10), minutes(2)));
  cluster.host(2).crash();
  const Round held = cluster.ledger().runs.at(cluster.run_id()).committed.next();
  REQUIRE(cluster.run_until_committed(Round(held.value + 8), minutes(2)));
  cluster.host(2).start();
  finish(cluster);
  // The first two islands are faster than the third.
  std::uint64_t merged = 0;
  std::uint64_t overwritten = 0;
  std::map<Round, std::uint64_t> of_first;
  std::uint32_t stale = 0;
  for (const auto& [key, record] : cluster.ledger().rounds) {
    for (std::size_t i = 0; record.committed && record.round > Round(0) && i < record.members.size(); ++i) {
      const bool fast = record.members[i] != cluster.host(2).id() && record.contributions[i].tokens > 0;
      merged += fast ? record.contributions[i].tokens : 0;
      overwritten += fast ? record.contributions[i].overwritten : 0;
      of_first[record.round] += record.members[i] == cluster.host(0).id() ? record.contributions[i].tokens : 0;
      stale += record.contributions[i].staleness > 0 ? 1U : 0U;
    }
  }
  INFO(merged << " tokens merged, " << overwritten << " overwritten");
  CHECK(overwritten * 10 < merged);
  CHECK(2 * of_first[held.next()] > 3 * of_first[Round(10)]);  // the second contribution of the time in which the round was held
  CHECK(stale == 0);                                           // whoever took part in a round has not missed it
}

TEST_CASE("an island whose contributions come late takes the results over as they come") {
  constexpr std::uint64_t kRounds = 100;
  Scenario scenario = two_of_three(kRounds);
  scenario.spec.strategy.quorum = 1;
  scenario.spec.strategy.grace = "50ms";  // less than a step of the second and third island
  scenario.spec.strategy.overlap_steps = 2;
  scenario.spec.strategy.inner_steps = 25;
  scenario.spec.strategy.max_staleness = 2;
  scenario.spec.islands.min = 1;
  scenario.spec.training.steps = 25 * kRounds;
  Cluster cluster(scenario);
  cluster.start();
  finish(cluster);
  std::uint32_t late = 0;
  for (const auto& [key, record] : cluster.ledger().rounds) {
    late += static_cast<std::uint32_t>(
        std::ranges::count_if(record.contributions, [](const ContributionFacts& each) { return each.staleness > 0; }));
  }
  CHECK(late > kRounds / 4);
  for (std::size_t i = 0; i < 3; ++i) {
    INFO("island " << i << " took " << cluster.host(i).results_taken() << " results over, " << late << " contributions were late");
    CHECK(cluster.host(i).results_taken() > kRounds * (i == 2 ? 55 : 80) / 100);  // the slowest passes over some
  }
}

TEST_CASE("a run ends once its tokens are committed, whoever trained on them, and its trainers hear how many they are") {
  const std::uint32_t quorum = GENERATE(0U, 2U);
  const bool dies = GENERATE(false, true);
  INFO("quorum " << quorum << ", the coordinator " << (dies ? "dies" : "lives"));
  Scenario scenario = two_of_three(150);
  scenario.spec.strategy.quorum = quorum;
  const std::uint64_t round =
      scenario.spec.strategy.inner_steps * tokens_per_sequence(scenario.spec);  // of one island; a step is a sequence
  scenario.spec.training.tokens = 60 * round;
  Cluster cluster(scenario);
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(5), minutes(2)));
  if (dies) {
    cluster.crash_coordinator();
    cluster.run_for(2s);
    cluster.start_coordinator();
  }
  finish(cluster);
  const coordinator::RunRecord& run = cluster.ledger().runs.at(cluster.run_id());
  INFO(run.reason.text);
  CHECK(run.tokens >= scenario.spec.training.tokens);
  CHECK(run.tokens < scenario.spec.training.tokens + 24 * round);
  CHECK(run.committed < Round(150));
  CHECK(run.reason.text.find("tokens are committed, training.tokens is") != std::string::npos);
  for (std::size_t i = 0; i < 3; ++i) {
    const std::vector<agent::TellTokens>& heard = cluster.host(i).tokens_told();
    REQUIRE(heard.size() > 5);
    CHECK(std::ranges::is_sorted(heard, {}, &agent::TellTokens::committed));
    CHECK(heard.back().committed > scenario.spec.training.tokens / 2);
    CHECK(heard.back().of == scenario.spec.training.tokens);
  }
}

TEST_CASE("tokens of rounds that are lost with every copy do not end a run") {
  Scenario scenario = two_of_three(150);
  const std::uint64_t sequence = tokens_per_sequence(scenario.spec);
  scenario.spec.training.tokens = 60 * scenario.spec.strategy.inner_steps * sequence;
  Cluster cluster(scenario);
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(7), minutes(2)));  // before the first checkpoint but that of the initial state
  const std::uint64_t before = cluster.ledger().runs.at(cluster.run_id()).tokens;
  REQUIRE(before > 0);
  for (std::size_t i = 0; i < 3; ++i) {
    cluster.host(i).crash();
  }
  cluster.run_for(2s);
  for (std::size_t i = 0; i < 3; ++i) {
    cluster.host(i).start();
  }
  finish(cluster);
  REQUIRE(events(cluster, "rolled_back") == 1);
  const coordinator::RunRecord& run = cluster.ledger().runs.at(cluster.run_id());
  std::uint64_t committed = 0;
  for (const auto& [key, round] : cluster.ledger().rounds) {
    committed += round.committed && round.lineage == run.lineage ? sequences_held(round) * sequence : 0;
  }
  INFO(run.reason.text << ", " << before << " tokens were lost");
  CHECK(run.tokens == committed);
  CHECK(committed >= scenario.spec.training.tokens);
}
