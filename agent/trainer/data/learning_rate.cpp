#include "agent/trainer/data/learning_rate.hpp"

#include <cmath>
#include <numbers>

namespace atl {

double LearningRate::at(double step) const {
  const auto warmup = static_cast<double>(warmup_steps);
  if (step < warmup) {
    return peak * step / warmup;
  }
  if (step >= static_cast<double>(steps)) {
    return peak * final_fraction;
  }
  const double done = (step - warmup) / static_cast<double>(steps - warmup_steps);
  return peak * (final_fraction + (1.0 - final_fraction) * 0.5 * (1.0 + std::cos(std::numbers::pi * done)));
}

}  // namespace atl
