// The coordinator's decisions, row by row.
#include <algorithm>
#include <array>
#include <span>

#include "coordinator/core/decide.hpp"
#include "coordinator/ledger/spans.hpp"
#include "tests/catch.hpp"

namespace of_coordinator_decide_test {

namespace {

using namespace atl;
using namespace atl::coordinator;
using namespace std::chrono_literals;

const TimePoint kStart = from_unix_ms(1'700'000'000'000);

IslandId island(std::size_t i) { return IslandId("i" + std::to_string(i)); }
Digest digest(int value) {
  Digest d;
  d.bytes[0] = static_cast<std::byte>(value);
  return d;
}

}  // namespace

TEST_CASE("decide_start: every subset of six islands, every min and max") {
  for (unsigned present = 0; present < 64; ++present) {
    for (std::uint32_t min = 1; min <= 6; ++min) {
      for (std::uint32_t max = min; max <= 6; ++max) {
        for (const bool settled : {false, true}) {
          StartInput input;
          input.submitted = kStart;
          input.now = kStart + (settled ? 3s : 1s);
          input.settle = 2s;
          input.min = min;
          input.max = max;
          std::size_t there = 0;
          for (std::size_t i = 0; i < 6; ++i) {
            const bool here = (present >> i & 1U) != 0;
            there += here ? 1U : 0U;
            input.candidates.push_back(StartCandidate{island(i), "n" + std::to_string(i), here, "", kStart});
          }
          const StartDecision decision = decide_start(input);
          REQUIRE(decision.start == (there >= max || (there >= min && settled)));
          REQUIRE(decision.islands.size() == (decision.start ? std::min<std::size_t>(there, max) : 0));
          REQUIRE(decision.wait.text.empty() == decision.start);
          REQUIRE(decision.wait.until.has_value() == (!decision.start && there >= min));
        }
      }
    }
  }
}

TEST_CASE("decide_start names whom it waits for and why") {
  StartInput input;
  input.now = input.submitted = kStart;
  input.min = 3;
  input.max = 3;
  input.expected = {"a", "b", "c"};
  input.candidates = {StartCandidate{island(0), "a", true, "", kStart}, StartCandidate{island(1), "b", true, "serves run x", kStart}};
  REQUIRE(decide_start(input).wait.text == "waits for 2 more islands (needs 3, has a): c (never seen) and b (serves run x)");
}

TEST_CASE("decide_round: every way six members can answer") {
  for (unsigned code = 0; code < 729; ++code) {
    for (std::uint32_t min = 1; min <= 7; ++min) {
      for (const bool late : {false, true}) {
        RoundInput input;
        input.now = kStart + (late ? 60s : 10s);
        input.round = Round(4);
        input.min = min;
        input.deadline = 30s;
        unsigned rest = code;
        std::size_t ready = 0;
        std::size_t silent = 0;
        for (std::size_t i = 0; i < 6; ++i, rest /= 3) {
          const Answer answer = static_cast<Answer>(rest % 3);
          ready += answer == Answer::ready ? 1U : 0U;
          silent += answer == Answer::none ? 1U : 0U;
          input.members.push_back(RoundMember{island(i), "n" + std::to_string(i), answer});
        }
        if (silent < 6) {
          input.first_answer = kStart;
        }
        const RoundDecision decision = decide_round(input);
        using Kind = RoundDecision::Kind;
        const Kind expected = min > 6                                                            ? Kind::interrupt
                              : silent == 0 && ready == 0                                        ? Kind::skip
                              : silent == 0 || (late && silent < 6 && ready >= min && ready > 0) ? Kind::plan
                                                                                                 : Kind::wait;
        REQUIRE(decision.kind == expected);
        if (expected == Kind::skip) {
          REQUIRE(decision.participants.size() == 6);
          input.skipped = kMostSkipped;
          REQUIRE(decide_round(input).kind == Kind::hopeless);
          input.skipped = 0;
          input.may_skip = false;
          REQUIRE(decide_round(input).kind == Kind::hopeless);
        }
        if (expected == Kind::plan) {
          REQUIRE(decision.participants.size() + decision.left_out.size() == 6);
          REQUIRE(decision.left_out.size() == silent);
        } else {
          REQUIRE_FALSE(decision.wait.text.empty());
        }
      }
    }
  }
}

TEST_CASE("decide_pause: the second attempt follows at once, later ones wait twice as long each time, a minute at most") {
  CHECK(decide_pause(1) == 0s);
  CHECK(decide_pause(2) == 500ms);
  CHECK(decide_pause(3) == 1s);
  CHECK(decide_pause(8) == 32s);
  CHECK(decide_pause(9) == 60s);
  CHECK(decide_pause(4'000'000'000U) == 60s);
}

TEST_CASE("decide_round: an island that came into a round that stands has its deadline from then on") {
  RoundInput input;
  input.now = kStart + 300s;
  input.round = Round(4);
  input.min = 2;
  input.deadline = 60s;
  input.first_answer = kStart;
  for (std::size_t i = 0; i < 3; ++i) {
    input.members.push_back(RoundMember{island(i), "n" + std::to_string(i), i == 2 ? Answer::none : Answer::ready});
  }
  using Kind = RoundDecision::Kind;
  CHECK(decide_round(input).left_out == std::vector{island(2)});
  input.members[2].let_in = kStart + 299s;
  CHECK(decide_round(input).kind == Kind::wait);
  CHECK(decide_round(input).wait.until == kStart + 359s);
  input.now = kStart + 359s;
  CHECK(decide_round(input).kind == Kind::plan);
  CHECK(decide_round(input).left_out == std::vector{island(2)});
}

TEST_CASE("decide_round: one whose trainer is lost is left out a moment after all the others are ready, if they are enough") {
  RoundInput input;
  input.now = kStart + 900ms;
  input.round = Round(4);
  input.min = 2;
  input.deadline = 600s;
  input.first_answer = kStart;
  input.last_round = 2s;
  for (std::size_t i = 0; i < 4; ++i) {
    input.members.push_back(RoundMember{island(i), "n" + std::to_string(i), i == 0 ? Answer::none : Answer::ready});
  }
  using Kind = RoundDecision::Kind;
  CHECK(decide_round(input).wait.until == kStart + 600s);
  input.members[0].trainer_lost = kStart - 5s;
  CHECK(decide_round(input).kind == Kind::wait);
  CHECK(decide_round(input).wait.until == kStart + 1s);
  input.now = kStart + 1s;
  const RoundDecision without = decide_round(input);
  CHECK(without.kind == Kind::plan);
  CHECK(without.left_out == std::vector{island(0)});
  CHECK(without.stragglers);  // it may come back at once
  CHECK(without.why_left_out == "its trainer ended in round 4, and is started again");
  input.last_round = 300s;  // a tenth of a long round: less is lost by waiting than with its contribution
  CHECK(decide_round(input).wait.until == kStart + 30s);
  input.last_round = 2s;
  input.members[0].trainer_lost = kStart + 500ms;  // lost while the others waited already
  CHECK(decide_round(input).wait.until == kStart + 1500ms);
  input.members[1].answer = Answer::none;  // somebody trains still: nobody waits for the lost one alone
  CHECK(decide_round(input).wait.until == kStart + 600s);
  input.members[1].trainer_lost = kStart;
  input.now = kStart + 2s;
  CHECK(decide_round(input).left_out.size() == 2);
  input.min = 3;  // the run could not go on
  CHECK(decide_round(input).kind == Kind::wait);
  CHECK(decide_round(input).wait.until == kStart + 600s);
  input.min = 1;
  input.deadline = 1s;  // the user's is shorter
  CHECK(decide_round(input).why_left_out == "did not reach round 4 by the deadline of 1.0 s");
}

TEST_CASE("decide_round: with a quorum of contributions a round begins, and everybody takes part in its exchange") {
  for (unsigned code = 0; code < 243; ++code) {
    for (std::uint32_t quorum = 1; quorum <= 5; ++quorum) {
      RoundInput input;
      input.now = kStart + 10s;
      input.round = Round(4);
      input.quorum = quorum;
      input.deadline = 30s;
      std::size_t ready = 0;
      std::size_t silent = 0;
      unsigned rest = code;
      for (std::size_t i = 0; i < 5; ++i, rest /= 3) {
        const Answer answer = static_cast<Answer>(rest % 3);
        ready += answer == Answer::ready ? 1U : 0U;
        silent += answer == Answer::none ? 1U : 0U;
        input.members.push_back(RoundMember{island(i), "n" + std::to_string(i), answer});
      }
      if (silent < 5) {
        input.first_answer = kStart;
      }
      const RoundDecision decision = decide_round(input);
      using Kind = RoundDecision::Kind;
      // An island that withdrew trains on and contributes anew, so that nothing is hopeless.
      REQUIRE(decision.kind == (ready > 0 && (silent == 0 || ready >= quorum) ? Kind::plan : Kind::wait));
      REQUIRE((decision.kind == Kind::plan || !decision.wait.text.empty()));
      if (decision.kind == Kind::plan) {
        REQUIRE(decision.participants.size() == 5);
        REQUIRE(decision.left_out.empty());
      }
      input.hold = Wait{"a joiner", kStart + 20s};
      REQUIRE(decide_round(input).kind != Kind::plan);
    }
  }
}

TEST_CASE("decide_round: a round that has its quorum waits for others as long as the grace, and says so") {
  RoundInput input;
  input.now = kStart + 10s;
  input.round = Round(4);
  input.quorum = 2;
  input.deadline = 30s;
  input.first_answer = kStart + 8s;
  input.quorum_since = kStart + 9s;
  input.grace = 3s;
  input.members = {RoundMember{island(0), "n0", Answer::ready}, RoundMember{island(1), "n1", Answer::ready},
                   RoundMember{island(2), "n2", Answer::none}};
  const RoundDecision waits = decide_round(input);
  REQUIRE(waits.kind == RoundDecision::Kind::wait);
  CHECK(waits.wait.until == kStart + 12s);
  CHECK(waits.wait.text == "round 4 has its quorum of 2, and waits a moment for n2");
  input.now = kStart + 12s;
  CHECK(decide_round(input).kind == RoundDecision::Kind::plan);
  input.now = kStart + 10s;
  input.members.back().answer = Answer::ready;
  CHECK(decide_round(input).kind == RoundDecision::Kind::plan);  // nobody is left to wait for
  // With fewer members than the quorum all of them are one.
  input.quorum = 7;
  input.members.back().answer = Answer::none;
  input.now = kStart + 12s;
  CHECK(decide_round(input).kind == RoundDecision::Kind::wait);
  input.members.pop_back();
  CHECK(decide_round(input).kind == RoundDecision::Kind::plan);
}

TEST_CASE("decide_round: a contribution that missed earlier rounds is no part of the quorum, and counts with it") {
  RoundInput input;
  input.round = Round(4);
  input.now = kStart + 60s;
  input.first_answer = kStart;
  input.deadline = 600s;
  input.min = 1;
  input.quorum = 1;
  input.quorum_since = kStart;
  input.members = {RoundMember{island(0), "n0", Answer::ready, true}, RoundMember{island(1), "n1", Answer::none}};
  REQUIRE(decide_round(input).kind == RoundDecision::Kind::wait);
  input.members[1].answer = Answer::ready;
  REQUIRE(decide_round(input).kind == RoundDecision::Kind::plan);
  REQUIRE(decide_round(input).participants.size() == 2);
  // Where nobody is on time, all are enough.
  input.members[1].late = true;
  REQUIRE(decide_round(input).kind == RoundDecision::Kind::plan);
}

TEST_CASE("decide_grace: with adaptive pace the slowest island has the time to end its step, inside its own overlap and half a period") {
  GraceInput input;
  input.overlap_steps = 2;
  input.step = 10ms;
  input.period = 4800ms;
  input.slowest = 80ms;
  CHECK(decide_grace(input) == 100ms);
  input.exchange = 10s;  // whatever the fastest island's overlap hides
  CHECK(decide_grace(input) == 100ms);
  input.overlap_steps = 1;
  CHECK(decide_grace(input) == 80ms);
  input.slowest = 10s;
  CHECK(decide_grace(input) == 2400ms);
  input.overlap_steps = 0;
  CHECK(decide_grace(input) == Duration(0));
}

TEST_CASE("decide_grace: half of what the overlap hides beside the wait for the quorum and the exchange") {
  GraceInput input;
  CHECK(decide_grace(input) == Duration(0));  // nothing is known of the step
  input.overlap_steps = 10;
  input.step = 2s;
  CHECK(decide_grace(input) == 10s);
  input.exchange = 6s;
  CHECK(decide_grace(input) == 7s);
  input.quorum_wait = 4s;
  CHECK(decide_grace(input) == 5s);
  input.exchange = 16s;
  CHECK(decide_grace(input) == Duration(0));
  input.exchange = 60s;
  CHECK(decide_grace(input) == Duration(0));  // the overlap hides less than the exchange takes
  input.overlap_steps = 0;
  input.exchange = Duration(0);
  CHECK(decide_grace(input) == Duration(0));
}

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

TEST_CASE("decide_admission: at a fresh round, after a missed boundary, in lockstep, or when too few are left") {
  AdmitInput input;
  input.now = kStart + 100s;
  input.committed = Round(7);
  input.last_commit = kStart + 99s;
  input.last_round = 60s;
  input.hold_limit = 10s;
  input.joiners = {Joiner{island(1), "b", true, Round(7), 0, 0}};
  REQUIRE(decide_admission(input).admit.size() == 1);
  input.anybody_ready = true;  // the round is nearly over: the others would wait
  REQUIRE(decide_admission(input).admit.empty());
  REQUIRE_FALSE(decide_admission(input).hold.has_value());
  input.stuck = true;  // they would wait for ever
  REQUIRE(decide_admission(input).admit.size() == 1);
  input.stuck = false;
  input.joiners[0].boundaries_missed = 1;
  REQUIRE(decide_admission(input).admit.size() == 1);
  input.exchanging = true;
  REQUIRE(decide_admission(input).admit.empty());
  input.exchanging = false;
  input.joiners[0].caught_up = Round(6);  // nearly there: the next round is held, for a bounded time
  REQUIRE(decide_admission(input).hold.has_value());
  input.hold_since = kStart + 90s;
  REQUIRE_FALSE(decide_admission(input).hold.has_value());
  input.hold_since.reset();
  input.joiners[0].caught_up = Round(4);
  REQUIRE_FALSE(decide_admission(input).hold.has_value());
  input.joiners[0].boundaries_missed = 4;  // the rounds are too quick for it: a few are held nevertheless
  REQUIRE(decide_admission(input).held_for.size() == 1);
  input.joiners[0].holds = 3;
  REQUIRE_FALSE(decide_admission(input).hold.has_value());
  input.joiners[0] = Joiner{island(1), "b", true, std::nullopt, 0, 0};
  REQUIRE_FALSE(decide_admission(input).hold.has_value());
  input.lockstep = true;
  REQUIRE(decide_admission(input).hold.has_value());
  input.joiners[0].caught_up = Round(7);
  REQUIRE(decide_admission(input).admit.size() == 1);
  for (const bool lockstep : {false, true}) {  // nobody waits for a trainer that is starting
    input.lockstep = lockstep;
    for (const Round caught_up : {Round(6), Round(7)}) {
      input.joiners[0] = Joiner{island(1), "b", true, caught_up, 1, 0};
      input.joiners[0].trains = false;
      REQUIRE(decide_admission(input).admit.empty());
      REQUIRE_FALSE(decide_admission(input).hold.has_value());
    }
  }
}

TEST_CASE("decide_restore takes the newest checkpoint that verifies, and waits before rounds are given up") {
  RestoreInput input;
  input.now = kStart;
  input.since = kStart;
  input.grace = 10s;
  input.committed = Round(9);
  input.min = 2;
  input.candidates = {RestoreCandidate{island(0), "a", true, Round(6)}, RestoreCandidate{island(1), "b", false, std::nullopt}};
  REQUIRE_FALSE(decide_restore(input).restore);
  REQUIRE(decide_restore(input).wait.text.find("waits for 1 more of b") != std::string::npos);
  input.others = 1;
  REQUIRE_FALSE(decide_restore(input).restore);
  REQUIRE(decide_restore(input).wait.until == kStart + 10s);
  input.now = kStart + 10s;
  REQUIRE(decide_restore(input).restore);
  REQUIRE(decide_restore(input).round == Round(6));
  input.now = kStart;
  input.candidates[0].checkpoint = Round(9);  // nothing is lost: no reason to wait
  REQUIRE(decide_restore(input).restore);
  input.candidates[0].checkpoint.reset();
  REQUIRE_FALSE(decide_restore(input).restore);
  REQUIRE_FALSE(decide_restore(input).start_over);  // b may have one
  input.candidates[1].connected = true;
  REQUIRE_FALSE(decide_restore(input).start_over);  // never from a fresh model
  REQUIRE(decide_restore(input).wait.text.find("it cannot go on") != std::string::npos);
  input.committed = Round(0);  // but for the initial state, which the seed gives again
  REQUIRE(decide_restore(input).start_over);
}

TEST_CASE("decide_restore takes no island that serves another run, and gives up no round that one of those holds") {
  RestoreInput input;
  input.now = kStart + 1h;
  input.since = kStart;
  input.grace = 10s;
  input.committed = Round(9);
  input.candidates = {RestoreCandidate{island(0), "a", true, Round(9), kStart, "other"}, RestoreCandidate{island(1), "b", true, Round(6)}};
  RestoreDecision decision = decide_restore(input);
  CHECK_FALSE(decision.restore);
  CHECK_FALSE(decision.wait.until);
  CHECK(decision.wait.text.find("of round 6; waits for a (serves run other)") != std::string::npos);
  input.candidates[1].checkpoint = Round(9);
  CHECK(decide_restore(input).islands == std::vector{island(1)});
  input.min = 2;
  decision = decide_restore(input);
  CHECK_FALSE(decision.restore);
  CHECK(decision.wait.text.find("waits for 1 more of a (serves run other)") != std::string::npos);
}

TEST_CASE("decide_restore takes no more islands than may take part, and those first that took part last") {
  RestoreInput input;
  input.now = kStart;
  input.committed = Round(4);
  input.max = 2;
  input.candidates = {
      RestoreCandidate{island(0), "a", true, Round(4), kStart - 3s}, RestoreCandidate{island(1), "b", true, Round(4), kStart - 1s},
      RestoreCandidate{island(2), "c", true, Round(3), kStart}, RestoreCandidate{island(3), "d", true, Round(4), kStart - 1s}};
  REQUIRE(decide_restore(input).islands == std::vector{island(1), island(3)});
}

TEST_CASE("decide_wait_shares: a wait is put down to what was under way, from the commit backwards, and the shares sum to it") {
  RoundTimes times;
  times.planned = kStart + 10s;
  times.exchanged = kStart + 14s;
  times.committed = kStart + 15s;
  times.last_ready = IslandId("late");
  times.last_exchanged = IslandId("b");
  times.slowest = IslandId("a");
  const auto shares = [&](double wait) { return decide_wait_shares(std::span(&times, 1), wait, IslandId("a")); };
  REQUIRE(shares(0).empty());
  const auto commit = shares(0.5);
  REQUIRE(commit.size() == 1);
  CHECK(commit[0].what == WaitFor::commit);
  CHECK(commit[0].seconds == Approx(0.5));
  const auto all = shares(8);
  REQUIRE(all.size() == 3);
  CHECK(all[0].what == WaitFor::commit);
  CHECK(all[0].seconds == Approx(1.0));
  CHECK(all[1].what == WaitFor::link);
  CHECK(all[1].from == IslandId("a"));
  CHECK(all[1].island == IslandId("b"));
  CHECK(all[1].seconds == Approx(4.0));
  CHECK(all[2].what == WaitFor::ready);
  CHECK(all[2].island == IslandId("late"));
  CHECK(all[2].seconds == Approx(3.0));
  // Times out of order (a clock that was set) never make a share negative, nor the sum wrong.
  std::swap(times.planned, times.committed);
  double sum = 0;
  for (const WaitShare& share : shares(8)) {
    CHECK(share.seconds > 0);
    sum += share.seconds;
  }
  CHECK(sum == Approx(8.0));
}

TEST_CASE("decide_wait_shares: no island waits for itself to be ready") {
  RoundTimes times;
  times.planned = kStart + 10s;
  times.exchanged = kStart + 14s;
  times.committed = kStart + 15s;
  times.last_ready = IslandId("late");
  times.last_exchanged = IslandId("b");
  times.slowest = IslandId("a");
  const auto shares = decide_wait_shares(std::span(&times, 1), 8, IslandId("late"));
  REQUIRE(shares.size() == 3);
  CHECK(shares[2].what == WaitFor::commit);
  CHECK(shares[2].island.empty());
  CHECK(shares[2].seconds == Approx(3.0));
}

TEST_CASE("decide_wait_shares: a round that was held up by the one before it is waited for through that") {
  RoundTimes before;  // its exchange took until 18 s, by the link a → b
  before.planned = kStart + 10s;
  before.exchanged = kStart + 18s;
  before.committed = kStart + 19s;
  before.last_ready = IslandId("early");
  before.last_exchanged = IslandId("b");
  before.slowest = IslandId("a");
  RoundTimes round;  // was there at 13 s, and committed half a second after the other
  round.planned = kStart + 12s;
  round.exchanged = kStart + 13s;
  round.committed = kStart + 19500ms;
  round.last_ready = IslandId("late");
  round.last_exchanged = IslandId("a");
  round.slowest = IslandId("b");
  const std::vector<RoundTimes> both = {round, before};
  const auto shares = decide_wait_shares(both, 11, IslandId("a"));
  REQUIRE(shares.size() == 3);
  CHECK(shares[0].what == WaitFor::commit);
  CHECK(shares[0].seconds == Approx(1.5));
  CHECK(shares[1].what == WaitFor::link);
  CHECK(shares[1].from == IslandId("a"));
  CHECK(shares[1].island == IslandId("b"));
  CHECK(shares[1].seconds == Approx(8.0));
  CHECK(shares[2].what == WaitFor::ready);
  CHECK(shares[2].island == IslandId("early"));
  CHECK(shares[2].seconds == Approx(1.5));
  // Where the other was committed earlier it held up nothing.
  const std::vector<RoundTimes> apart = {before, round};
  const auto own = decide_wait_shares(std::span(apart).first(1), 2, IslandId("a"));
  REQUIRE(own.size() == 2);
  CHECK(own[1].what == WaitFor::link);
}

TEST_CASE("a wait in the timeline is cut into what it was for, and the parts are as long as the wait") {
  const IslandSpan wait{RunId("r-1"), IslandId("i-a"), Span{SpanKind::wait, Round(7), 2, {}, kStart, 10s, 0}, {}};
  const std::vector<WaitCause> causes = {
      {IslandId("i-b"), "b to be ready", 3.0}, {IslandId("i-c"), "the link c → a", 6.5}, {{}, "the coordinator to commit", 0.4}};
  const auto parts = parts_of_wait(wait, causes);
  REQUIRE(parts.size() == 3);
  CHECK(parts[0].span.start == kStart);
  CHECK(parts[0].span.length == 3s);
  CHECK(parts[1].span.start == kStart + 3s);
  CHECK(parts[1].span.peer == IslandId("i-c"));
  CHECK(parts[1].cause == "the link c → a");
  CHECK(parts[2].span.start + parts[2].span.length == kStart + 10s);
  CHECK(parts[2].span.round == Round(7));
  CHECK(parts_of_wait(wait, {}).size() == 1);
  CHECK(parts_of_wait(wait, {}).front().span == wait.span);
}

TEST_CASE("decide_adoption takes the newest round of those that know the newest epoch, and waits for those that are away") {
  AdoptionInput input;
  input.now = kStart;
  input.since = kStart;
  input.grace = 10s;
  input.committed = Round(4);
  input.min = 2;
  const auto candidate = [](std::size_t i, bool connected, std::uint64_t epoch, std::vector<KnownRound> known) {
    return AdoptionCandidate{island(i), "i" + std::to_string(i), connected, Epoch(epoch), std::move(known), false};
  };
  input.candidates = {candidate(0, true, 3, {{Round(7), digest(7)}}), candidate(1, false, 3, {{Round(9), digest(9)}})};
  using Kind = AdoptionDecision::Kind;
  REQUIRE(decide_adoption(input).kind == Kind::wait);
  input.now = kStart + 11s;
  REQUIRE(decide_adoption(input).kind == Kind::wait);  // too few: no grace is long enough
  REQUIRE(decide_adoption(input).wait.text.find("i1") != std::string::npos);
  input.candidates.push_back(candidate(2, true, 3, {{Round(6), digest(6)}, {Round(2), digest(2)}}));
  REQUIRE(decide_adoption(input).kind == Kind::adopt);
  REQUIRE(decide_adoption(input).round.round == Round(7));
  input.candidates.push_back(candidate(3, true, 2, {{Round(12), digest(12)}}));  // of rounds that were rolled back
  REQUIRE(decide_adoption(input).round.round == Round(7));
  input.candidates.push_back(candidate(4, true, 4, {{Round(3), digest(3)}}));  // it knows more, but nothing newer than the ledger
  REQUIRE(decide_adoption(input).kind == Kind::nothing);
}

TEST_CASE("decide_adoption believes no round of which fewer than min islands tell") {
  using Kind = AdoptionDecision::Kind;
  const auto candidate = [](std::size_t i, std::uint64_t epoch, std::vector<KnownRound> known) {
    return AdoptionCandidate{island(i), "i" + std::to_string(i), true, Epoch(epoch), std::move(known), true};
  };
  const KnownRound nine{Round(9), digest(9)};
  const KnownRound four{Round(4), digest(4)};
  AdoptionInput input;
  input.now = input.since = kStart;
  input.committed = Round(4);
  input.min = 2;
  for (const std::uint64_t claimed : {5, 10, 40}) {
    for (const std::uint64_t epoch : {1, 3, 1000}) {
      INFO(claimed << " " << epoch);
      const AdoptionCandidate liar = candidate(2, epoch, {{Round(claimed), digest(1)}});
      input.committed = Round(4);
      input.candidates = {candidate(0, 3, {four}), candidate(1, 3, {four}), liar};
      CHECK(decide_adoption(input).kind == Kind::nothing);
      CHECK_FALSE(find_newer_than_ledger(input));
      input.candidates = {candidate(0, 3, {nine}), candidate(1, 3, {nine}), liar};
      CHECK(find_newer_than_ledger(input));
      CHECK(decide_adoption(input).kind == Kind::adopt);
      CHECK(decide_adoption(input).round.round == Round(9));
      input.committed.reset();  // the ledger knows of no round
      CHECK(decide_adoption(input).round.round == Round(9));
      input.candidates = {liar};
      CHECK(decide_adoption(input).kind == Kind::wait);
    }
  }
  // With another digest of the same round: two that agree are enough where two are.
  input.committed = Round(4);
  input.candidates = {candidate(0, 3, {nine}), candidate(1, 3, {nine}), candidate(2, 3, {{Round(9), digest(1)}})};
  CHECK(decide_adoption(input).kind == Kind::adopt);
  CHECK(decide_adoption(input).round.digest == digest(9));
  input.candidates.push_back(candidate(3, 3, {{Round(9), digest(1)}}));
  CHECK(decide_adoption(input).kind == Kind::wait);
}

TEST_CASE("decide_amounts rejects what a round cannot hold, and what is out of all proportion, but never all") {
  const auto rejected = [](std::vector<std::uint64_t> tokens, std::uint64_t tokens_per_step, std::uint32_t missed = 0) {
    AmountInput input{{}, 10, tokens_per_step};
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      input.amounts.push_back({island(i), tokens[i], missed});
    }
    std::vector<IslandId> islands;
    for (const RejectedAmount& each : decide_amounts(input)) {
      islands.push_back(each.island);
    }
    return islands;
  };
  const std::uint64_t huge = std::numeric_limits<std::uint64_t>::max();
  CHECK(rejected({1000, 1000}, 100).empty());
  CHECK(rejected({1000, 4000}, 100).empty());
  CHECK(rejected({1000, 4001}, 100) == std::vector{island(1)});
  CHECK(rejected({1000, 8000}, 100, 1).empty());
  CHECK(rejected({1000, huge}, 100) == std::vector{island(1)});
  CHECK(rejected({1000, huge}, huge).empty());
  CHECK(rejected({huge, huge}, 100).empty());  // a run is not ended by this guard
  CHECK(rejected({huge, 1000, 1000}, 0) == std::vector{island(0)});
  CHECK(rejected({1, 1000, 1000}, 0).empty());  // a small claim has no other rejected
  CHECK(rejected({1, 1000}, 0).empty());
  CHECK(rejected({}, 100).empty());
  // Three that have trained on nothing weigh 1: they are no measure of the two that have.
  AmountInput idle{
      {{island(0), 1, 0, false}, {island(1), 1, 0, false}, {island(2), 1, 0, false}, {island(3), 1030}, {island(4), 1339}}, 10, 0};
  CHECK(decide_amounts(idle).empty());
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

TEST_CASE("decide_adoption takes the initial state over, too, where the ledger knows of no round") {
  AdoptionInput input;
  input.now = kStart;
  input.since = kStart;
  input.candidates = {AdoptionCandidate{island(0), "a", true, Epoch(1), {{Round(0), digest(1)}}, false}};
  REQUIRE(decide_adoption(input).kind == AdoptionDecision::Kind::adopt);
  REQUIRE(decide_adoption(input).round.digest == digest(1));
  input.committed = Round(0);
  REQUIRE(decide_adoption(input).kind == AdoptionDecision::Kind::nothing);
}

TEST_CASE("decide_adoption takes nothing over from islands that have the same round of two histories") {
  AdoptionInput input;
  input.now = kStart;
  input.since = kStart;
  input.committed = Round(4);
  input.min = 2;
  input.candidates = {AdoptionCandidate{island(0), "a", true, Epoch(3), {{Round(7), digest(7)}}},
                      AdoptionCandidate{island(1), "b", true, Epoch(3), {{Round(7), digest(8)}}}};
  const AdoptionDecision apart = decide_adoption(input);
  REQUIRE(apart.kind == AdoptionDecision::Kind::wait);
  REQUIRE(apart.wait.text.find("round 7 is of two histories: a has one, b another") == 0);
  REQUIRE_FALSE(apart.wait.until);
  input.candidates[1].connected = false;  // revoked
  input.min = 1;
  REQUIRE(decide_adoption(input).kind == AdoptionDecision::Kind::adopt);
  input.candidates[1] = AdoptionCandidate{island(1), "b", true, Epoch(3), {{Round(6), digest(8)}}};  // an older one is no contradiction
  REQUIRE(decide_adoption(input).kind == AdoptionDecision::Kind::adopt);
}

TEST_CASE("a ledger is older than its islands where one came with a round that it does not know, and knew no older epoch") {
  AdoptionInput input;
  input.committed = Round(4);
  input.candidates = {AdoptionCandidate{island(0), "a", true, Epoch(3), {{Round(4), digest(4)}}, true}};
  REQUIRE_FALSE(find_newer_than_ledger(input));
  input.candidates.push_back(AdoptionCandidate{island(1), "b", false, Epoch(3), {{Round(9), digest(9)}}, true});  // not here
  REQUIRE_FALSE(find_newer_than_ledger(input));
  input.candidates[1].connected = true;
  REQUIRE(find_newer_than_ledger(input)->first == "b");
  REQUIRE(find_newer_than_ledger(input)->second == Round(9));
  input.candidates[1].ahead = false;  // of rounds that were rolled back
  REQUIRE_FALSE(find_newer_than_ledger(input));
}

}  // namespace of_coordinator_decide_test
