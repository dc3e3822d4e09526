// What is known of a contribution, on its way from the island to the ledger.
#include "transport/control/contribution_facts.hpp"

#include "coordinator/ledger/ledger.hpp"
#include "tests/catch.hpp"
#include "tests/temporary_folder.hpp"
#include "transport/control/message.hpp"

namespace of_contribution_facts_test {

namespace {

using namespace atl;
using namespace atl::coordinator;

// With something in every field, and no two the same.
const ContributionFacts kFacts{1, 2, 3.5, 4.5, 5, DataRange{6, 7, 9, 8}, 10, Round(11), 12, 13, 14};

template <typename M>
ContributionFacts over_the_wire(const M& message) {
  return std::get<M>(decode(encode(message).value()).value()).facts;
}

RoundRecord through_the_ledger(RoundRecord round, const std::string& sql = "SELECT 1") {
  const atl_test::TemporaryFolder folder;
  Ledger ledger = Ledger::open(folder.path()).value();
  RunRecord run;
  run.id = round.run;
  REQUIRE(ledger.write(std::vector<Record>{run, round}).ok());
  REQUIRE(ledger.database().execute(sql).ok());
  return ledger.recover()->rounds.at(0);
}

RoundRecord round_with(std::vector<ContributionFacts> contributions) {
  RoundRecord round;
  round.run = RunId("r-1");
  round.round = Round(8);
  round.members = {IslandId("i-a"), IslandId("i-b")};
  round.fragment = kFacts.fragment;
  round.contributions = std::move(contributions);
  return round;
}

}  // namespace

TEST_CASE("the facts of a contribution: Ready says all of them, Withdrawn those that are accounted for") {
  CHECK(over_the_wire(atl::Ready{RunId("r-1"), Epoch(1), Round(2), Digest{}, kFacts}) == kFacts);
  CHECK(over_the_wire(Withdrawn{RunId("r-1"), Epoch(1), Round(2), Error{Code::corrupt, "why"}, Fate::rejected, kFacts}) ==
        accounted(kFacts));
  CHECK(accounted(kFacts) == ContributionFacts{.tokens = 1, .fragment = 5, .data = {6, 7, 9, 8}, .overwritten = 13});
}

TEST_CASE("the facts of a contribution: the ledger gives back those that are recorded, of each member in its order") {
  ContributionFacts other{.fragment = kFacts.fragment};
  const RoundRecord back = through_the_ledger(round_with({kFacts, other}));
  CHECK(back.contributions == std::vector<ContributionFacts>{recorded(kFacts), other});
  CHECK_FALSE(back.unnoted);
  CHECK(each_of(back.contributions, &ContributionFacts::tokens) == std::vector<std::uint64_t>{1, 0});
  other.norm = kNotMeasured;  // what is no number has no place in a row
  CHECK(through_the_ledger(round_with({other, other})).contributions.at(0).norm == 0);
}

TEST_CASE("the facts of a contribution: a row of an older atoll has fewer of them, and says so again when it is written again") {
  const RoundRecord older = through_the_ledger(round_with({kFacts, kFacts}),
                                               "UPDATE rounds SET data='[]', steps='[]', norms='[]', staleness='[]', overwritten='[]'");
  CHECK(older.unnoted);
  CHECK(older.contributions == std::vector<ContributionFacts>(2, {.tokens = 1, .fragment = kFacts.fragment}));
  CHECK(through_the_ledger(older) == older);
}

TEST_CASE("the facts of a contribution: that something is not measured is one value") {
  CHECK(unmeasured(3) == unmeasured(3));
  CHECK_FALSE(unmeasured(3) == ContributionFacts{.norm = kNotMeasured, .fragment = 3});
  ContributionFacts without = kFacts;
  without.training_loss = kNotMeasured;
  CHECK(without == over_the_wire(atl::Ready{RunId("r-1"), Epoch(1), Round(2), Digest{}, without}));
  CHECK_FALSE(without == kFacts);
}

}  // namespace of_contribution_facts_test
