// Eager updates (arXiv:2502.12996): the decomposition of strategies/eager.hpp against the paper's algorithm as it is written, and its
// limits.
#include "strategies/eager.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "strategies/composition.hpp"
#include "strategies/outer_optimizer.hpp"
#include "tests/catch.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/rng.hpp"

using namespace atl;

namespace {

constexpr std::size_t kWeights = 3;
using Values = std::array<double, kWeights>;

// One optimiser's own copy of the outer parameters, in double, as DiLoCo's public implementations step it.
struct Optimizer {
  OuterOptimizer settings;
  Values parameters;
  Values momentum = {};

  void step(const Values& gradient) {
    for (std::size_t i = 0; i < kWeights; ++i) {
      const double eta = settings.learning_rate;
      const double mu = settings.momentum;
      switch (settings.kind) {
        case OuterOptimizerKind::nesterov:
          momentum[i] = mu * momentum[i] + gradient[i];
          parameters[i] -= eta * (gradient[i] + mu * momentum[i]);
          break;
        case OuterOptimizerKind::heavy_ball:
          momentum[i] = mu * momentum[i] - eta * gradient[i];
          parameters[i] += momentum[i];
          break;
        default:
          parameters[i] -= eta * gradient[i];
      }
    }
  }
};

// What an island's H inner steps do: towards a minimum of its own, with noise that depends on island and round alone.
Values trained(const Values& start, std::size_t island, int round) {
  Rng rng(17, island * 1000 + static_cast<std::uint64_t>(round));
  Values after = start;
  for (std::size_t i = 0; i < kWeights; ++i) {
    const double minimum = static_cast<double>(island) - static_cast<double>(i);
    after[i] += 0.3 * (minimum - start[i]) + 0.05 * rng.normal();
  }
  return after;
}

Values minus(const Values& a, const Values& b) {
  Values difference;
  std::ranges::transform(a, b, difference.begin(), std::minus<>());
  return difference;
}

// The paper: each island has an optimiser of its own, fed with Δ̂_i(t) = w_i·Δ_i(t) + [Δ̄(t−1) − w_i·Δ_i(t−1)]. Where each island is after
// each round.
std::vector<std::vector<Values>> as_written(const OuterOptimizer& settings, const std::vector<double>& weights, int rounds) {
  const std::size_t islands = weights.size();
  std::vector<Optimizer> own(islands, Optimizer{settings, Values{1, 2, 3}});
  std::vector<Values> before(islands, Values{});  // Δ_i(t−1)
  Values mean{};                                  // Δ̄(t−1)
  std::vector<std::vector<Values>> history;
  for (int round = 1; round <= rounds; ++round) {
    std::vector<Values> delta;
    Values next{};
    for (std::size_t k = 0; k < islands; ++k) {
      delta.push_back(minus(own[k].parameters, trained(own[k].parameters, k, round)));
      for (std::size_t i = 0; i < kWeights; ++i) {
        next[i] += weights[k] * delta[k][i];
      }
    }
    history.emplace_back();
    for (std::size_t k = 0; k < islands; ++k) {
      Values hat;
      for (std::size_t i = 0; i < kWeights; ++i) {
        hat[i] = weights[k] * delta[k][i] + (mean[i] - weights[k] * before[k][i]);
      }
      own[k].step(hat);
      history.back().push_back(own[k].parameters);
    }
    before = delta;
    mean = next;
  }
  return history;
}

// Ours: one outer state for all, a round behind, and of each island one momentum of its own.
std::vector<std::vector<Values>> as_computed(const OuterOptimizer& settings, const std::vector<double>& weights, int rounds) {
  const std::size_t islands = weights.size();
  std::vector<float> outer{1, 2, 3};
  std::vector<float> momentum(has_momentum(settings.kind) ? kWeights : 0);
  std::vector<std::vector<float>> own(islands, std::vector<float>(momentum.size()));
  std::vector<std::vector<float>> before(islands);  // Δ_i(t−1)
  std::vector<Values> starts(islands, Values{1, 2, 3});
  std::vector<std::vector<Values>> history;
  for (int round = 1; round <= rounds; ++round) {
    std::vector<std::vector<float>> delta;
    for (std::size_t k = 0; k < islands; ++k) {
      const Values moved = minus(starts[k], trained(starts[k], k, round));
      delta.emplace_back(moved.begin(), moved.end());
    }
    if (round > 1) {  // the mean of the round before is there
      std::vector<EncodedTerm> terms;
      for (std::size_t k = 0; k < islands; ++k) {
        const auto bytes = std::as_bytes(std::span(before[k]));
        terms.push_back({bytes, static_cast<float>(weights[k])});
        REQUIRE(eager_absorb({CodecSettings{}, bytes, static_cast<float>(weights[k])}, settings, own[k]));
      }
      REQUIRE(outer_step(ReducedResult{CodecSettings{}, terms}, settings, {outer, momentum}));
    }
    history.emplace_back();
    for (std::size_t k = 0; k < islands; ++k) {
      std::vector<float> start(kWeights);
      const OwnContribution contribution{CodecSettings{}, std::as_bytes(std::span(delta[k])), static_cast<float>(weights[k])};
      REQUIRE(eager_start(contribution, settings, outer, own[k], start));
      std::ranges::copy(start, starts[k].begin());
      history.back().push_back(starts[k]);
    }
    before = delta;
  }
  return history;
}

double largest_difference(const std::vector<std::vector<Values>>& a, const std::vector<std::vector<Values>>& b) {
  double largest = 0;
  for (std::size_t round = 0; round < a.size(); ++round) {
    for (std::size_t k = 0; k < a[round].size(); ++k) {
      for (std::size_t i = 0; i < kWeights; ++i) {
        largest = std::max(largest, std::abs(a[round][k][i] - b[round][k][i]));
      }
    }
  }
  return largest;
}

}  // namespace

