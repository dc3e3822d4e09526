// CO2 (arXiv:2401.16265) as strategies/co2.hpp has it: its step by hand and its limits. Λ is ours, as said there.
#include "strategies/co2.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "strategies/composition.hpp"
#include "strategies/outer_optimizer.hpp"
#include "tests/catch.hpp"
#include "transport/base/rng.hpp"

using namespace atl;

namespace {

OuterOptimizer co2(double eta, double beta, double clip, bool penalty) {
  return {OuterOptimizerKind::clipped_momentum, eta, beta, 0.0, clip, penalty};
}

std::vector<float> drawn(Rng& rng, std::size_t count) {
  std::vector<float> values(count);
  std::ranges::generate(values, [&] { return static_cast<float>(rng.normal()); });
  return values;
}

double norm_of(std::span<const float> values) {
  double squares = 0;
  for (const float value : values) {
    squares += static_cast<double>(value) * static_cast<double>(value);
  }
  return std::sqrt(squares);
}

}  // namespace

TEST_CASE("CO2: the momentum is clipped, each value apart, and the clipped one is kept") {
  std::vector<float> x{0, 0, 0};
  std::vector<float> m{0, 0, 0};
  REQUIRE(outer_step(std::vector<float>{0.5F, 3, -3}, co2(1.0, 0.5, 1.0, false), {x, m}));
  CHECK(m == std::vector<float>{0.5F, 1, -1});
  CHECK(x == std::vector<float>{-0.5F, -1, 1});
  REQUIRE(outer_step(std::vector<float>{0, 0, 0.25F}, co2(1.0, 0.5, 1.0, false), {x, m}));
  CHECK(m == std::vector<float>{0.25F, 0.5F, -0.25F});  // from the clipped ones: 0.5·3 would still be clipped
  CHECK(x == std::vector<float>{-0.75F, -1.5F, 1.25F});
}

TEST_CASE("CO2: the gap compares how far the outer parameters moved with how far a mean goes") {
  CHECK(staleness_gap(2.0, 0.0) == 1.0);
  CHECK(staleness_gap(2.0, 6.0) == 4.0);
  CHECK(staleness_gap(0.0, 6.0) == 1.0);
  // By hand: |m| = 5, η = 0.5, |Δ| = 5, so Λ = 1 + 2.5/5 = 1.5; m <- 0.5·m + Δ/1.5.
  std::vector<float> x{0, 0};
  std::vector<float> m{3, 4};
  REQUIRE(outer_step(std::vector<float>{-4, 3}, co2(0.5, 0.5, 0.0, true), {x, m}));
  CHECK(m[0] == Approx(1.5 - 4 / 1.5));
  CHECK(m[1] == Approx(2 + 3 / 1.5));
  CHECK(x[0] == Approx(-0.5 * (1.5 - 4 / 1.5)));
}

TEST_CASE("CO2: the first step has no penalty, and where contributions stay alike the penalty tends to 2") {
  std::vector<float> x(4);
  std::vector<float> m(4);
  const std::vector<float> delta{1, 0, 0, 0};
  REQUIRE(outer_step(delta, co2(1.0, 0.5, 0.0, true), {x, m}));
  CHECK(m[0] == 1.0F);
  for (int round = 0; round < 100; ++round) {
    REQUIRE(outer_step(delta, co2(1.0, 0.5, 0.0, true), {x, m}));
  }
  CHECK(staleness_gap(1.0, norm_of(m)) == Approx(2.0).epsilon(1e-5));
  CHECK(m[0] == Approx(1.0).epsilon(1e-5));  // Δ / (Λ·(1 − β))
}

TEST_CASE("CO2: without clip and penalty it is momentum SGD, and without momentum the mean") {
  Rng rng(2);
  std::vector<float> x = drawn(rng, 100);
  const std::vector<float> first = x;
  std::vector<float> m(100);
  std::vector<double> momentum(100);
  std::vector<double> reference(x.begin(), x.end());
  for (int round = 0; round < 10; ++round) {
    const std::vector<float> delta = drawn(rng, 100);
    REQUIRE(outer_step(delta, co2(0.3, 0.8, 0.0, false), {x, m}));
    for (std::size_t i = 0; i < 100; ++i) {
      momentum[i] = 0.8 * momentum[i] + static_cast<double>(delta[i]);
      reference[i] -= 0.3 * momentum[i];
    }
  }
  for (std::size_t i = 0; i < 100; ++i) {
    REQUIRE(static_cast<double>(x[i]) == Approx(reference[i]).margin(1e-5));
  }
  std::vector<float> mean = first;
  std::vector<float> none(100);
  std::vector<float> to_zero = first;  // old − new of islands whose mean is 0
  REQUIRE(outer_step(to_zero, co2(1.0, 0.0, 0.0, false), {mean, none}));
  CHECK(mean == std::vector<float>(100, 0.0F));
}

TEST_CASE("CO2: encoded, of two members or of a shard's sum, the step is that of the plain mean") {
  Rng rng(5);
  const std::size_t count = 10'000;
  const std::vector<float> one = drawn(rng, count);
  const std::vector<float> other = drawn(rng, count);
  std::vector<float> mean(count);
  for (std::size_t i = 0; i < count; ++i) {
    mean[i] = (0.5F * one[i]) + 0.5F * other[i];
  }
  const std::vector<float> before = drawn(rng, count);
  const OuterOptimizer settings = co2(1.0, 0.5, 0.75, true);
  const auto after = [&](std::vector<EncodedTerm> terms) {
    std::vector<float> x(count);
    std::vector<float> m = before;
    REQUIRE(outer_step(ReducedResult{CodecSettings{}, terms}, settings, {x, m}));
    return x;
  };
  std::vector<float> x(count);
  std::vector<float> m = before;
  REQUIRE(outer_step(mean, settings, {x, m}));
  CHECK(after({{std::as_bytes(std::span(one)), 0.5F}, {std::as_bytes(std::span(other)), 0.5F}}) == x);
  CHECK(after({{std::as_bytes(std::span(mean)), 1.0F}}) == x);
}

TEST_CASE("co2 is the composition that its header says") {
  const Composition parts = compose(named_strategy("co2").value()).value();
  CHECK(parts.whole_period());
  CHECK_FALSE(parts.eager);
  CHECK(parts.outer == co2(1.0, 0.5, 1.0, true));
  CHECK(parts.inner_steps == 48);
  CHECK(parts.weighting == Weighting::uniform);
}
