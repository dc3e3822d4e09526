// The operations of the language model on tensors, with gradients, each by LibTorch's own.
// Threads: as LibTorch's.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace atl::ops {

// cos and sin of position · 10000^(−2i/D), [length, D/2] each, of base 10,000 as in RoFormer (arXiv:2104.09864).
struct Rotary {
  at::Tensor cosine;
  at::Tensor sine;
};
Rotary rotary(std::int64_t length, std::int64_t head_width, at::Device device);

// x [N, d], w [d] → [N, d]; epsilon 1e-5.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& w);
// gate_up [N, 2f] → silu(first half) · second half, [N, f].
at::Tensor swiglu(const at::Tensor& gate_up);
// qkv [sequences·T, 3·heads·D] → causal self-attention with rotary positions, [sequences·T, heads·D]. T is `length`. Positions are turned
// in float32, whatever the precision of the products. A query that is not finite is answered with zeros, and its gradient is not finite.
at::Tensor attention(const at::Tensor& qkv, std::int64_t length, std::int64_t heads, const Rotary& rotary);
// The same for one sequence of which only the last rows are given: qkv [n, 3·heads·D] stands at positions `first` … first + n − 1, and
// `keys` and `values` [heads, capacity, D] hold those of the positions before; the new ones are added to them. No gradients; first + n ≤
// capacity. → [n, heads·D].
at::Tensor attention_after(const at::Tensor& qkv, std::int64_t first, std::int64_t heads, const Rotary& rotary, at::Tensor& keys,
                           at::Tensor& values);
// logits [N, V], targets [N] → mean −log softmax, in float32.
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& targets);

}  // namespace atl::ops
