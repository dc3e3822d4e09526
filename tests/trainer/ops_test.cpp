// The processor's kernels against LibTorch's own operations, AdamW against torch.optim's, the model against itself.
#include <torch/torch.h>

#include <cmath>
#include <set>

#undef CHECK  // LibTorch's logging has one, too
#include "agent/island_link/arena.hpp"
#include "agent/island_link/model_manifest.hpp"
#include "agent/trainer/kernels/adamw.hpp"
#include "agent/trainer/kernels/ops.hpp"
#include "agent/trainer/language/model.hpp"
#include "tests/catch.hpp"

using namespace atl;

namespace {

at::Tensor random(std::vector<std::int64_t> shape) { return at::randn(shape); }

double difference(const at::Tensor& a, const at::Tensor& b) {
  REQUIRE(a.sizes() == b.sizes());
  return (a - b).abs().max().item<double>() / (1.0 + b.abs().max().item<double>());
}

// Value and gradients of two functions of the same inputs agree.
template <typename Ours, typename Theirs>
void compare(const std::vector<at::Tensor>& inputs, const Ours& ours, const Theirs& theirs) {
  std::vector<at::Tensor> first;
  std::vector<at::Tensor> second;
  for (const at::Tensor& input : inputs) {
    first.push_back(input.clone().set_requires_grad(true));
    second.push_back(input.clone().set_requires_grad(true));
  }
  const at::Tensor a = ours(first);
  const at::Tensor b = theirs(second);
  CHECK(difference(a.detach(), b.detach()) < 2e-6);
  const at::Tensor weights = random(b.sizes().vec());
  (a * weights).sum().backward();
  (b * weights).sum().backward();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    CHECK(difference(first[i].grad(), second[i].grad()) < 5e-6);
  }
}

}  // namespace

TEST_CASE("RMSNorm computes what its composition does, forward and backward") {
  torch::manual_seed(1);
  for (const auto& [rows, width] : std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {3, 7}, {17, 16}, {700, 40}, {1025, 128}}) {
    compare(
        {random({rows, width}), random({width})}, [](const auto& x) { return ops::rms_norm(x[0], x[1]); },
        [](const auto& x) { return ops::composed::rms_norm(x[0], x[1]); });
  }
}

TEST_CASE("SwiGLU computes what its composition does, forward and backward") {
  torch::manual_seed(2);
  for (const auto& [rows, width] : std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {3, 7}, {200, 352}}) {
    compare(
        {10.0 * random({rows, 2 * width})}, [](const auto& x) { return ops::swiglu(x[0]); },
        [](const auto& x) { return ops::composed::swiglu(x[0]); });
  }
}

TEST_CASE("causal attention computes what its composition does, forward and backward") {
  torch::manual_seed(3);
  struct Case {
    std::int64_t sequences, length, heads, head_width;
  };
  for (const Case& c :
       {Case{1, 1, 1, 2}, Case{2, 5, 3, 4}, Case{1, 64, 2, 8}, Case{2, 65, 2, 6}, Case{3, 128, 4, 32}, Case{1, 200, 1, 64}}) {
    const ops::Rotary rotary = ops::rotary(c.length, c.head_width, at::kCPU);
    compare(
        {random({c.sequences * c.length, 3 * c.heads * c.head_width})},
        [&](const auto& x) { return ops::attention(x[0], c.length, c.heads, rotary); },
        [&](const auto& x) { return ops::composed::attention(x[0], c.length, c.heads, rotary); });
  }
}

TEST_CASE("the loss computes what its composition does, forward and backward") {
  torch::manual_seed(4);
  for (const auto& [rows, classes] : std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 2}, {5, 17}, {600, 256}}) {
    const at::Tensor targets = at::randint(classes, {rows}, at::kLong);
    // `+ 0`: the processor's version may overwrite what it is given.
    compare(
        {5.0 * random({rows, classes})}, [&](const auto& x) { return ops::cross_entropy(x[0] + 0, targets); },
        [&](const auto& x) { return ops::composed::cross_entropy(x[0], targets); });
  }
}

TEST_CASE("what is not finite stays so through the kernels") {
  const float nan = std::nanf("");
  at::Tensor logits = at::zeros({4, 20});
  logits[2][19] = nan;
  CHECK(std::isnan(ops::cross_entropy(logits, at::zeros({4}, at::kLong)).item<float>()));
  at::Tensor gate_up = at::zeros({1, 40});
  gate_up[0][3] = nan;
  CHECK(std::isnan(ops::swiglu(gate_up)[0][3].item<float>()));
  // LibTorch's own fused attention answers a query that is not finite with zeros: then the gradient tells.
  for (const std::int64_t place : {1, 9, 17}) {
    INFO((place == 1 ? "query" : place == 9 ? "key" : "value"));
    at::Tensor qkv = at::ones({8, 24});
    qkv[3][place] = nan;
    qkv.set_requires_grad(true);
    const at::Tensor sum = ops::attention(qkv, 8, 2, ops::rotary(8, 4, at::kCPU)).sum();
    sum.backward();
    CHECK_FALSE((std::isfinite(sum.item<float>()) && std::isfinite(qkv.grad().sum().item<float>())));
    if (TORCH_VERSION_MAJOR < 2 || place == 17) {
      CHECK_FALSE(std::isfinite(sum.item<float>()));
    }
  }
}

