// The diffusion transformer (Peebles and Xie, "Scalable diffusion models with transformers", arXiv:2212.09748, the adaLN-Zero variant), as
// an expert that predicts a flow and as a router that classifies noised images. Names of the parameters are those of the authors' code.
//
// An image [C, H, W] becomes (H/p)·(W/p) tokens of p·p·C values with fixed sine-cosine positions. The time (and class) become a vector c
// that in every block shifts, scales and gates: x ← x + α₁·Attention(LN(x)·(1 + γ₁) + β₁), x ← x + α₂·MLP(LN(x)·(1 + γ₂) + β₂), with (β₁ γ₁
// α₁ β₂ γ₂ α₂) = Linear(SiLU(c)), which starts at zero, so that every block starts as the identity. A router has one more token, learned,
// whose last state goes to a linear layer of `outputs` logits (arXiv:2501.05450, "Router").
//
// All parameters lie in one flat tensor, so that the optimiser and the moving average are one pass each.
// Threads: as LibTorch's.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "agent/island_link/messages.hpp"
#include "agent/trainer/adamw.hpp"
#include "agent/trainer/data/images.hpp"
#include "transport/base/result.hpp"

namespace atl {

struct DitSizes {
  ImageShape image;
  std::uint32_t patch = 2;
  std::uint32_t layers = 0;
  std::uint32_t width = 0;
  std::uint32_t heads = 0;
  std::uint32_t feed_forward = 0;  // 0: four times the width
  std::uint32_t classes = 0;       // a condition of so many classes and one for "none"; 0: no condition
  std::uint32_t outputs = 0;       // a router's logits; 0: an expert, which gives a flow of the image's shape
  friend bool operator==(const DitSizes&, const DitSizes&) = default;
};

class Dit {
 public:
  // Errors: invalid_argument for sizes that do not fit one another.
  static Result<DitSizes> checked(DitSizes sizes);
  static island_link::Manifest manifest(const DitSizes& sizes);
  // The sizes as text for a file's metadata, and back. Errors: corrupt.
  static std::string describe(const DitSizes& sizes);
  static Result<DitSizes> described(const std::string& text);
  // Multiplications and additions of one forward pass for one image, counting the matrix products.
  static double forward_flops(const DitSizes& sizes);

  // `flat` [elements of the manifest] becomes the parameters; its values are kept.
  Dit(const DitSizes& sizes, const at::Tensor& flat);
  void initialize(std::uint64_t seed);

  [[nodiscard]] const std::vector<Leaf>& leaves() const { return leaves_; }
  [[nodiscard]] const DitSizes& sizes() const { return sizes_; }

  // x [B, C, H, W], t [B] in [0, 1], classes [B] int64 (sizes.classes means none; ignored without a condition; undefined: none for all)
  // → the flow [B, C, H, W], or logits [B, outputs].
  [[nodiscard]] at::Tensor forward(const at::Tensor& x, const at::Tensor& t, const at::Tensor& classes) const;

 private:
  struct Linear {
    at::Tensor weight, bias;
  };
  struct Block {
    Linear qkv, projection, up, down, modulation;
  };
  [[nodiscard]] at::Tensor condition(const at::Tensor& t, const at::Tensor& classes) const;
  [[nodiscard]] at::Tensor block(const Block& block, const at::Tensor& x, const at::Tensor& c) const;

  DitSizes sizes_;
  at::Tensor flat_;
  std::vector<Leaf> leaves_;
  Linear patches_, time_in_, time_out_, last_, last_modulation_;
  at::Tensor class_table_;  // undefined without a condition
  at::Tensor class_token_;  // a router's
  std::vector<Block> blocks_;
  at::Tensor positions_;  // [tokens, width]
};

}  // namespace atl
