// The merge: what the trainer continues from once a round's result is there.
//
// local <- α·local + (1 − α)·global (Streaming DiLoCo, arXiv:2501.18512, Algorithm 2). α = 0 takes the global
// parameters and drops what was trained during the overlap, α = 1 keeps the local ones. The outer state keeps the
// global parameters either way. A trainer merges where its parameters are (agent/island_link/README.md); this is what it must come to, and
// what the simulator's trainers do. Threads: pure function.
#pragma once

#include <span>

#include "transport/base/result.hpp"

namespace atl {

// Exact for α = 0 and α = 1; otherwise fl(fl(a·local) + fl(b·global)) with a = float32(α), b = float32(1 − α).
// Errors: invalid_argument if sizes differ or α is outside [0, 1]; unchanged then.
Status merge(double alpha, std::span<const float> global, std::span<float> local);

}  // namespace atl
