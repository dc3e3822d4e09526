// The decoder-only transformer: embeddings; per layer x ← x + O(attention(RMSNorm(x))), x ← x + down(SwiGLU(RMSNorm(x))); a final
// RMSNorm and the head (which may be the embeddings). No biases. Names and shapes of the parameters, and the way rotary positions turn the
// halves of a head, are those of Hugging Face's Llama, so that other tools read an exported model.
//
// All parameters lie in one flat tensor in manifest order. Neighbours that are multiplied together (q, k, v; gate, up) are one matrix to
// the arithmetic.
// Threads: as LibTorch's.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "agent/island_link/messages.hpp"
#include "agent/trainer/adamw.hpp"
#include "agent/trainer/ops.hpp"
#include "transport/base/result.hpp"

namespace atl {

class Model {
 public:
  // The parameters of a checked model (island_link::checked_model), in order, each with its block.
  static island_link::Manifest manifest(const island_link::Model& sizes);

  // `flat` [elements of the manifest] float32 becomes the parameters; its values are kept. `sequence_length`: the longest input.
  Model(const island_link::Model& sizes, std::int64_t sequence_length, const at::Tensor& flat);

  // Normal with deviation 0.02 for matrices (divided by √(2·layers) for those that write to the residual stream), 1 for norms. The same
  // for the same seed, whatever the device.
  void initialize(std::uint64_t seed);

  // In order, without gaps.
  [[nodiscard]] const std::vector<Leaf>& leaves() const { return leaves_; }

  [[nodiscard]] at::Device device() const { return flat_.device(); }
  // tokens [B, T] int64 → logits [B·T, vocabulary].
  [[nodiscard]] at::Tensor logits(const at::Tensor& tokens) const;
  // What a model remembers of the tokens of one sequence, so that the next ones cost no more than themselves. Cost: 8·layers·width bytes a
  // token.
  struct Memory {
    std::vector<at::Tensor> keys, values;  // of each layer [heads, sequence_length, width / heads]
    std::int64_t length = 0;               // tokens so far
  };
  [[nodiscard]] Memory empty_memory() const;
  // tokens [n] int64 that follow those of the memory → logits [vocabulary] of the last one: what `logits` says of the sequence as a whole,
  // but for rounding. The memory takes them in; its length stays within sequence_length. No gradients.
  [[nodiscard]] at::Tensor logits_after(Memory& memory, const at::Tensor& tokens) const;
  // tokens [B, T + 1] → mean loss of predicting each token from those before it, a scalar.
  [[nodiscard]] at::Tensor loss(const at::Tensor& tokens) const;

 private:
  struct Layer {
    at::Tensor attention_norm, qkv, output, feed_norm, gate_up, down;
  };
  [[nodiscard]] at::Tensor add_product(const at::Tensor& x, const at::Tensor& y, const at::Tensor& weight) const;

  island_link::Model sizes_;
  at::Tensor flat_;
  std::vector<Leaf> leaves_;
  at::Tensor embedding_;
  std::vector<Layer> layers_;
  at::Tensor norm_;
  at::Tensor head_;
  ops::Rotary rotary_;
};

}  // namespace atl
