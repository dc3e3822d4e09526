// The outer step against LibTorch's own SGD with Nesterov momentum, an independent reference. The only test that includes
// torch (14 s of compile time); an executable of its own.
#include <torch/torch.h>
#undef CHECK  // torch's logging; the tests mean Catch's

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "strategies/aggregate.hpp"
#include "strategies/contribution.hpp"
#include "strategies/outer_optimizer.hpp"
#include "tests/catch.hpp"
#include "tests/mean.hpp"
#include "tests/outer_steps.hpp"
#include "transport/base/rng.hpp"

using namespace atl;

namespace {

constexpr std::size_t kCount = 1000;

std::vector<float> draw(Rng& rng, double size) {
  std::vector<float> values(kCount);
  for (float& value : values) {
    value = static_cast<float>(size * rng.normal());
  }
  return values;
}

torch::Tensor tensor_of(const std::vector<float>& values) { return torch::tensor(values, torch::kFloat32).clone(); }

// The largest difference, in units of float32's spacing at the larger of 1 and the values.
double difference(const torch::Tensor& reference, const std::vector<float>& ours) {
  const auto expected = reference.to(torch::kFloat64);
  const auto actual = tensor_of(ours).to(torch::kFloat64);
  return ((expected - actual).abs() / expected.abs().clamp_min(1.0)).max().item<double>() / 0x1p-23;
}

}  // namespace

TEST_CASE("outer step: the same history as torch.optim.SGD with Nesterov momentum", "[torch]") {
  struct Setting {
    double learning_rate;
    double momentum;
  };
  for (const Setting& setting : {Setting{0.7, 0.9}, Setting{0.4, 0.9}, Setting{1.0, 0.5}, Setting{0.1, 0.99}}) {
    Rng rng(21);
    std::vector<float> parameters = draw(rng, 1.0);
    std::vector<float> momentum(kCount);
    auto reference = tensor_of(parameters).set_requires_grad(true);
    torch::optim::SGD optimizer({reference}, torch::optim::SGDOptions(setting.learning_rate).momentum(setting.momentum).nesterov(true));
    for (int round = 0; round < 25; ++round) {
      const auto gradient = draw(rng, 0.01);
      REQUIRE(nesterov_step(gradient, setting.learning_rate, setting.momentum, {parameters, momentum}));
      reference.mutable_grad() = tensor_of(gradient);
      optimizer.step();
      INFO("η " << setting.learning_rate << ", μ " << setting.momentum << ", round " << round);
      // torch may fuse a product and a sum into one rounding: at most one spacing a step.
      REQUIRE(difference(reference.detach(), parameters) <= 1.0 + round);
    }
  }
}

TEST_CASE("outer step: the same as torch's plain SGD, bit for bit where nothing is rounded twice", "[torch]") {
  Rng rng(22);
  std::vector<float> parameters = draw(rng, 1.0);
  auto reference = tensor_of(parameters).set_requires_grad(true);
  torch::optim::SGD optimizer({reference}, torch::optim::SGDOptions(1.0));
  for (int round = 0; round < 10; ++round) {
    const auto gradient = draw(rng, 0.1);
    REQUIRE(sgd_step(gradient, 1.0, {parameters, {}}));
    reference.mutable_grad() = tensor_of(gradient);
    optimizer.step();
    REQUIRE(torch::equal(reference.detach(), tensor_of(parameters)));
  }
}

TEST_CASE("a whole DiLoCo run equals the same one written with torch alone", "[torch]") {
  // Two islands, least squares with SGD inside; the reference keeps everything in torch tensors, as diloco_simple does.
  constexpr int kInnerSteps = 5;
  Rng rng(23);
  const std::vector<std::vector<float>> targets{draw(rng, 1.0), draw(rng, 1.0)};
  std::vector<float> outer(kCount, 0.0F);
  std::vector<float> momentum(kCount);
  auto reference = torch::zeros({static_cast<std::int64_t>(kCount)}, torch::kFloat32).set_requires_grad(true);
  torch::optim::SGD outer_optimizer({reference}, torch::optim::SGDOptions(0.7).momentum(0.9).nesterov(true));
  const auto train = [&](torch::Tensor start, std::size_t island) {
    auto theta = start.detach().clone().set_requires_grad(true);
    torch::optim::SGD inner({theta}, torch::optim::SGDOptions(0.1));
    for (int step = 0; step < kInnerSteps; ++step) {
      inner.zero_grad();
      (0.5 * (theta - tensor_of(targets[island])).square().sum()).backward();
      inner.step();
    }
    return theta.detach();
  };
  const auto weights = contribution_weights(std::vector<std::uint64_t>{1, 1}, Weighting::tokens).value();
  for (int round = 0; round < 20; ++round) {
    std::vector<std::vector<float>> arenas;
    torch::Tensor sum = torch::zeros_like(reference);
    for (std::size_t island = 0; island < 2; ++island) {
      const auto local = train(tensor_of(outer), island);
      arenas.emplace_back(local.data_ptr<float>(), local.data_ptr<float>() + kCount);
      sum += reference.detach() - train(reference, island);
    }
    std::vector<std::span<const float>> contributions;
    for (auto& arena : arenas) {
      REQUIRE(form_outer_gradient(outer, arena));
      contributions.emplace_back(arena);
    }
    std::vector<float> mean(kCount);
    atl_test::weighted_mean(contributions, weights, mean);
    REQUIRE(nesterov_step(mean, 0.7, 0.9, {outer, momentum}));
    reference.mutable_grad() = sum / 2;
    outer_optimizer.step();
    REQUIRE(difference(reference.detach(), outer) <= 20.0 * (1 + round));
  }
  // And it went where it should: the targets' mean.
  const auto goal = (tensor_of(targets[0]) + tensor_of(targets[1])) / 2;
  CHECK((tensor_of(outer) - goal).norm().item<double>() < 0.2 * goal.norm().item<double>());
}
