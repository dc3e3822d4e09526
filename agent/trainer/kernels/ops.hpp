// The operations of the transformer on tensors, with gradients: on a processor by kernels of our own (cpu_kernels.hpp), elsewhere by
// compositions of LibTorch's. Both compute the same; a test compares them.
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
// qkv [sequences·T, 3·heads·D] → causal self-attention with rotary positions, [sequences·T, heads·D]. T is `length`.
at::Tensor attention(const at::Tensor& qkv, std::int64_t length, std::int64_t heads, const Rotary& rotary);
// The same for one sequence of which only the last rows are given: qkv [n, 3·heads·D] stands at positions `first` … first + n − 1, and
// `keys` and `values` [heads, capacity, D] hold those of the positions before; the new ones are added to them. No gradients; first + n ≤
// capacity. → [n, heads·D].
at::Tensor attention_after(const at::Tensor& qkv, std::int64_t first, std::int64_t heads, const Rotary& rotary, at::Tensor& keys,
                           at::Tensor& values);
// logits [N, V], targets [N] → mean −log softmax. The processor's version overwrites the logits.
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& targets);

// The same from LibTorch's own operations on any device: the reference of tests, and what other devices use.
namespace composed {
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& w);
at::Tensor swiglu(const at::Tensor& gate_up);
at::Tensor attention(const at::Tensor& qkv, std::int64_t length, std::int64_t heads, const Rotary& rotary);
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& targets);
}  // namespace composed

}  // namespace atl::ops