TEST_CASE("eager updates: one shared outer state and an own term are the paper's optimisers, one for each island") {
  for (const OuterOptimizer& settings :
       {OuterOptimizer{OuterOptimizerKind::nesterov, 0.4, 0.9}, OuterOptimizer{OuterOptimizerKind::heavy_ball, 0.7, 0.5},
        OuterOptimizer{OuterOptimizerKind::sgd, 1.0}}) {
    for (const std::vector<double>& weights : {std::vector<double>{1 / 3.0, 1 / 3.0, 1 / 3.0}, std::vector<double>{0.5, 0.25, 0.25}}) {
      const auto written = as_written(settings, weights, 300);
      const auto computed = as_computed(settings, weights, 300);
      INFO(name_of(settings.kind) << ", weight of the first " << weights[0]);
      CHECK(largest_difference(written, computed) < 2e-4);                  // of values around 1, after 300 rounds in float32
      CHECK(std::abs(written.back()[0][0] - written.back()[1][0]) > 1e-3);  // the islands are apart, as the own terms are
    }
  }
}

TEST_CASE("eager updates: alone it is DiLoCo, bit for bit") {
  Rng rng(3);
  const OuterOptimizer settings{OuterOptimizerKind::nesterov, 0.7, 0.9};
  std::vector<float> outer(1000, 1.0F);
  std::vector<float> momentum(1000);
  std::vector<float> own(1000);
  std::vector<float> diloco = outer;
  std::vector<float> diloco_momentum(1000);
  for (int round = 0; round < 20; ++round) {
    std::vector<float> delta(1000);
    std::ranges::generate(delta, [&] { return static_cast<float>(rng.normal()); });
    const std::array<EncodedTerm, 1> term{{{std::as_bytes(std::span(delta)), 1.0F}}};
    const OwnContribution contribution{CodecSettings{}, term[0].bytes, 1.0F};
    std::vector<float> start(1000);
    REQUIRE(eager_start(contribution, settings, outer, own, start));
    REQUIRE(outer_step(ReducedResult{CodecSettings{}, term}, settings, {diloco, diloco_momentum}));
    REQUIRE(start == diloco);
    // A round later the mean is there, which is its own contribution.
    REQUIRE(outer_step(ReducedResult{CodecSettings{}, term}, settings, {outer, momentum}));
    REQUIRE(eager_absorb(contribution, settings, own));
    REQUIRE(own == momentum);
  }
}

