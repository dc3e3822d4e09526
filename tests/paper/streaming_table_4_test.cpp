// Streaming DiLoCo (arXiv:2501.18512), Table 4: the bandwidth needed to compute a given share of the time.
#include "strategies/planning/streaming_table_4.hpp"

#include <cstdlib>

#include "tests/catch.hpp"

using namespace atl;

TEST_CASE("Streaming DiLoCo Table 4 is reproduced: 68 of 75 cells exactly, all within one grid point") {
  const std::vector<Table4Cell> cells = streaming_table_4().value();
  REQUIRE(cells.size() == 75);
  int exact = 0;
  for (const Table4Cell& cell : cells) {
    INFO(kTable4Sizes[cell.size].name << ", " << kTable4Methods[cell.method] << ", " << kTable4Shares[cell.share] << ": " << cell.ours_gbits
                                      << " Gbit/s, printed " << cell.printed_gbits);
    exact += cell.points_apart == 0 ? 1 : 0;
    CHECK(std::abs(cell.points_apart) <= 1);
  }
  CHECK(exact >= 68);
}

TEST_CASE("no schedule beats the sustained bound, and enough overlap comes close to it") {
  UtilisationQuestion q = table_4_question(0, 3);
  for (const double share : {0.5, 0.9, 0.99}) {
    q.link_bits_per_second = 0.99 * sustained_bound_bits_per_second(q, share);
    CHECK(compute_utilisation(q).value() < share);
  }
  q.overlap_steps = 50;
  q.link_bits_per_second = 1.1 * sustained_bound_bits_per_second(q, 1.0);
  CHECK(compute_utilisation(q).value() > 0.99);
}

TEST_CASE("impossible utilisation questions are refused by name") {
  UtilisationQuestion q = table_4_question(0, 3);
  q.overlap_steps = q.inner_steps;
  CHECK(compute_utilisation(q).error().why == "overlap_steps must be less than inner_steps");
  q = table_4_question(0, 3);
  q.fragments = 25;
  CHECK(compute_utilisation(q).error().code == Code::invalid_argument);
  q = table_4_question(0, 0);
  q.link_bits_per_second = 0;
  CHECK(compute_utilisation(q).error().code == Code::invalid_argument);
}
