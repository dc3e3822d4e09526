// Goodput under interruptions, in the settings of Decoupled DiLoCo (arXiv:2604.21428). The printed figures reached us second-hand.
#include "strategies/planning/goodput.hpp"

#include <cmath>

#include "tests/catch.hpp"

using namespace atl;

namespace {

constexpr double kYear = 365.0 * 24 * 3600;

}  // namespace

TEST_CASE("goodput: one job alone reaches its time up over time up and away", "[goodput]") {
  for (const double chips : {150e3, 1.2e6}) {
    for (const double pause : {5.0, 23.0, 80.0}) {
      CAPTURE(chips, pause);
      const double up = kYear / chips;
      CHECK(simulate_goodput({.islands = 1, .chips = chips, .pause_seconds = pause, .straggler_factor = 0}) ==
            Approx(up / (up + pause)).epsilon(0.02));
    }
  }
  CHECK(simulate_goodput({.islands = 4, .chips = 1}) > 0.9999);
}

TEST_CASE("goodput: islands whose waiting the overlap hides are as good as each alone, where all wait for all, worse than that",
          "[goodput]") {
  for (const GoodputCell& cell : goodput_table()) {
    CAPTURE(kGoodputMethods[cell.method].name, kGoodputChips[cell.chips], cell.ours, cell.rule, cell.waiting);
    CHECK(std::abs(cell.ours - cell.rule) < 0.04);
    if (kGoodputMethods[cell.method].islands > 1) {
      CHECK(cell.waiting < cell.ours);
    } else {
      CHECK(cell.waiting == cell.ours);  // nobody to wait for
    }
  }
}

TEST_CASE("goodput: with a quorum of one islands lose what their own interruptions cost, and nothing more", "[goodput]") {
  for (const GoodputCell& cell : goodput_table()) {
    CAPTURE(kGoodputMethods[cell.method].name, kGoodputChips[cell.chips], cell.quorum, cell.rule, cell.ours);
    CHECK(std::abs(cell.quorum - cell.rule) < 0.005);
    CHECK(cell.quorum > cell.ours - 0.005);
    if (kGoodputChips[cell.chips] == 1.2e6 && kGoodputMethods[cell.method].islands == 8) {
      CHECK(cell.quorum >= 0.88);
    }
    if (kGoodputChips[cell.chips] == 1.2e6 && kGoodputMethods[cell.method].islands == 16) {
      CHECK(cell.quorum >= 0.945);  // 420 s up, 23 s away: 0.948, whatever the others do
    }
  }
  // Where not even the quorum is there the others train on all the same.
  const double all = simulate_goodput({.islands = 8, .chips = 1.2e6, .quorum = 8});
  CHECK(all == Approx(simulate_goodput({.islands = 8, .chips = 1.2e6, .quorum = 1})).epsilon(0.01));
}

TEST_CASE("goodput: the second-hand table within five points, its order kept", "[goodput]") {
  double before = 0;
  for (const GoodputCell& cell : goodput_table()) {
    CAPTURE(kGoodputMethods[cell.method].name, kGoodputChips[cell.chips], cell.printed, cell.ours);
    CHECK(std::abs(cell.ours - cell.printed) < 0.05);
    if (cell.chips > 0) {
      CHECK(cell.ours < before);  // more chips, more interruptions
    }
    before = cell.ours;
  }
}

TEST_CASE("goodput: an island that is away costs the others what the overlap does not hide", "[goodput]") {
  // One interruption of the two is rarely waited for: with a long overlap nothing is lost, without any it is up to the patience.
  GoodputQuestion question{.islands = 2, .chips = 600e3, .overlap_steps = 0, .straggler_factor = 2};
  const double none = simulate_goodput(question);
  question.overlap_steps = 24;
  const double long_overlap = simulate_goodput(question);
  question.straggler_factor = 1;
  question.overlap_steps = 0;
  const double no_patience = simulate_goodput(question);
  CHECK(none < long_overlap - 0.03);
  CHECK(no_patience == Approx(long_overlap).epsilon(0.02));
}
