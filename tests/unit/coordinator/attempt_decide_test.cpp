// What becomes of an attempt, and whose doing it is that results differ, row by row.
#include <algorithm>
#include <array>
#include <ctime>

#include "coordinator/core/decide.hpp"
#include "tests/catch.hpp"
#include "tests/unit/coordinator/rows.hpp"
#include "transport/base/exchange_grid.hpp"

namespace of_attempt_decide_test {

using namespace atl;
using namespace atl::coordinator;
using namespace atl_test;
using namespace std::chrono_literals;

TEST_CASE("decide_attempt: every way four members' digests can agree") {
  for (unsigned code = 0; code < 256; ++code) {
    AttemptInput input;
    input.now = kStart;
    input.planned = kStart;
    input.limit = 60s;
    input.round = Round(3);
    input.attempt = Attempt(1);
    std::array<std::size_t, 4> votes{};
    for (std::size_t i = 0; i < 4; ++i) {
      const unsigned vote = code >> (2 * i) & 3U;
      ++votes.at(vote);
      input.members.push_back(AttemptMember{island(i), "n" + std::to_string(i), digest(static_cast<int>(vote) + 1), false, {}});
    }
    const std::size_t most = *std::max_element(votes.begin(), votes.end());
    const AttemptDecision decision = decide_attempt(input);
    REQUIRE(decision.kind == (most > 2 ? AttemptDecision::Kind::commit : AttemptDecision::Kind::retry));
    if (most > 2) {
      REQUIRE(decision.left_out.size() == 4 - most);
      REQUIRE(votes.at(static_cast<std::size_t>(decision.digest.bytes[0]) - 1) == most);
    }
  }
}

namespace {

// Members whose results all agree, but that `reader` holds something else of what `giver` gave, for each of these.
AttemptInput disputing(std::size_t members, const std::vector<std::pair<std::size_t, std::size_t>>& disputes) {
  AttemptInput input;
  input.now = kStart;
  input.planned = kStart;
  input.limit = 60s;
  input.round = Round(3);
  input.attempt = Attempt(1);
  for (std::size_t i = 0; i < members; ++i) {
    AttemptMember member{island(static_cast<int>(i)), "n" + std::to_string(i), digest(1), false, {}};
    for (std::size_t giver = 0; giver < members; ++giver) {
      member.parts.push_back(digest(10 + static_cast<int>(giver)));
    }
    input.members.push_back(std::move(member));
  }
  for (const auto& [reader, giver] : disputes) {
    AttemptMember& member = input.members[reader];
    member.parts[giver] = digest(50 + static_cast<int>(reader));
    member.done = digest(50 + static_cast<int>(reader));
  }
  return input;
}

std::vector<IslandId> offenders(const AttemptDecision& decision) {
  std::vector<IslandId> islands;
  for (const Offence& offence : decision.offences) {
    islands.push_back(offence.island);
  }
  return islands;
}

}  // namespace

TEST_CASE("decide_attempt: of results that differ, one is named only by more others than can be wrong where most are honest") {
  CHECK_FALSE(accusers_needed(2));
  CHECK(accusers_needed(3) == 2);
  CHECK(accusers_needed(4) == 2);
  CHECK(accusers_needed(5) == 3);
  SECTION("one against one") {
    for (const std::size_t members : {3, 4, 5}) {
      const AttemptDecision decision = decide_attempt(disputing(members, {{0, 2}}));
      CHECK(decision.kind == AttemptDecision::Kind::commit);
      CHECK(decision.left_out == std::vector{island(0)});
      CHECK(decision.offences.empty());
      CHECK(decision.disputes == std::vector{Dispute{island(0), island(2)}});
    }
  }
  SECTION("who gave several something else") {
    const AttemptDecision three = decide_attempt(disputing(3, {{0, 2}, {1, 2}}));
    CHECK(three.kind == AttemptDecision::Kind::retry);
    CHECK(three.left_out == std::vector{island(2)});
    CHECK(offenders(three) == std::vector{island(2)});
    CHECK(three.disputes.empty());
    const AttemptDecision five = decide_attempt(disputing(5, {{0, 4}, {1, 4}}));
    CHECK(five.kind == AttemptDecision::Kind::commit);
    CHECK(five.offences.empty());
    CHECK(five.disputes.size() == 2);
  }
  SECTION("who holds something else of what several gave") {
    const AttemptDecision decision = decide_attempt(disputing(5, {{1, 0}, {1, 2}, {1, 4}}));
    CHECK(decision.left_out == std::vector{island(1)});
    CHECK(offenders(decision) == std::vector{island(1)});
  }
  SECTION("who got the same and has another result") {
    AttemptInput input = disputing(3, {});
    input.members[1].done = digest(7);
    CHECK(offenders(decide_attempt(input)) == std::vector{island(1)});
  }
  SECTION("who says nothing of what it gave, or says it of what it gave to nobody") {
    AttemptInput input = disputing(3, {{0, 2}});
    input.members[2].parts.clear();
    CHECK(decide_attempt(input).offences.empty());
    input = disputing(3, {});
    input.members[2].parts[2] = digest(77);
    input.members[2].done = digest(77);
    CHECK(offenders(decide_attempt(input)) == std::vector{island(2)});
  }
  SECTION("two") {
    const AttemptDecision decision = decide_attempt(disputing(2, {{0, 1}}));
    CHECK(decision.kind == AttemptDecision::Kind::retry);
    CHECK(decision.offences.empty());
    CHECK(decision.disputes == std::vector{Dispute{island(0), island(1)}});
  }
}

namespace {

// Nine on two levels: member i stands in group i % 3 and in column i / 3. It holds a digest of three strips, then of the shards of its own.
AttemptInput nine_on_two_levels() {
  AttemptInput input = disputing(9, {});
  for (AttemptMember& member : input.members) {
    const int column = static_cast<int>(&member - input.members.data()) / 3;
    member.parts = {digest(10), digest(11), digest(12), digest(20 + 3 * column), digest(21 + 3 * column), digest(22 + 3 * column)};
  }
  return input;
}

// This member got something else in these places.
void got_other(AttemptInput& input, std::size_t member, const std::vector<std::size_t>& at) {
  for (const std::size_t place : at) {
    input.members[member].parts[place] = digest(70 + static_cast<int>(place));
  }
  input.members[member].done = digest(7);
}

}  // namespace

TEST_CASE(
    "decide_attempt: on two levels results that differ name who gave another in its group or column the part, and not whom that misled") {
  AttemptInput input = nine_on_two_levels();
  SECTION("in the group") {
    got_other(input, 2, {2});
    const AttemptDecision decision = decide_attempt(input);
    CHECK(decision.left_out == std::vector{island(2)});
    CHECK(decision.offences.empty());
    CHECK(decision.disputes == std::vector{Dispute{island(2), island(8), {}}});
  }
  SECTION("in the column: what it got, island 6 gave on to 0 and 3") {
    got_other(input, 6, {2, 5});
    got_other(input, 0, {2});
    got_other(input, 3, {2});
    const AttemptDecision decision = decide_attempt(input);
    CHECK(decision.left_out == std::vector{island(0), island(3), island(6)});
    CHECK(decision.offences.empty());
    CHECK(decision.disputes == std::vector{Dispute{island(6), island(8), {}}});
  }
  SECTION("to several at once: the one that is at odds with more sums nothing for a while") {
    got_other(input, 2, {2});
    got_other(input, 5, {2});
    const AttemptDecision decision = decide_attempt(input);
    CHECK(decision.offences.empty());
    CHECK(decision.disputes == std::vector{Dispute{island(2), island(8), island(2)}, Dispute{island(5), island(8), island(5)}});
  }
  SECTION("who got the same and has another result") {
    input.members[4].done = digest(7);
    CHECK(offenders(decide_attempt(input)) == std::vector{island(4)});
  }
  SECTION("who gives its group another strip and says so, with the result of the others") {
    got_other(input, 2, {2});
    got_other(input, 5, {2});
    input.members[8].parts[2] = digest(72);
    const AttemptDecision decision = decide_attempt(input);
    CHECK(offenders(decision) == std::vector{island(8)});
    CHECK(decision.left_out == std::vector{island(2), island(5), island(8)});
  }
  SECTION("who says nothing of what it gave") {
    got_other(input, 2, {2});
    input.members[8].parts.clear();
    const AttemptDecision decision = decide_attempt(input);
    CHECK(decision.offences.empty());
    CHECK(decision.disputes.front().giver == island(8));
  }
}

namespace {

double cpu_seconds_here() {
  std::timespec spent{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
  return static_cast<double>(spent.tv_sec) + static_cast<double>(spent.tv_nsec) / 1e9;
}

// A thousand members on two levels: group i % 32, column i / 32, where 8 are left over and have none.
AttemptInput thousand_on_two_levels() {
  AttemptInput input = disputing(1000, {});
  const ExchangeGrid grid = cut_grid(1000).value();
  for (std::size_t i = 0; i < 1000; ++i) {
    input.members[i].parts.assign(grid.columns + (grid.column[i] == kNoColumn ? 0 : grid.groups), digest(1));
  }
  return input;
}

}  // namespace

// Each part is counted among all members, and that once however many ask for it: counted anew for each member that differs, this took
// seconds, in which a coordinator answers nobody. The bound has room for a sanitizer.
TEST_CASE("decide_attempt: a thousand members of which nearly half differ, in every part, are decided in no time") {
  const bool two_levels = GENERATE(true, false);
  const bool silent = GENERATE(true, false);
  AttemptInput input = two_levels ? thousand_on_two_levels() : disputing(1000, {});
  for (std::size_t i = 0; i < 499; ++i) {
    AttemptMember& member = input.members[2 * i];
    member.done = digest(20'000 + static_cast<int>(i));
    member.parts.assign(member.parts.size(), *member.done);
    if (silent && i % 2 == 0) {
      member.parts.clear();
    }
  }
  const double before = cpu_seconds_here();
  const AttemptDecision decision = decide_attempt(input);
  const double spent = cpu_seconds_here() - before;
  CHECK(decision.kind == AttemptDecision::Kind::commit);
  CHECK(decision.left_out.size() >= 499);
  CAPTURE(two_levels, silent);
  CHECK(spent < 1);
}

TEST_CASE("decide_attempt waits for other accusers, then retries, after three bad attempts the most accused is left out") {
  AttemptInput input;
  input.planned = kStart;
  input.now = kStart + 5s;
  input.first_failure = kStart + 5s;
  input.grace = 1s;
  input.limit = 60s;
  input.round = Round(3);
  input.attempt = Attempt(1);
  for (std::size_t i = 0; i < 4; ++i) {
    input.members.push_back(AttemptMember{island(i), "n" + std::to_string(i), std::nullopt, i < 2, i < 2 ? island(2) : IslandId{}});
  }
  AttemptDecision decision = decide_attempt(input);
  REQUIRE(decision.kind == AttemptDecision::Kind::wait);
  REQUIRE(decision.wait.until == kStart + 6s);
  REQUIRE(decision.wait.text.find("n2 and n3") != std::string::npos);
  input.now = kStart + 6s;
  decision = decide_attempt(input);
  REQUIRE(decision.kind == AttemptDecision::Kind::retry);
  REQUIRE(decision.left_out.empty());
  REQUIRE(decision.blame.at(island(2)) == 2);
  input.bad_attempts = 2;
  REQUIRE(decide_attempt(input).left_out == std::vector<IslandId>{island(2)});
  // A tie: the later in order.
  input.members[1].accused = island(3);
  REQUIRE(decide_attempt(input).left_out == std::vector<IslandId>{island(3)});
}

TEST_CASE("decide_attempt blames those who say nothing at all") {
  AttemptInput input;
  input.planned = kStart;
  input.limit = 60s;
  input.now = kStart + 59s;
  input.members = {AttemptMember{island(0), "a", digest(1), false, {}}, AttemptMember{island(1), "b", std::nullopt, false, {}}};
  REQUIRE(decide_attempt(input).kind == AttemptDecision::Kind::wait);
  input.now = kStart + 60s;
  const AttemptDecision decision = decide_attempt(input);
  REQUIRE(decision.kind == AttemptDecision::Kind::retry);
  REQUIRE(decision.blame.at(island(1)) == 1);
}

TEST_CASE("decide_attempt: who fails alone is blamed, whomever it accuses") {
  AttemptInput input;
  input.planned = kStart;
  input.now = kStart + 5s;
  input.first_failure = kStart + 5s;
  input.limit = 60s;
  input.round = Round(3);
  input.attempt = Attempt(1);
  input.bad_attempts = 2;
  for (const IslandId& accused : {IslandId(), island(3), island(1)}) {
    input.members.clear();
    for (std::size_t i = 0; i < 4; ++i) {
      input.members.push_back(AttemptMember{island(i), "n" + std::to_string(i), i == 1 ? std::nullopt : std::optional(digest(1)), i == 1,
                                            i == 1 ? accused : IslandId()});
    }
    CHECK(decide_attempt(input).left_out == std::vector{island(1)});
  }
  // Where most have failed, whom they accuse is blamed, and who accuses nobody itself.
  for (std::size_t i : {0, 2}) {
    input.members[i].done.reset();
    input.members[i].failed = true;
    input.members[i].accused = island(3);
  }
  CHECK(decide_attempt(input).left_out == std::vector{island(3)});
}

}  // namespace of_attempt_decide_test
