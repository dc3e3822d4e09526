#include "agent/trainer/kernels/adamw.hpp"

#include <array>
#include <cmath>

#include "agent/trainer/kernels/vectorized.hpp"
#include "transport/base/check.hpp"

namespace atl {

namespace {

struct Factors {
  float keep;  // 1 − ηλ
  float beta1;
  float beta2;
  float step_size;     // η / (1 − β₁ᵗ)
  float second_scale;  // 1 / √(1 − β₂ᵗ)
  float epsilon;
  float gradient_scale;
};

ATOLL_VECTORIZED void update(const Factors& factors, float* __restrict p, const float* __restrict g, float* __restrict m,
                             float* __restrict v, std::size_t count) {
  const Factors f = factors;
  for (std::size_t i = 0; i < count; ++i) {
    const float gradient = g[i] * f.gradient_scale;
    const float first = f.beta1 * m[i] + (1.0F - f.beta1) * gradient;
    const float second = f.beta2 * v[i] + (1.0F - f.beta2) * gradient * gradient;
    m[i] = first;
    v[i] = second;
    p[i] = p[i] * f.keep - f.step_size * first / (std::sqrt(second) * f.second_scale + f.epsilon);
  }
}

}  // namespace

void adamw_step(const AdamW& settings, const AdamWRange& range) {
  const std::size_t count = range.parameters.size();
  ATOLL_CHECK(range.gradient.size() == count && range.first.size() == count && range.second.size() == count, "spans of different lengths");
  const auto t = static_cast<double>(settings.step);
  const Factors factors{static_cast<float>(1.0 - settings.learning_rate * settings.weight_decay),
                        static_cast<float>(settings.beta1),
                        static_cast<float>(settings.beta2),
                        static_cast<float>(settings.learning_rate / (1.0 - std::pow(settings.beta1, t))),
                        static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(settings.beta2, t))),
                        static_cast<float>(settings.epsilon),
                        settings.gradient_scale};
  update(factors, range.parameters.data(), range.gradient.data(), range.first.data(), range.second.data(), count);
}

ATOLL_VECTORIZED double sum_of_squares(std::span<const float> values) {
  std::array<double, 16> lanes{};
  const std::size_t whole = values.size() / 16 * 16;
  for (std::size_t i = 0; i < whole; i += 16) {
    for (std::size_t lane = 0; lane < 16; ++lane) {
      const auto value = static_cast<double>(values[i + lane]);
      lanes[lane] += value * value;
    }
  }
  for (std::size_t i = whole; i < values.size(); ++i) {
    lanes[0] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  double sum = 0.0;
  for (const double lane : lanes) {
    sum += lane;
  }
  return sum;
}

}  // namespace atl
