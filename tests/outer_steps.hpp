// Outer steps by name, as papers speak of them.
#pragma once

#include <span>

#include "strategies/outer_optimizer.hpp"

namespace atl {

inline Status nesterov_step(std::span<const float> gradient, double learning_rate, double momentum, const OuterState& state) {
  return outer_step(gradient, {OuterOptimizerKind::nesterov, learning_rate, momentum}, state);
}

inline Status sgd_step(std::span<const float> gradient, double learning_rate, const OuterState& state) {
  return outer_step(gradient, {OuterOptimizerKind::sgd, learning_rate, 0.0}, state);
}

inline Status heavy_ball_step(std::span<const float> gradient, double learning_rate, double momentum, const OuterState& state) {
  return outer_step(gradient, {OuterOptimizerKind::heavy_ball, learning_rate, momentum}, state);
}

inline Status adopt_step(std::span<const float> parameters, const OuterState& state) {
  return outer_step(parameters, {OuterOptimizerKind::adopt, 1.0, 0.0}, state);
}

}  // namespace atl
