// CO2 (Sun et al., arXiv:2401.16265): local updates whose exchange takes a whole period, with a penalty for the staleness gap and a clipped
// outer momentum. After its period every island sends Δ(t) = x_t − x_t(local, H), trains on, and takes the outer step a period later:
//     m <- β·m + Δ̄/Λ_t;   m <- clip(m, −φ, φ);   x <- x − η·m.
// The step is theirs, and its clip clips: in the published code the result of the clip is dropped, and Λ is a constant 1.
//
// Λ is ours. The paper computes Λ_t in each round from the staleness gap, and supposes an inner learning rate that only falls; its exact
// expression is not known to us. What is stale in Δ̄ is where it was formed: at x_{t−1}, one outer step before the x_t that it moves. So
// here Λ_t compares how far that step went with how far Δ̄ goes:
//     Λ_t = 1 + |x_t − x_{t−1}| / |Δ̄| = 1 + η·|m| / |Δ̄|,       m before the step, norms over the fragment.
// It is 1 for the first step and wherever nothing is stale, is computed from what all islands have, and needs no state beyond m. Where the
// contributions stay alike, m tends to Δ̄ / (Λ·(1 − β)), so Λ to (1 + √(1 + 4·η/(1 − β)))/2: 2 for η = 1, β = 0.5.
//
// The composition "co2": fragments whole · period H = 48, overlap H · group all · payload outer-gradient · codec f32 · uniform mean ·
// clipped-momentum with η = 1, β = 0.5, φ = 1, gap_penalty · merge 0; these are the defaults of the paper's code, and its largest period.
// Limits: φ = 0 and no penalty is momentum SGD of delayed contributions; besides, β = 0 and η = 1: what each island goes on from is the
// mean of what all had a period ago.
// Cost: that of DiLoCo (diloco.hpp), spread over the whole period. Memory: of eager.hpp without its v.
// Threads: pure functions.
#pragma once

namespace atl {

// Λ for a mean of this norm, after an outer step of norm `moved`; 1 where the mean is nothing.
inline double staleness_gap(double norm, double moved) { return norm > 0.0 ? 1.0 + moved / norm : 1.0; }

}  // namespace atl
