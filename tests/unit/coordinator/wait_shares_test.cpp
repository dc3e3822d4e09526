// What the wait for a round was for, row by row.
#include <span>

#include "coordinator/core/decide.hpp"
#include "coordinator/ledger/spans.hpp"
#include "tests/catch.hpp"
#include "tests/unit/coordinator/rows.hpp"

namespace of_wait_shares_test {

using namespace atl;
using namespace atl::coordinator;
using namespace atl_test;
using namespace std::chrono_literals;

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

}  // namespace of_wait_shares_test
