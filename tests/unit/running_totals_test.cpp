// Totals over restarts of agents and of the coordinator.
#include "coordinator/ledger/running_totals.hpp"

#include <cmath>

#include "tests/catch.hpp"

namespace of_running_totals_test {

using namespace atl;
using namespace atl::coordinator;

namespace {

IslandReport report(std::uint64_t tokens, double seconds, std::uint64_t bytes) {
  IslandReport made;
  made.run = RunId("r");
  made.tokens = tokens;
  made.compute_seconds = seconds;
  made.wait_seconds = seconds / 2;
  made.bytes_sent = bytes;
  made.bytes_received = 2 * bytes;
  return made;
}

bool same(const IslandReport& a, const IslandReport& b) {
  return a.tokens == b.tokens && a.bytes_sent == b.bytes_sent && a.bytes_received == b.bytes_received &&
         std::abs(a.compute_seconds - b.compute_seconds) < 1e-4 && std::abs(a.wait_seconds - b.wait_seconds) < 1e-4;
}

}  // namespace

TEST_CASE("running totals: an island that counts from zero again goes on from what it had") {
  RunningTotals totals;
  const IslandId a("a");
  CHECK(same(totals.add(a, report(100, 1, 10)), report(100, 1, 10)));
  CHECK(same(totals.add(a, report(200, 2, 20)), report(200, 2, 20)));
  CHECK(totals.add(a, report(200, 2 - 1e-6, 20)).tokens == 200);  // rounding
  CHECK(same(totals.add(a, report(50, 0.5, 5)), report(250, 2.5, 25)));
  CHECK(same(totals.add(a, report(60, 0.6, 6)), report(260, 2.6, 26)));
  CHECK(same(totals.add(a, report(0, 0, 0)), report(260, 2.6, 26)));  // a third beginning
  CHECK(same(totals.add(a, report(10, 0.1, 1)), report(270, 2.7, 27)));
  CHECK(same(totals.add(IslandId("b"), report(1, 0.1, 1)), report(1, 0.1, 1)));
}

TEST_CASE("running totals: seconds that a clock took back are no new beginning") {
  RunningTotals totals;
  const IslandId a("a");
  totals.add(a, report(100, 60, 10));
  CHECK(totals.add(a, report(110, 58, 11)).tokens == 110);
  CHECK(totals.add(a, report(110, 57, 11)).bytes_sent == 11);
  CHECK(totals.add(a, report(110, 2, 11)).tokens == 220);
}

TEST_CASE("running totals: a coordinator that is restarted counts nothing twice, whether the agent went on or began again") {
  const IslandId a("a");
  RunningTotals before;
  before.add(a, report(100, 1, 10));
  const IslandReport total = before.add(a, report(40, 0.4, 4));
  CHECK(same(total, report(140, 1.4, 14)));
  RunningTotals on;
  on.restore(RunId("r"), a, before.carried(RunId("r"), a), total);
  CHECK(same(on.add(a, report(50, 0.5, 5)), report(150, 1.5, 15)));
  RunningTotals anew;
  anew.restore(RunId("r"), a, before.carried(RunId("r"), a), total);
  CHECK(anew.add(a, report(5, 0.05, 1)).tokens == 145);
}

TEST_CASE("running totals: an island that begins again and again with the largest numbers makes no sum that wraps, or is endless") {
  RunningTotals totals;
  const IslandId a("a");
  for (int i = 0; i < 20; ++i) {
    const IslandReport large = totals.add(a, report(kMaxCount, i % 3 == 0 ? -1e308 : 1e308, kMaxCount / 2));
    CHECK(large.tokens == kMaxCount);
    CHECK(large.bytes_received <= kMaxCount);
    CHECK(large.bytes_sent >= kMaxCount / 2);
    CHECK((large.compute_seconds >= 0 && large.compute_seconds <= 1e12));
    const IslandReport small = totals.add(a, report(0, 0, 0));
    CHECK(small.tokens == kMaxCount);
    CHECK((small.compute_seconds >= 0 && small.compute_seconds <= 1e12));
  }
}

}  // namespace of_running_totals_test