TEST_CASE("eager updates: by hand, with codecs, without a contribution, and where they are impossible") {
  const std::vector<float> delta{1, -2};
  const std::vector<float> outer{10, 20};
  std::vector<float> own{0.5F, 0};
  std::vector<float> start(2);
  const OwnContribution half{CodecSettings{}, std::as_bytes(std::span(delta)), 0.5F};
  // g = (0.5, −1); m = 0.9·v + g = (0.95, −1); d = g + 0.9·m = (1.355, −1.9); start = outer − 0.4·d.
  REQUIRE(eager_start(half, {OuterOptimizerKind::nesterov, 0.4, 0.9}, outer, own, start));
  CHECK(start[0] == Approx(10 - 0.4 * 1.355));
  CHECK(start[1] == Approx(20 + 0.4 * 1.9));
  REQUIRE(eager_absorb(half, {OuterOptimizerKind::nesterov, 0.4, 0.9}, own));
  CHECK(own[0] == Approx(0.95));
  CHECK(own[1] == Approx(-1));
  // It contributed nothing: the own momentum decays.
  REQUIRE(eager_absorb({CodecSettings{}, {}, 0.0F}, {OuterOptimizerKind::nesterov, 0.4, 0.9}, own));
  CHECK(own[0] == Approx(0.9 * 0.95));
  REQUIRE(eager_start(half, {OuterOptimizerKind::sgd, 1.0, 0.0}, outer, {}, start));
  CHECK(start == std::vector<float>{9.5F, 21});
  // Buffers go on from the others' mean.
  const std::vector<BufferRange> buffers{{1, 1, BufferShare::mean}};
  REQUIRE(eager_start({CodecSettings{}, half.bytes, 0.5F, buffers}, {OuterOptimizerKind::sgd, 1.0, 0.0}, outer, {}, start));
  CHECK(start == std::vector<float>{9.5F, 20});

  Rng rng(4);
  for (const CodecKind kind : {CodecKind::bf16, CodecKind::int8, CodecKind::fp4}) {
    const CodecSettings codec{kind, 64, Rounding::nearest};
    std::vector<float> values(9000);
    std::ranges::generate(values, [&] { return static_cast<float>(rng.normal()); });
    Bytes encoded(encoded_bytes(codec, values.size()));
    REQUIRE(encode(codec, values, encoded));
    std::vector<float> decoded(9000);
    REQUIRE(decode(codec, encoded, decoded));
    const std::vector<float> zeros(9000);
    std::vector<float> from_encoded(9000);
    std::vector<float> from_decoded(9000);
    REQUIRE(eager_start({codec, encoded, 0.25F}, {}, zeros, zeros, from_encoded));
    REQUIRE(eager_start({CodecSettings{}, std::as_bytes(std::span(decoded)), 0.25F}, {}, zeros, zeros, from_decoded));
    CHECK(from_encoded == from_decoded);
  }
  CHECK_FALSE(eager_start(half, {OuterOptimizerKind::clipped_momentum, 0.4, 0.9}, outer, own, start));
  CHECK_FALSE(eager_start(half, {OuterOptimizerKind::adopt}, outer, {}, start));
  CHECK_FALSE(eager_start(half, {OuterOptimizerKind::nesterov, 0.4, 0.9}, outer, {}, start));
  CHECK_FALSE(eager_start({CodecSettings{}, half.bytes.first(4), 0.5F}, {OuterOptimizerKind::sgd, 1.0, 0.0}, outer, {}, start));
  const std::vector<float> huge{3e38F, -3e38F};
  CHECK_FALSE(
      eager_start({CodecSettings{}, std::as_bytes(std::span(huge)), 1.0F}, {OuterOptimizerKind::nesterov, 0.7, 0.9}, huge, own, start));
}

TEST_CASE("eager-diloco is the composition that its header says") {
  const Composition parts = compose(named_strategy("eager-diloco").value()).value();
  CHECK(parts.whole_period());
  CHECK(parts.eager);
  CHECK(parts.inner_steps == 30);
  CHECK(parts.outer.kind == OuterOptimizerKind::nesterov);
  CHECK(parts.outer.learning_rate == 0.4);
  CHECK(parts.codec.kind == CodecKind::f32);
}
