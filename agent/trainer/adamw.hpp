// AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization", arXiv:1711.05101, Algorithm 2 with a schedule of 1) by LibTorch's
// fused kernels, as torch.optim.AdamW(fused=True) computes it, with the gradient's norm clipped before:
//   g ← g · min(1, c/(‖g‖ + 1e-6));  p ← p·(1 − η·λ);  m ← β₁·m + (1 − β₁)·g;  v ← β₂·v + (1 − β₂)·g²
//   p ← p − η/(1 − β₁ᵗ) · m / (√v / √(1 − β₂ᵗ) + ε)
// Nothing is waited for: norm, clipping and the count of updates stay on the device. Threads: one thread calls.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "agent/island_link/messages.hpp"

namespace atl {

// A part of a model's flat parameters, at which gradients arrive.
struct Leaf {
  at::Tensor tensor;  // a view of the flat parameters from `offset` on
  std::int64_t offset;
  bool matrix;  // weight decay applies
};

class AdamW {
 public:
  // `parameters` flat, float32; the leaves are its parts, all of them, without gaps. Of `training` the optimiser's own settings are taken.
  AdamW(const island_link::Training& training, const at::Tensor& parameters, std::vector<Leaf> leaves);

  // Before a backward pass: gradients are made anew by it, and taken as they are.
  void forget_gradients();
  // Before a backward pass: gradients are added up in this flat tensor, which is set to zero.
  void gather_gradients(const at::Tensor& flat);
  // ‖g‖ over all leaves, a scalar on the device.
  [[nodiscard]] at::Tensor norm() const;
  // One update with the leaves' gradients, whose norm is `norm`; they are clipped in place. A norm that is not finite changes nothing, and
  // no update is counted.
  void step(double learning_rate, const at::Tensor& norm);

  // The moments m and v, flat like the parameters.
  [[nodiscard]] const at::Tensor& first() const { return first_; }
  [[nodiscard]] const at::Tensor& second() const { return second_; }
  // The t above: 0 at first, a float32 scalar on the device. set_updates: goes on with moments that were put into first() and second().
  [[nodiscard]] const at::Tensor& updates() const { return updates_; }
  void set_updates(std::uint64_t updates) { updates_.fill_(static_cast<double>(updates)); }

 private:
  // Leaves with the same weight decay, as the kernels take them.
  struct Group {
    double weight_decay;
    std::vector<at::Tensor> leaves, first, second, updates;
  };

  double beta1_, beta2_, epsilon_, clip_norm_;
  std::vector<Leaf> leaves_;
  at::Tensor first_, second_, updates_;
  std::vector<Group> groups_;
};

}  // namespace atl
