#include "agent/trainer/diffusion/flow_matching.hpp"

#include <ATen/ATen.h>

#include <cmath>

#include "transport/base/rng.hpp"

namespace atl {
namespace {

NoisedBatch noised(const at::Tensor& clean, const at::Tensor& t, const at::Tensor& noise) {
  const at::Tensor beside = t.view({-1, 1, 1, 1});
  return {clean * (1.0 - beside) + noise * beside, t, noise - clean};
}

}  // namespace

NoisedBatch NoisedBatch::on(at::Device device) const {
  const auto moved = [&](const at::Tensor& values) {
    return device.is_cuda() ? values.pin_memory().to(device, values.scalar_type(), /*non_blocking=*/true) : values.to(device);
  };
  return {moved(x), moved(t), moved(velocity)};
}

at::Tensor normal_values(at::IntArrayRef shape, std::uint64_t seed, std::uint64_t stream) {
  at::Tensor values = at::empty(shape, at::kFloat);
  auto* to = values.data_ptr<float>();
  Rng rng(seed, stream);
  // Box–Muller by hand for both of its values: this draws as many numbers as an image has.
  const std::int64_t count = values.numel();
  for (std::int64_t i = 0; i < count; i += 2) {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - rng.uniform()));
    const double angle = 2.0 * M_PI * rng.uniform();
    to[i] = static_cast<float>(radius * std::cos(angle));
    if (i + 1 < count) {
      to[i + 1] = static_cast<float>(radius * std::sin(angle));
    }
  }
  return values;
}

NoisedBatch noised_batch(const at::Tensor& clean, std::string_view times, std::uint64_t seed, std::uint64_t step) {
  Rng rng(seed, stream_of("times", step));
  at::Tensor t = at::empty({clean.size(0)}, at::kFloat);
  for (std::int64_t i = 0; i < t.numel(); ++i) {
    t.data_ptr<float>()[i] = static_cast<float>(times == "logit-normal" ? 1.0 / (1.0 + std::exp(-rng.normal())) : rng.uniform());
  }
  return noised(clean, t, normal_values(clean.sizes(), seed, stream_of("noise", step)));
}

double noise_level(std::size_t level) { return (static_cast<double>(level) + 0.5) / static_cast<double>(kNoiseLevels); }

NoisedBatch noised_at_level(const at::Tensor& clean, std::size_t level, std::uint64_t seed, std::uint64_t first) {
  const at::Tensor t = at::full({clean.size(0)}, noise_level(level), at::kFloat);
  return noised(clean, t, normal_values(clean.sizes(), seed, stream_of("validation noise", first * kNoiseLevels + level)));
}

}  // namespace atl
