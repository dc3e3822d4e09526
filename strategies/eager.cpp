#include "strategies/eager.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "strategies/codec_kernels.hpp"
#include "strategies/vectorised.hpp"

namespace atl {
namespace {

constexpr std::size_t kValuesAtOnce = 4096;

ATOLL_VECTORISED void nesterov_start(const float* __restrict delta, float weight, float eta, float mu, std::size_t count,
                                     const float* __restrict outer, const float* __restrict v, float* __restrict start) {
  for (std::size_t i = 0; i < count; ++i) {
    const float g = weight * delta[i];
    const float momentum = mu * v[i] + g;
    const float direction = g + mu * momentum;
    start[i] = outer[i] - eta * direction;
  }
}

ATOLL_VECTORISED void sgd_start(const float* __restrict delta, float weight, float eta, std::size_t count, const float* __restrict outer,
                                float* __restrict start) {
  for (std::size_t i = 0; i < count; ++i) {
    const float g = weight * delta[i];
    start[i] = outer[i] - eta * g;
  }
}

ATOLL_VECTORISED void heavy_ball_start(const float* __restrict delta, float weight, float eta, float mu, std::size_t count,
                                       const float* __restrict outer, const float* __restrict v, float* __restrict start) {
  for (std::size_t i = 0; i < count; ++i) {
    const float g = weight * delta[i];
    const float momentum = mu * v[i] - eta * g;
    start[i] = outer[i] + momentum;
  }
}

// v <- μ·v + factor·(w·Δ); factor is 1 for nesterov, −η for heavy_ball.
ATOLL_VECTORISED void absorb(const float* __restrict delta, float weight, float factor, float mu, std::size_t count, float* __restrict v) {
  for (std::size_t i = 0; i < count; ++i) {
    const float g = weight * delta[i];
    v[i] = mu * v[i] + factor * g;
  }
}

Status check(const OwnContribution& own, const OuterOptimizer& settings, std::size_t count, std::size_t momentum) {
  ATOLL_TRY(check_outer_optimizer(settings));
  if (!suits_eager(settings.kind)) {
    return Error{Code::invalid_argument,
                 "eager updates need an outer optimiser that is linear, which '" + std::string(name_of(settings.kind)) + "' is not"};
  }
  if (momentum != (has_momentum(settings.kind) ? count : 0) || !std::isfinite(own.weight)) {
    return Error{Code::invalid_argument,
                 "the own term of " + std::to_string(count) + " values does not fit a momentum of " + std::to_string(momentum) + " values"};
  }
  return own.bytes.empty() ? Status{} : check_encoded(own.codec, own.bytes, count);
}

// Calls `each(decoded, first)` for one part after the other.
template <typename Each>
void decode_parts(const OwnContribution& own, std::size_t count, const Each& each) {
  const std::size_t size = std::min(values_at_once(kValuesAtOnce, own.codec), count);
  std::vector<float> part(size);
  for (std::size_t done = 0; done < count; done += size) {
    const std::span<float> values = std::span(part).first(std::min(size, count - done));
    if (own.bytes.empty()) {
      std::fill(values.begin(), values.end(), 0.0F);
    } else {
      kernels::decode(own.codec, encoded_from(own.codec, own.bytes, done).data(), values.size(), values.data());
    }
    each_run(own.buffers, done, values.size(), [&](std::size_t from, std::size_t to, bool buffer) {
      if (buffer) {
        std::fill(values.begin() + static_cast<std::ptrdiff_t>(from), values.begin() + static_cast<std::ptrdiff_t>(to), 0.0F);
      }
    });
    each(std::span<const float>(values), done);
  }
}

}  // namespace

bool suits_eager(OuterOptimizerKind kind) {
  return kind == OuterOptimizerKind::nesterov || kind == OuterOptimizerKind::heavy_ball || kind == OuterOptimizerKind::sgd;
}

Status eager_start(const OwnContribution& own, const OuterOptimizer& settings, std::span<const float> outer,
                   std::span<const float> momentum, std::span<float> start) {
  if (outer.size() != start.size()) {
    return Error{Code::invalid_argument,
                 std::to_string(start.size()) + " values do not fit " + std::to_string(outer.size()) + " outer parameters"};
  }
  ATOLL_TRY(check(own, settings, outer.size(), momentum.size()));
  const auto eta = static_cast<float>(settings.learning_rate);
  const auto mu = static_cast<float>(settings.momentum);
  std::uint32_t largest = 0;
  decode_parts(own, outer.size(), [&](std::span<const float> delta, std::size_t at) {
    const float* from = outer.data() + at;
    float* to = start.data() + at;
    if (settings.kind == OuterOptimizerKind::nesterov) {
      nesterov_start(delta.data(), own.weight, eta, mu, delta.size(), from, momentum.data() + at, to);
    } else if (settings.kind == OuterOptimizerKind::heavy_ball) {
      heavy_ball_start(delta.data(), own.weight, eta, mu, delta.size(), from, momentum.data() + at, to);
    } else {
      sgd_start(delta.data(), own.weight, eta, delta.size(), from, to);
    }
    largest = std::max(largest, kernels::max_magnitude(to, delta.size()));
  });
  if (largest >= kernels::kInfinityBits) {
    return Error{Code::corrupt, "what the island would go on from is not finite: its training has diverged"};
  }
  return {};
}

Status eager_absorb(const OwnContribution& own, const OuterOptimizer& settings, std::span<float> momentum) {
  const std::size_t count = momentum.size();
  if (!has_momentum(settings.kind)) {
    return {};
  }
  ATOLL_TRY(check(own, settings, count, count));
  const float factor = settings.kind == OuterOptimizerKind::nesterov ? 1.0F : -static_cast<float>(settings.learning_rate);
  decode_parts(own, count, [&](std::span<const float> delta, std::size_t at) {
    absorb(delta.data(), own.weight, factor, static_cast<float>(settings.momentum), delta.size(), momentum.data() + at);
  });
  return {};
}

}  // namespace atl
