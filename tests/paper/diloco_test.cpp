// DiLoCo, arXiv:2311.08105: its limits (§2) and the outer step's figures, on models of one to three weights.
#include <array>
#include <cmath>
#include <span>
#include <vector>

#include "strategies/aggregate.hpp"
#include "strategies/contribution.hpp"
#include "strategies/outer_optimizer.hpp"
#include "tests/catch.hpp"
#include "tests/mean.hpp"

using namespace atl;

namespace {

using Weights = std::vector<float>;

// One outer round of Algorithm 1: the islands' local parameters in, the outer state stepped.
void outer_round(const std::vector<Weights>& locals, const std::vector<std::uint64_t>& tokens, const OuterOptimizer& optimizer,
                 Weights& outer, Weights& momentum) {
  std::vector<Weights> arenas = locals;
  std::vector<std::span<const float>> contributions;
  for (Weights& arena : arenas) {
    REQUIRE(form_outer_gradient(outer, arena));
    contributions.emplace_back(arena);
  }
  const auto weights = contribution_weights(tokens, Weighting::tokens).value();
  Weights mean(outer.size());
  atl_test::weighted_mean(contributions, weights, mean);
  REQUIRE(outer_step(mean, optimizer, {outer, momentum}));
}

// The gradient of 1/2·Σ curvature·(θ − target)², an island's loss.
struct Quadratic {
  std::array<float, 3> target;
  std::array<float, 3> curvature{1.0F, 0.5F, 2.0F};
  [[nodiscard]] float gradient(std::size_t i, float theta) const { return curvature[i] * (theta - target[i]); }
};

Weights train(const Quadratic& loss, Weights theta, float learning_rate, int steps) {
  for (int step = 0; step < steps; ++step) {
    for (std::size_t i = 0; i < theta.size(); ++i) {
      theta[i] -= learning_rate * loss.gradient(i, theta[i]);
    }
  }
  return theta;
}

constexpr OuterOptimizer kDiloco{OuterOptimizerKind::nesterov, 0.7, 0.9};
constexpr OuterOptimizer kAveraging{OuterOptimizerKind::sgd, 1.0, 0.0};

}  // namespace

TEST_CASE("DiLoCo §2: with SGD of rate 1 it is federated averaging") {
  const std::array<Quadratic, 2> islands{Quadratic{{1, 2, 3}}, Quadratic{{-2, 0, 1}}};
  Weights outer{0.5F, -0.5F, 0.25F};
  Weights momentum(3);
  for (int round = 0; round < 20; ++round) {
    const std::vector<Weights> locals{train(islands[0], outer, 0.1F, 5), train(islands[1], outer, 0.1F, 5)};
    outer_round(locals, {10, 30}, kAveraging, outer, momentum);
    for (std::size_t i = 0; i < 3; ++i) {
      const double average = 0.25 * static_cast<double>(locals[0][i]) + 0.75 * static_cast<double>(locals[1][i]);
      REQUIRE(static_cast<double>(outer[i]) == Approx(average).margin(1e-6));
    }
  }
}

TEST_CASE("DiLoCo §2: one round of averaging is a model soup") {
  const std::vector<Weights> locals{{1, 4, -2}, {3, 0, -4}, {2, 5, 0}, {2, -1, -2}};
  Weights outer{0, 0, 0};
  Weights momentum(3);
  outer_round(locals, {7, 7, 7, 7}, kAveraging, outer, momentum);
  CHECK(outer == Weights{2, 2, -2});  // exact: quarters of small integers
}

TEST_CASE("DiLoCo §2: with one inner step of SGD it is large-batch data parallelism") {
  const std::array<Quadratic, 4> islands{Quadratic{{1, 2, 3}}, Quadratic{{-2, 0, 1}}, Quadratic{{0, 0, 0}}, Quadratic{{4, -4, 2}}};
  Weights outer{0.5F, -0.5F, 0.25F};
  Weights momentum(3);
  std::vector<double> large_batch(outer.begin(), outer.end());
  for (int step = 0; step < 50; ++step) {
    std::vector<Weights> locals;
    for (const Quadratic& island : islands) {
      locals.push_back(train(island, outer, 0.1F, 1));
    }
    outer_round(locals, {5, 5, 5, 5}, kAveraging, outer, momentum);
    for (std::size_t i = 0; i < 3; ++i) {
      double gradient = 0;
      for (const Quadratic& island : islands) {
        gradient += static_cast<double>(island.curvature[i]) * (large_batch[i] - static_cast<double>(island.target[i])) / 4;
      }
      large_batch[i] -= static_cast<double>(0.1F) * gradient;
      REQUIRE(static_cast<double>(outer[i]) == Approx(large_batch[i]).margin(1e-5));
    }
  }
}

