// AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization", arXiv:1711.05101, Algorithm 2 with a schedule of 1) over flat
// memory, as torch.optim.AdamW computes it:
//   p ← p·(1 − η·λ);  m ← β₁·m + (1 − β₁)·g;  v ← β₂·v + (1 − β₂)·g²;  p ← p − η/(1 − β₁ᵗ) · m / (√v / √(1 − β₂ᵗ) + ε)
// One pass over all parameters instead of a dozen small operations for each: reads 4n, writes 3n floats, allocates nothing.
// Threads: calls on disjoint ranges may run at the same time.
#pragma once

#include <cstdint>
#include <span>

namespace atl {

struct AdamW {
  double learning_rate = 0.0;
  double weight_decay = 0.0;  // of this range; 0 for what is not a matrix
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  std::uint64_t step = 1;       // 1, 2, …: the t above
  float gradient_scale = 1.0F;  // of clipping; g is multiplied by it first
};

struct AdamWRange {
  std::span<float> parameters;
  std::span<const float> gradient;
  std::span<float> first;   // m
  std::span<float> second;  // v
};

// All spans of the range have the same length.
void adamw_step(const AdamW& settings, const AdamWRange& range);

// Sum of squares, in double over sixteen lanes in a fixed order: the same on every machine.
double sum_of_squares(std::span<const float> values);

}  // namespace atl
