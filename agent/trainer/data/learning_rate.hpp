// The inner learning rate: linear warm-up, then half a cosine down to a fraction of the peak.
#pragma once

#include <cstdint>

namespace atl {

struct LearningRate {
  double peak = 0.0;
  std::uint64_t warmup_steps = 0;
  std::uint64_t steps = 0;      // of the whole run
  double final_fraction = 0.0;  // of the peak, reached at the last step and kept after it

  // Of the step that makes `step` the number of steps done (1, 2, …; a fraction of one where a run's length is in tokens). peak · step /
  // warmup_steps up to warmup_steps; then peak · (f + (1 − f) · ½(1 + cos(π · (step − warmup) / (steps − warmup)))).
  [[nodiscard]] double at(double step) const;
};

}  // namespace atl