TEST_CASE("DiLoCo outer step: the first moves by 1.33 times the mean displacement") {
  Weights outer{10, -3, 0};
  Weights momentum(3);
  // Two islands that trained on equally many tokens moved by (1, -2, 0) and (3, 0, 0.5): (2, -1, 0.25) on average.
  outer_round({{11, -5, 0}, {13, -3, 0.5F}}, {4, 4}, kDiloco, outer, momentum);
  CHECK(outer[0] == Approx(10 + 1.33 * 2));
  CHECK(outer[1] == Approx(-3 - 1.33 * 1));
  CHECK(outer[2] == Approx(1.33 * 0.25));
}

TEST_CASE("DiLoCo outer step: a constant displacement grows to 7 times itself") {
  Weights outer{0};
  Weights momentum{0};
  float before = 0;
  double previous = 0;
  for (int round = 0; round < 200; ++round) {
    before = outer[0];
    outer_round({{outer[0] + 0.5F}}, {1}, kDiloco, outer, momentum);
    const double moved = static_cast<double>(outer[0] - before) / 0.5;
    REQUIRE(moved > previous - 1e-3);  // it only ever speeds up
    previous = moved;
  }
  CHECK(previous == Approx(0.7 / (1 - 0.9)).epsilon(1e-3));
}

TEST_CASE("DiLoCo outer step: without momentum and with rate 1 it is the mean of the parameters") {
  Weights outer{1, 1, 1};
  Weights momentum(3);
  outer_round({{2, -4, 0}, {4, 8, 1}}, {1, 1}, {OuterOptimizerKind::nesterov, 1.0, 0.0}, outer, momentum);
  CHECK(outer == Weights{3, 2, 0.5F});
}

TEST_CASE("DiLoCo outer step: a history of three rounds by hand") {
  // η = 0.5, μ = 0.5, one island; every number below is exact in binary.
  Weights outer{8, 0, -4};
  Weights momentum(3);
  const OuterOptimizer optimizer{OuterOptimizerKind::nesterov, 0.5, 0.5};
  const auto round = [&](const Weights& gradient) { REQUIRE(outer_step(gradient, optimizer, {outer, momentum})); };
  round({4, -8, 0});  // b = (4, -8, 0); d = g + b/2 = (6, -12, 0); θ -= d/2
  CHECK(momentum == Weights{4, -8, 0});
  CHECK(outer == Weights{5, 6, -4});
  round({2, 0, 16});  // b = (4, -4, 16); d = (4, -2, 24)
  CHECK(momentum == Weights{4, -4, 16});
  CHECK(outer == Weights{3, 7, -16});
  round({0, 0, -8});  // b = (2, -2, 0); d = (1, -1, -8)
  CHECK(momentum == Weights{2, -2, 0});
  CHECK(outer == Weights{2.5F, 7.5F, -12});
}

TEST_CASE("DiLoCo: a history of three rounds of two islands by hand, weighted by tokens") {
  // One weight, outer SGD with momentum as the paper's, but η = 0.5, μ = 0.5 so that every number is exact in binary.
  Weights outer{0};
  Weights momentum{0};
  const OuterOptimizer optimizer{OuterOptimizerKind::nesterov, 0.5, 0.5};
  outer_round({{4}, {8}}, {3, 1}, optimizer, outer, momentum);  // Δ = -(3·4 + 8)/4 = -5; b = -5; d = -7.5
  CHECK(outer == Weights{3.75F});
  outer_round({{3.75F}, {11.75F}}, {1, 3}, optimizer, outer, momentum);  // Δ = -(0 + 3·8)/4 = -6; b = -8.5; d = -10.25
  CHECK(outer == Weights{8.875F});
  CHECK(momentum == Weights{-8.5F});
  outer_round({{0.875F}, {8.875F}}, {1, 1}, optimizer, outer, momentum);  // Δ = 4; b = -0.25; d = 3.875
  CHECK(outer == Weights{6.9375F});
  CHECK(momentum == Weights{-0.25F});
}

TEST_CASE("DiLoCo §6.1: non-uniform shards are weighted by what was trained on them") {
  Weights outer{0};
  Weights momentum{0};
  outer_round({{10}, {20}}, {0, 500}, kAveraging, outer, momentum);  // the first trained on nothing
  CHECK(outer == Weights{20});
}

TEST_CASE("DiLoCo §6.2: the norm of the mean of k independent outer gradients shrinks as 1/sqrt(k)") {
  // k orthogonal outer gradients of norm 1.
  for (const std::size_t k : {4U, 16U, 64U}) {
    std::vector<Weights> gradients(k, Weights(k));
    std::vector<std::span<const float>> contributions;
    for (std::size_t i = 0; i < k; ++i) {
      gradients[i][i] = 1.0F;
      contributions.emplace_back(gradients[i]);
    }
    Weights mean(k);
    atl_test::weighted_mean(contributions, contribution_weights(std::vector<std::uint64_t>(k, 1), Weighting::uniform).value(), mean);
    CHECK(summarise_contribution(mean).value().norm == Approx(1.0 / std::sqrt(static_cast<double>(k))));
  }
}
