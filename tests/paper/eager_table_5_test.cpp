// Eager updates (arXiv:2502.12996), Table 5, rows with H = 30: the bandwidth at which Streaming DiLoCo in four bits computes a share of
// the time, with an overlap of one inner step and of a whole outer step, against the forecast of a run.
#include <array>
#include <cmath>

#include "strategies/planning/forecast.hpp"
#include "strategies/planning/streaming_table_4.hpp"
#include "tests/catch.hpp"

using namespace atl;

namespace {

constexpr int kPoints = 50;  // of the paper's axis: 0.1 to 1,000 Gbit/s
double gbits_at(int point) { return std::pow(10.0, -1.0 + 4.0 * point / 49.0); }
int point_of(double gbits) { return static_cast<int>(std::lround((std::log10(gbits) + 1.0) * 49.0 / 4.0)); }

// Two islands; the agents' arithmetic takes no time, as in the paper's simulation.
ForecastQuestion question_of(std::uint32_t size, std::uint64_t overlap) {
  ForecastQuestion question;
  question.composition = compose(named_strategy("streaming-diloco").value()).value();
  question.composition.inner_steps = 30;
  question.composition.overlap_steps = overlap;
  question.total_steps = 30'000;
  const std::uint32_t fragments = kTable4Sizes[size].layers / 3;
  question.fragment_values.assign(fragments, static_cast<std::uint64_t>(kTable4Sizes[size].parameters / fragments));
  for (const char* name : {"a", "b"}) {
    question.islands.push_back({name, kTable4Sizes[size].step_seconds, 1, 1, 0.0});
  }
  return question;
}

// How many points of the axis ours lies above the printed one.
std::array<int, 5> points_apart(std::uint32_t size, std::uint64_t overlap, const std::array<double, 5>& printed) {
  std::array<int, 5> apart{};
  ForecastQuestion question = question_of(size, overlap);
  int point = 0;
  for (std::size_t share = 0; share < kTable4Shares.size(); ++share) {
    for (; point < kPoints; ++point) {
      for (ForecastIsland& island : question.islands) {
        island.uplink_bits_per_second = island.downlink_bits_per_second = gbits_at(point) * 1e9;
      }
      if (forecast(question).value().utilisation >= kTable4Shares[share]) {
        break;
      }
    }
    apart[share] = point - point_of(printed[share]);
  }
  return apart;
}

}  // namespace

TEST_CASE("Eager updates Table 5, H = 30, overlap of one inner step: 1 B from 80 % on and 10 B are within one grid point") {
  // At 50 % the paper needs 2.4 Gbit/s where half of the bytes of a period need 0.69: its layers wait one by one, ours a fragment at once,
  // and its cell lies above what its own simulation of Table 4 gives (0.95).
  CHECK(points_apart(0, 1, {2.4, 3.6, 4.3, 4.3, 4.3}) == std::array<int, 5>{-4, -1, 0, 1, 1});
  CHECK(points_apart(1, 1, {1.4, 2.4, 2.4, 3.0, 3.0}) == std::array<int, 5>{-1, 0, 1, 0, 1});
}

TEST_CASE(
    "Eager updates Table 5, H = 30, overlap of an outer step: what the bytes of a period need, within what four bits are counted as") {
  // τ = 29, the longest before a fragment is due again. At 10 B the paper prints its own volume of 3.35 bits a parameter over 24 s: 1.4;
  // our four bits with their scales are 4.125, which is one point more.
  CHECK(points_apart(1, 29, {0.7, 1.1, 1.4, 1.4, 1.4}) == std::array<int, 5>{2, 1, 1, 1, 2});
  // At 1 B it prints twice the volume of a period (2.0 at 90 %, where 3.35 bits over 3 s are 1.1, and 4.125 bits 1.24): no schedule of
  // these bytes needs that. At 100 B, which has more fragments than H, it prints less than half of that volume.
  CHECK(points_apart(0, 29, {1.1, 2.0, 2.0, 2.0, 2.4}) == std::array<int, 5>{-2, -3, -2, -2, -3});
}

TEST_CASE("a thin link under a long overlap is seen to fall behind, however few periods are simulated") {
  for (std::uint32_t size = 0; size < 2; ++size) {
    UtilisationQuestion question = table_4_question(size, 4);
    question.inner_steps = 30;
    question.overlap_steps = 29;
    for (const double share : {0.5, 0.8, 0.9, 0.95, 0.99}) {
      const double bound = sustained_bound_bits_per_second(question, share);
      question.link_bits_per_second = 0.99 * bound;
      CHECK(compute_utilisation(question).value() < share);
      question.link_bits_per_second = 1.3 * bound;
      CHECK(compute_utilisation(question).value() >= share);
    }
  }
}
