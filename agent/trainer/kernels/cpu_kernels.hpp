// The arithmetic of a transformer on a processor that is not a matrix product: RMSNorm, SwiGLU, causal attention and the loss, forward and
// backward, each in one pass over its data. LibTorch computes the same by chains of element-wise operations, each with a tensor of its own.
//
// All tensors are float32, row-major and contiguous. Functions work on the rows (or heads) that they are given, so that a caller
// spreads them over threads. exp is a polynomial, exact to about 2 units in the last place.
// Threads: pure functions on what they are given.
#pragma once

#include <cstddef>
#include <cstdint>

namespace atl::kernels {

// y[i] = x[i] · r · w with r = 1/√(mean(x[i]²) + epsilon), which is kept for the backward pass.
// x, y [rows × width], w [width], r [rows].
void rms_norm(const float* x, const float* w, float epsilon, std::size_t rows, std::size_t width, float* y, float* r);
// dx [rows × width] is written; dw [width] is added to.
void rms_norm_backward(const float* dy, const float* x, const float* w, const float* r, std::size_t rows, std::size_t width, float* dx,
                       float* dw);

// y = silu(g) · u, with g and u the two halves of a row of gate_up [rows × 2·width]; y [rows × width].
void swiglu(const float* gate_up, std::size_t rows, std::size_t width, float* y);
// d_gate_up [rows × 2·width] is written.
void swiglu_backward(const float* dy, const float* gate_up, std::size_t rows, std::size_t width, float* d_gate_up);

// Sum over rows of −log softmax(logits)[target]; logits [rows × classes] become softmax(logits) − onehot(target), the gradient of that sum.
double cross_entropy(float* logits, const std::int64_t* targets, std::size_t rows, std::size_t classes);

// Causal self-attention of one head with rotary positions on queries and keys (the two halves of a head turn together, as in Llama).
struct AttentionShape {
  std::size_t length = 0;         // T, tokens of a sequence
  std::size_t heads = 0;          // H
  std::size_t head_width = 0;     // D, even
  const float* cosine = nullptr;  // [T × D/2]
  const float* sine = nullptr;    // [T × D/2]
};

// True if a BLAS with sgemm is there to call; without one the attention functions must not be called.
bool attention_available();
// Of head `head` of one sequence. qkv [T × 3·H·D]: queries, keys, values, each head by head. out [T × H·D] and lse [T] (the
// logarithm of the softmax's sum, kept for the backward pass) of that head are written. No T × T matrix is kept.
void attention(const AttentionShape& shape, const float* qkv, std::size_t head, float* out, float* lse);
// d_qkv [T × 3·H·D] of that head is written.
void attention_backward(const AttentionShape& shape, const float* d_out, const float* qkv, const float* lse, std::size_t head,
                        float* d_qkv);

}  // namespace atl::kernels
