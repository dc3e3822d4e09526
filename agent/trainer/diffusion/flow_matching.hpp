// Flow matching on the linear path (ensemble_flow.hpp): from clean images, what a model is trained and measured on.
//   x_t = (1 − t)·x_0 + t·ε,   target u = ε − x_0,   loss E‖v(x_t, t) − u‖²
// All draws come from (seed, step), so a step is repeated exactly wherever it is done again.
// Threads: as LibTorch's.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

namespace atl {

struct NoisedBatch {
  at::Tensor x;         // [B, C, H, W]
  at::Tensor t;         // [B]
  at::Tensor velocity;  // [B, C, H, W]

  // The same there. On a GPU the copies go on beside what is computed.
  [[nodiscard]] NoisedBatch on(at::Device device) const;
};

// `times`: "uniform" in [0, 1], or "logit-normal": t = 1 / (1 + e^(−n)), n normal (Esser et al., arXiv:2403.03206).
NoisedBatch noised_batch(const at::Tensor& clean, std::string_view times, std::uint64_t seed, std::uint64_t step);

// For measuring: the same noise for the same images (`first`: number of the first one) and level, whatever the model.
inline constexpr std::size_t kNoiseLevels = 8;
double noise_level(std::size_t level);  // (level + ½) / kNoiseLevels
NoisedBatch noised_at_level(const at::Tensor& clean, std::size_t level, std::uint64_t seed, std::uint64_t first);

// Standard normal values of this shape.
at::Tensor normal_values(at::IntArrayRef shape, std::uint64_t seed, std::uint64_t stream);

}  // namespace atl
