#include "agent/trainer/adamw.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <array>
#include <utility>

namespace atl {

AdamW::AdamW(const island_link::Training& training, const at::Tensor& parameters, std::vector<Leaf> leaves)
    : beta1_(training.beta1),
      beta2_(training.beta2),
      epsilon_(training.epsilon),
      clip_norm_(training.clip_norm),
      leaves_(std::move(leaves)),
      first_(at::zeros_like(parameters)),
      second_(at::zeros_like(parameters)),
      updates_(at::zeros({}, parameters.options())) {
  std::array<Group, 2> groups{Group{0.0, {}, {}, {}, {}}, Group{training.weight_decay, {}, {}, {}, {}}};
  for (const Leaf& leaf : leaves_) {
    Group& group = groups[leaf.matrix ? 1 : 0];
    const auto part = [&](const at::Tensor& flat) { return flat.narrow(0, leaf.offset, leaf.tensor.numel()).view(leaf.tensor.sizes()); };
    group.leaves.push_back(leaf.tensor);
    group.first.push_back(part(first_));
    group.second.push_back(part(second_));
    group.updates.push_back(updates_);
  }
  for (Group& group : groups) {
    if (!group.leaves.empty()) {
      groups_.push_back(std::move(group));
    }
  }
}

void AdamW::forget_gradients() {
  for (const Leaf& leaf : leaves_) {
    leaf.tensor.mutable_grad().reset();
  }
}

void AdamW::gather_gradients(const at::Tensor& flat) {
  flat.zero_();
  for (const Leaf& leaf : leaves_) {
    leaf.tensor.mutable_grad() = flat.narrow(0, leaf.offset, leaf.tensor.numel()).view(leaf.tensor.sizes());
  }
}

at::Tensor AdamW::norm() const {
  const at::NoGradGuard no_gradient;
  std::vector<at::Tensor> gradients;
  for (const Leaf& leaf : leaves_) {
    gradients.push_back(leaf.tensor.grad());
  }
  return at::linalg_vector_norm(at::stack(at::_foreach_norm(gradients)), 2);
}

void AdamW::step(double learning_rate, const at::Tensor& norm) {
  const at::NoGradGuard no_gradient;
  const at::Tensor finite = at::isfinite(norm).to(at::kFloat);
  const at::Tensor left_out = 1.0 - finite;
  // The kernels divide by it.
  const at::Tensor excess = clip_norm_ > 0.0 ? at::clamp_min((norm + 1e-6) / clip_norm_, 1.0) : at::Tensor();
  updates_.add_(finite);
  for (const Group& group : groups_) {
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& leaf : group.leaves) {
      gradients.push_back(leaf.grad());
    }
    at::_fused_adamw_(group.leaves, gradients, group.first, group.second, {}, group.updates, learning_rate, beta1_, beta2_,
                      group.weight_decay, epsilon_, false, false, excess.defined() ? std::optional(excess) : std::nullopt, left_out);
  }
}

}  // namespace atl
