// The language model's operations against their definitions, AdamW against torch.optim's, the model against itself.
#include <torch/torch.h>

#include <cmath>
#include <set>

#undef CHECK  // LibTorch's logging has one, too
#include "agent/island_link/arena.hpp"
#include "agent/island_link/model_manifest.hpp"
#include "agent/trainer/adamw.hpp"
#include "agent/trainer/language/model.hpp"
#include "agent/trainer/ops.hpp"
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

TEST_CASE("RMSNorm, SwiGLU and the loss are as they are defined, forward and backward") {
  torch::manual_seed(1);
  for (const auto& [rows, width] : std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {3, 7}, {17, 16}, {700, 40}, {1025, 128}}) {
    compare(
        {random({rows, width}), random({width})}, [](const auto& x) { return ops::rms_norm(x[0], x[1]); },
        [](const auto& x) { return x[0] / at::sqrt((x[0] * x[0]).mean(-1, true) + 1e-5) * x[1]; });
    compare(
        {10.0 * random({rows, 2 * width})}, [](const auto& x) { return ops::swiglu(x[0]); },
        [width = width](const auto& x) {
          const at::Tensor gate = x[0].narrow(1, 0, width);
          return gate / (1.0 + at::exp(-gate)) * x[0].narrow(1, width, width);
        });
    const at::Tensor targets = at::randint(width, {rows}, at::kLong);
    compare(
        {5.0 * random({rows, width})}, [&](const auto& x) { return ops::cross_entropy(x[0], targets); },
        [&](const auto& x) { return (at::logsumexp(x[0], {1}) - x[0].gather(1, targets.unsqueeze(1)).squeeze(1)).mean(); });
  }
}

TEST_CASE("causal attention with rotary positions is as it is defined, forward and backward") {
  torch::manual_seed(3);
  struct Case {
    std::int64_t sequences, length, heads, head_width;
  };
  for (const Case& c :
       {Case{1, 1, 1, 2}, Case{2, 5, 3, 4}, Case{1, 64, 2, 8}, Case{2, 65, 2, 6}, Case{3, 128, 4, 32}, Case{1, 200, 1, 64}}) {
    const ops::Rotary rotary = ops::rotary(c.length, c.head_width, at::kCPU);
    // Of pairs (i, i + D/2), each turned by its angle as a complex number; weights by exp, none of what comes later.
    const auto turned = [&](const at::Tensor& x) {
      const std::vector<at::Tensor> halves = x.chunk(2, 3);
      const at::Tensor z = at::complex(halves[0], halves[1]) * at::complex(rotary.cosine, rotary.sine);
      return at::cat({at::real(z), at::imag(z)}, 3);
    };
    compare(
        {random({c.sequences * c.length, 3 * c.heads * c.head_width})},
        [&](const auto& x) { return ops::attention(x[0], c.length, c.heads, rotary); },
        [&](const auto& x) {
          const at::Tensor qkv = x[0].view({c.sequences, c.length, 3, c.heads, c.head_width}).permute({2, 0, 3, 1, 4});
          const at::Tensor scores = at::matmul(turned(qkv[0]), turned(qkv[1]).transpose(2, 3)) / std::sqrt(c.head_width);
          const at::Tensor later = at::ones({c.length, c.length}, at::kBool).triu(1);
          const at::Tensor weights = at::softmax(scores.masked_fill(later, -INFINITY), -1);
          return at::matmul(weights, qkv[2]).transpose(1, 2).reshape({c.sequences * c.length, c.heads * c.head_width});
        });
  }
}

TEST_CASE("what is not finite stays so") {
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
    if (place == 17) {
      CHECK_FALSE(std::isfinite(sum.item<float>()));
    }
  }
}