TEST_CASE("AdamW over flat memory takes the steps of LibTorch's AdamW") {
  torch::manual_seed(5);
  const std::int64_t count = 1003;
  at::Tensor theirs = random({count}).set_requires_grad(true);
  at::Tensor ours = theirs.detach().clone();
  at::Tensor first = at::zeros({count});
  at::Tensor second = at::zeros({count});
  torch::optim::AdamW optimizer({theirs}, torch::optim::AdamWOptions(1e-2).betas({0.9, 0.95}).eps(1e-8).weight_decay(0.1));
  const auto span = [](at::Tensor& tensor) { return std::span<float>(tensor.data_ptr<float>(), static_cast<std::size_t>(tensor.numel())); };
  for (std::uint64_t step = 1; step <= 30; ++step) {
    at::Tensor gradient = random({count});
    theirs.mutable_grad() = gradient.clone();
    optimizer.step();
    adamw_step({1e-2, 0.1, 0.9, 0.95, 1e-8, step, 1.0F}, {span(ours), span(gradient), span(first), span(second)});
    REQUIRE(difference(ours, theirs.detach()) < 1e-5);
  }
  at::Tensor values = random({100'003});
  CHECK(std::sqrt(sum_of_squares(span(values))) == Approx(values.to(at::kDouble).norm().item<double>()).epsilon(1e-12));
}

TEST_CASE("the model's leaves are its flat parameters, all of them once, and gradients reach each") {
  for (const bool tied : {false, true}) {
    const island_link::Model sizes = island_link::checked_model({2, 32, 4, 0, 50, tied}).value();
    CHECK(sizes.feed_forward == 96);
    const island_link::Manifest manifest = Model::manifest(sizes);
    REQUIRE(island_link::check_manifest(manifest).ok());
    const auto count = static_cast<std::int64_t>(island_link::elements(manifest.parameters));
    const at::Tensor flat = at::empty({count});
    Model model(sizes, 16, flat);
    model.initialize(3);
    std::int64_t at = 0;
    for (const Model::Leaf& leaf : model.leaves()) {
      CHECK(leaf.offset == at);
      CHECK(leaf.tensor.data_ptr<float>() == flat.data_ptr<float>() + at);
      at += leaf.tensor.numel();
    }
    CHECK(at == count);
    const at::Tensor tokens = at::randint(50, {3, 17}, at::kLong);
    const at::Tensor loss = model.loss(tokens);
    CHECK(loss.item<double>() == Approx(std::log(50.0)).margin(0.3));
    loss.backward();
    for (const Model::Leaf& leaf : model.leaves()) {
      CHECK(leaf.tensor.grad().abs().max().item<double>() > 0.0);
    }
    // Nothing looks ahead: a later token does not change earlier logits.
    const at::NoGradGuard no_gradient;
    at::Tensor input = tokens.narrow(1, 0, 16).contiguous();
    const at::Tensor before = model.logits(input).view({3, 16, 50}).narrow(1, 0, 15).clone();
    input.select(1, 15).add_(1).remainder_(50);
    const at::Tensor after = model.logits(input).view({3, 16, 50}).narrow(1, 0, 15);
    CHECK(at::equal(before, after));
  }
}

TEST_CASE("the flat gradient is that of finite differences") {
  const island_link::Model sizes = island_link::checked_model({1, 8, 2, 16, 11, false}).value();
  const auto count = static_cast<std::int64_t>(island_link::elements(Model::manifest(sizes).parameters));
  const at::Tensor flat = at::empty({count});
  Model model(sizes, 6, flat);
  model.initialize(3);
  flat.mul_(10.0);  // so that nothing is small
  torch::manual_seed(6);
  const at::Tensor tokens = at::randint(11, {2, 7}, at::kLong);
  model.loss(tokens).backward();
  const at::NoGradGuard no_gradient;
  int checked = 0;
  for (const Model::Leaf& leaf : model.leaves()) {
    for (std::int64_t i = 0; i < leaf.tensor.numel(); i += 1 + leaf.tensor.numel() / 7) {
      float& value = flat.data_ptr<float>()[leaf.offset + i];
      const float kept = value;
      value = kept + 1e-3F;
      const double up = model.loss(tokens).item<double>();
      value = kept - 1e-3F;
      const double down = model.loss(tokens).item<double>();
      value = kept;
      CHECK((up - down) / 2e-3 == Approx(leaf.tensor.grad().view({-1})[i].item<double>()).margin(3e-3).epsilon(0.03));
      ++checked;
    }
  }
  CHECK(checked > 40);
}
