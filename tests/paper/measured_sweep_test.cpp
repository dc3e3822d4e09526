// The forecast against a sweep that others measured (github.com/Adnan082/diloco-measured, 48 runs, median of three): DiLoCo of 30,846,720
// float32 parameters on four machines with one GPU each, links shaped to 50 Mbit/s … 5 Gbit/s, NCCL over TCP.
#include "strategies/planning/forecast.hpp"
#include "tests/catch.hpp"

using namespace atl;

namespace {

struct Link {
  double bits_per_second;        // as iperf3 measured it before the runs: 99.2 to 99.3 % of what it was shaped to
  double computing_per_cent[4];  // by H as below
};
constexpr Link kLinks[] = {{49.62e6, {0.07, 0.55, 2.41, 11.55}},
                           {198.5e6, {0.32, 2.48, 10.01, 36.09}},
                           {992.7e6, {1.74, 12.35, 36.01, 71.52}},
                           {4963.6e6, {7.76, 40.24, 68.10, 87.00}}};
// The stretch that was measured had one round in so many steps: with H = 32 four rounds in 140 steps, with H = 128 one in 180.
constexpr std::uint64_t kStepsOfARound[] = {1, 8, 35, 180};
constexpr double kStepSeconds = 0.0265;  // median of the steps without a round, 25.6 to 26.6 ms

double ours_per_cent(double bits_per_second, std::uint64_t steps, const AgentCosts& costs) {
  ForecastQuestion question;
  question.composition = compose(named_strategy("diloco").value()).value();
  question.composition.inner_steps = steps;
  question.total_steps = 20 * steps;
  question.fragment_values = {30'846'720};
  question.costs = costs;
  for (const char* name : {"a", "b", "c", "d"}) {
    question.islands.push_back({name, kStepSeconds, bits_per_second, bits_per_second, 0.0002});
  }
  return 100 * forecast(question).value().utilisation;
}

}  // namespace

TEST_CASE("a measured sweep from 200 Mbit/s to 5 Gbit/s is foretold within 0.9 to 1.15 of the measured share") {
  for (std::size_t link = 1; link < std::size(kLinks); ++link) {
    for (std::size_t h = 0; h < std::size(kStepsOfARound); ++h) {
      const double ratio = ours_per_cent(kLinks[link].bits_per_second, kStepsOfARound[h], {}) / kLinks[link].computing_per_cent[h];
      INFO(kLinks[link].bits_per_second << " bit/s, a round in " << kStepsOfARound[h] << " steps: " << ratio << " of the measured");
      CHECK(ratio >= 0.9);
      CHECK(ratio <= 1.15);
    }
  }
}

TEST_CASE("a measured sweep at 50 Mbit/s is foretold up to 1.31 times too well: a round took 36 to 38 s there, and its bytes need 29.8") {
  // Their all-reduce left a fifth of a link of 50 Mbit/s unused (not one of 1 Gbit/s); its messages, not the model of a round, say why.
  for (std::size_t h = 0; h < std::size(kStepsOfARound); ++h) {
    const double ratio = ours_per_cent(kLinks[0].bits_per_second, kStepsOfARound[h], {}) / kLinks[0].computing_per_cent[h];
    INFO("a round in " << kStepsOfARound[h] << " steps: " << ratio << " of the measured");
    CHECK(ratio >= 1.15);
    CHECK(ratio <= 1.31);
  }
  // With the bandwidth that their rounds had (1.4808 Gbit in 37.2 s) all are within the same bounds as on the other links.
  for (std::size_t h = 0; h < std::size(kStepsOfARound); ++h) {
    const double ratio = ours_per_cent(1.4808e9 / 37.2, kStepsOfARound[h], {}) / kLinks[0].computing_per_cent[h];
    INFO("a round in " << kStepsOfARound[h] << " steps: " << ratio << " of the measured");
    CHECK(ratio >= 0.9);
    CHECK(ratio <= 1.15);
  }
}