TEST_CASE("AdamW over flat memory takes the steps of torch.optim's, clips, and leaves out what is not finite") {
  torch::manual_seed(5);
  const std::int64_t matrix = 17 * 59;
  const std::int64_t count = matrix + 41;
  const at::Tensor flat = random({count});
  const auto part = [](const at::Tensor& whole, std::int64_t from, std::vector<std::int64_t> shape) {
    return whole.narrow(0, from, c10::multiply_integers(shape)).view(shape).variable_data().set_requires_grad(true);
  };
  const std::vector<Leaf> leaves = {{part(flat, 0, {17, 59}), 0, true}, {part(flat, matrix, {41}), matrix, false}};
  at::Tensor theirs_matrix = leaves[0].tensor.detach().clone().set_requires_grad(true);
  at::Tensor theirs_vector = leaves[1].tensor.detach().clone().set_requires_grad(true);
  const auto options = [](double decay) { return torch::optim::AdamWOptions(1e-2).betas({0.9, 0.95}).eps(1e-8).weight_decay(decay); };
  torch::optim::AdamW first({theirs_matrix}, options(0.1));
  torch::optim::AdamW second({theirs_vector}, options(0.0));
  island_link::Training training;
  training.weight_decay = 0.1;
  training.beta1 = 0.9;
  training.beta2 = 0.95;
  training.epsilon = 1e-8;
  training.clip_norm = 20.0;  // of norms about 30: now and then
  AdamW ours(training, flat, leaves);
  const at::Tensor gathered = at::full({count}, 7.0);
  for (int step = 1; step <= 30; ++step) {
    const bool flatly = step % 2 == 0;
    flatly ? ours.gather_gradients(gathered) : ours.forget_gradients();
    at::Tensor gradient = random({count}) * (step % 3 == 0 ? 0.1 : 1.0);
    if (step == 7) {
      gradient[3] = std::nanf("");
    }
    for (const Leaf& leaf : leaves) {
      const at::Tensor its = gradient.narrow(0, leaf.offset, leaf.tensor.numel()).view(leaf.tensor.sizes());
      flatly ? leaf.tensor.mutable_grad().add_(its) : leaf.tensor.mutable_grad() = its.clone();
    }
    const at::Tensor norm = ours.norm();
    const double length = gradient.to(at::kDouble).norm().item<double>();
    ours.step(1e-2, norm);
    if (step == 7) {
      CHECK(std::isnan(norm.item<float>()));
      CHECK(ours.updates().item<double>() == 6.0);
    } else {
      CHECK(norm.item<double>() == Approx(length).epsilon(1e-6));
      gradient.mul_(std::min(1.0, 20.0 / (length + 1e-6)));
      theirs_matrix.mutable_grad() = gradient.narrow(0, 0, matrix).view({17, 59});
      theirs_vector.mutable_grad() = gradient.narrow(0, matrix, 41);
      first.step();
      second.step();
    }
    REQUIRE(difference(flat.narrow(0, 0, matrix).view({17, 59}), theirs_matrix.detach()) < 1e-5);
    REQUIRE(difference(flat.narrow(0, matrix, 41), theirs_vector.detach()) < 1e-5);
    REQUIRE(at::isfinite(ours.first()).all().item<bool>());
  }
  CHECK(ours.updates().item<double>() == 29.0);
  // Saved and taken up again by another.
  AdamW again(training, flat, leaves);
  again.first().copy_(ours.first());
  again.second().copy_(ours.second());
  again.set_updates(29);
  const at::Tensor before = flat.clone();
  const at::Tensor gradient = random({count});
  const auto stepped = [&](AdamW& optimizer) {
    flat.copy_(before);
    optimizer.gather_gradients(gathered);
    gathered.copy_(gradient);
    optimizer.step(1e-2, optimizer.norm());
    return flat.clone();
  };
  CHECK(at::equal(stepped(again), stepped(ours)));
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
    for (const Leaf& leaf : model.leaves()) {
      CHECK(leaf.offset == at);
      CHECK(leaf.tensor.data_ptr<float>() == flat.data_ptr<float>() + at);
      at += leaf.tensor.numel();
    }
    CHECK(at == count);
    const at::Tensor tokens = at::randint(50, {3, 17}, at::kLong);
    const at::Tensor loss = model.loss(tokens);
    CHECK(loss.item<double>() == Approx(std::log(50.0)).margin(0.3));
    loss.backward();
    for (const Leaf& leaf : model.leaves()) {
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
  for (const Leaf& leaf : model.leaves()) {
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
