// The coordinator's decisions, row by row.
#include <algorithm>

#include "coordinator/core/decide.hpp"
#include "tests/catch.hpp"
#include "tests/unit/coordinator/rows.hpp"

namespace of_coordinator_decide_test {

using namespace atl;
using namespace atl::coordinator;
using namespace atl_test;
using namespace std::chrono_literals;

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
