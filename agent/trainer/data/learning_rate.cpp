#include "agent/trainer/data/learning_rate.hpp"

#include <cmath>
#include <numbers>

namespace atl {

double LearningRate::at(std::uint64_t step) const {
  if (step < warmup_steps) {
    return peak * static_cast<double>(step) / static_cast<double>(warmup_steps);
  }
  if (step >= steps) {
    return peak * final_fraction;
  }
  const double done = static_cast<double>(step - warmup_steps) / static_cast<double>(steps - warmup_steps);
  return peak * (final_fraction + (1.0 - final_fraction) * 0.5 * (1.0 + std::cos(std::numbers::pi * done)));
}

}  // namespace atl
