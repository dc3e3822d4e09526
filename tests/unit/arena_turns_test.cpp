// Whose turn it is in a fragment's range of the arena.
#include "agent/core/rules/arena_turns.hpp"

#include "tests/catch.hpp"

namespace of_arena_turns_test {

using namespace atl;
using namespace atl::agent;
using Turn = ArenaTurns::Turn;

TEST_CASE("a range is the trainer's from an order to its answer, and what is applied meanwhile is adopted afterwards") {
  ArenaTurns turns;
  CHECK_FALSE(turns.begun(1));
  turns.begin(1, 2, Round(4), Round(4), Step(40), 400, 0);
  REQUIRE(turns.begun(1));
  CHECK_FALSE(turns.begun(2));
  REQUIRE(turns.fragments() == 2);
  CHECK(turns.is(0, Turn::ours));
  CHECK_FALSE(turns.outdated(0));
  CHECK(turns.base(1) == Round(4));

  turns.order_publish(0, Step(50));
  CHECK(turns.publishing());
  turns.applied(0, Round(5));
  CHECK(turns.outdated(0));
  CHECK_FALSE(turns.outdated(1));
  turns.published(Step(50), 410, {});
  CHECK(turns.is(0, Turn::ours));
  CHECK(turns.published_at(0) == Step(50));
  CHECK(turns.published_at(1) == Step(40));
  CHECK(turns.base(0) == Round(4));  // what it publishes was trained from the older result

  turns.adopt(0, Round(5));
  CHECK(turns.adopts(0, Round(5)));
  CHECK_FALSE(turns.merged(0, Round(6), Step(52), 420, 0));  // nobody asked for it
  REQUIRE(turns.merged(0, Round(5), Step(52), 420, 0));
  CHECK_FALSE(turns.outdated(0));
  CHECK(turns.base(0) == Round(5));
  CHECK(turns.based_at(0) == Step(52));
}

TEST_CASE("another beginning voids every turn, and what was applied since stays to be adopted") {
  ArenaTurns turns;
  turns.begin(1, 1, Round(4), Round(4), Step(40), 400, 0);
  turns.adopt(0, Round(5));
  turns.applied(0, Round(6));
  turns.stop();
  CHECK_FALSE(turns.begun(1));
  turns.begin(2, 1, Round(5), Round(6), Step(50), 500, 0);
  CHECK(turns.is(0, Turn::ours));
  CHECK_FALSE(turns.adopts(0, Round(5)));
  CHECK(turns.outdated(0));
}

TEST_CASE("a result of rounds that are lost is nothing to adopt") {
  ArenaTurns turns;
  turns.begin(1, 2, Round(0), Round(0), Step(0), 0, 0);
  turns.applied(0, Round(1));
  turns.applied(1, Round(2));
  turns.begin(2, 2, Round(0), Round(0), Step(0), 0, 0);  // the state went back to that of round 0
  CHECK_FALSE(turns.outdated(0));
  CHECK_FALSE(turns.outdated(1));
  CHECK(turns.newest(1) == Round(0));
}

TEST_CASE("of what a trainer published the tokens count that it trained on since it took its base") {
  ArenaTurns turns;
  turns.begin(1, 1, Round(0), Round(0), Step(0), 0, 0);
  const ContributionFacts whole = turns.published(Step(10), 100, ContributionFacts{6400, 10, 1.0});
  CHECK(whole.tokens == 6400);
  CHECK(whole.steps == 10);
  turns.adopt(0, Round(1));
  REQUIRE(turns.merged(0, Round(1), Step(12), 130, 0));  // 30 of the next 120 sequences were overwritten
  const ContributionFacts part = turns.published(Step(21), 220, ContributionFacts{7681, 12, 1.0});
  CHECK(part.tokens == 7681 * 90 / 120);
  CHECK(part.steps == 9);
  const ContributionFacts most =
      turns.published(Step(21), 220, ContributionFacts{~std::uint64_t{0}, 1, 1.0});  // none since: nothing is divided
  CHECK(most.tokens == ~std::uint64_t{0});
}

TEST_CASE("a round that counted what a trainer published is not one that it missed") {
  ArenaTurns turns;
  turns.begin(1, 2, Round(4), Round(4), Step(40), 400, 0);
  CHECK(turns.took_part_in(0) == Round(4));
  turns.published(Step(50), 410, {});
  turns.counted(0, Round(5));
  turns.counted(7, Round(5));  // no such fragment
  CHECK(turns.took_part_in(0) == Round(5));
  CHECK(turns.took_part_in(1) == Round(4));
  CHECK(turns.base(0) == Round(4));  // it has not taken the result
  turns.adopt(0, Round(6));
  REQUIRE(turns.merged(0, Round(6), Step(61), 420, 0));
  CHECK(turns.took_part_in(0) == Round(6));
}

TEST_CASE("a trainer hurries to the furthest publish that has enough in it, once") {
  ArenaTurns turns;
  turns.begin(1, 3, Round(0), Round(0), Step(0), 0, 1000);
  turns.hurry(0, 10);  // nothing is ordered: there is nothing to hurry to
  CHECK_FALSE(turns.hurried(5000));
  turns.order_publish(0, Step(24));
  turns.order_publish(1, Step(25));
  turns.order_publish(2, Step(26));
  turns.hurry(0, 100);
  turns.hurry(1, 100);
  CHECK_FALSE(turns.hurried(1099));
  CHECK(turns.hurried(1100) == Step(25));
  CHECK_FALSE(turns.hurried(9999));
}

}  // namespace of_arena_turns_test
