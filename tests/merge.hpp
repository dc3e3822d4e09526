// The merge, as a trainer's must come out (agent/island_link/README.md); the simulator's trainers take this one.
//
// local <- α·local + (1 − α)·global (Streaming DiLoCo, arXiv:2501.18512, Algorithm 2). α = 0 takes the global parameters and drops what was
// trained during the overlap, α = 1 keeps the local ones. The outer state keeps the global parameters either way.
#pragma once

#include <algorithm>
#include <span>
#include <string>

#include "transport/base/result.hpp"

namespace atl {

// Exact for α = 0 and α = 1; otherwise fl(fl(a·local) + fl(b·global)) with a = float32(α), b = float32(1 − α).
// Errors: invalid_argument if sizes differ or α is outside [0, 1]; unchanged then.
inline Status merge(double alpha, std::span<const float> global, std::span<float> local) {
  if (!(alpha >= 0.0 && alpha <= 1.0) || global.size() != local.size()) {
    return Error{Code::invalid_argument, "a merge of " + std::to_string(local.size()) + " local and " + std::to_string(global.size()) +
                                             " global parameters with an alpha of " + std::to_string(alpha)};
  }
  if (alpha == 0.0) {
    std::ranges::copy(global, local.begin());
  } else if (alpha < 1.0) {
    // Products of floats are exact in double, and so rounded once: no compiler can fuse them with the sum.
    const double a = static_cast<float>(alpha);
    const double b = static_cast<float>(1.0 - alpha);
    for (std::size_t i = 0; i < local.size(); ++i) {
      local[i] = static_cast<float>(a * static_cast<double>(local[i])) + static_cast<float>(b * static_cast<double>(global[i]));
    }
  }
  return {};
}

}  // namespace atl
