// Eager updates (Kale, Douillard, Donchev, arXiv:2502.12996): DiLoCo whose exchange takes a whole period, during which the island trains
// on.
//
// After its t-th period island i sends Δ_i(t), and has the mean of the period before, Δ̄(t−1). It takes its own part of the new mean for
// what it is already and the others' for what it was:
//     Δ̂_i(t) = w_i·Δ_i(t) + [ Δ̄(t−1) − w_i·Δ_i(t−1) ],          w_i = 1/M in the paper, this island's weight in the mean here,
// and steps its own copy of the outer parameters by it. Without the own terms it is the paper's delayed update, Δ̂(t) = Δ̄(t−1).
//
// How it is computed. The outer optimisers are linear: with constant η and μ, what a sequence of gradients moves is the sum of what its
// terms move, and a sequence that comes one round later moves the same one round later. So the copy of island i after round t is
//     (the outer parameters after Δ̄(1), …, Δ̄(t−1), the same on all islands)
//   + (the step that the same optimiser takes at its t-th gradient when it is given w_i·Δ_i(1), …, w_i·Δ_i(t) alone).
// The first is the run's outer state: committed, digested and checkpointed as that of any strategy. The second needs one more momentum, v,
// of the island's own contributions, which is nobody else's business: it is zero for an island that joins, and losing it costs the island a
// part of one step. tests/paper/eager_test.cpp holds this against the paper's algorithm as it is written.
// Nesterov:   start = outer − η·(g + μ·(μ·v + g)),  g = w·Δ_i(t);     then, with Δ_i(t) counted in round t by w,  v <- μ·v + w·Δ_i(t).
// sgd:        start = outer − η·g; v is neither read nor changed.
// heavy_ball: start = outer + (μ·v − η·g);  v <- μ·v − η·w·Δ_i(t).
// Where we differ: an island's weight in round t is not known before the round closes, so g takes the weight of the newest round that it
// was counted in; v always takes the one it was counted by, 0 where it was not. Of each fragment the second period begins with what the
// island itself has come to, as there is no mean yet. The last round has no own term: the run ends with the outer parameters.
// Δ_i is what the others decode. Buffers have no own term.
//
// The composition "eager-diloco": fragments whole · period H = 30, overlap H · group all · payload outer-gradient · codec f32 · mean
// weighted by tokens · Nesterov with η = 0.4, μ = 0.9 · merge 0 · eager.
// Limits: with one island it is DiLoCo: start is the outer parameters to which its own contribution will lead, bit for bit. With sgd and
// η = 1 an island goes on from the mean of the round before, with its own part renewed. Without the own term: delayed.
// v is float32 also where the outer optimiser's momentum is kept in bf16 (rounded_momentum.hpp); what is bit for bit above is then so only
// up to the rounding of that.
// Cost: that of DiLoCo (diloco.hpp), spread over the whole period: an island waits only where a round takes longer than H steps. Memory: 4
// bytes a parameter for v, 4 for what the trainer went on from, and 4 for a contribution in flight, as the arena has become the trainer's.
// Threads: pure functions.
#pragma once

#include <span>

#include "strategies/aggregate.hpp"
#include "strategies/codec.hpp"
#include "strategies/outer_optimizer.hpp"
#include "transport/base/result.hpp"

namespace atl {

// An island's own contribution to a fragment, and the weight by which it counts.
struct OwnContribution {
  CodecSettings codec;
  std::span<const std::byte> bytes;  // empty: it contributed nothing
  float weight = 0.0F;
  std::span<const BufferRange> buffers = {};
};

// Whether the optimiser is linear, as the decomposition needs.
bool suits_eager(OuterOptimizerKind kind);

// start <- what the island goes on from. momentum: v, empty for sgd. Errors: invalid_argument for sizes that do not fit or another
// optimiser; corrupt if the contribution is no finite encoding, or what comes of it is not finite: `start` is unspecified then.
// Cost: one pass; reads 2n floats and the encoding, writes n.
Status eager_start(const OwnContribution& own, const OuterOptimizer& settings, std::span<const float> outer,
                   std::span<const float> momentum, std::span<float> start);

// v <- as above, of a round that is committed. Errors: as eager_start; unchanged then. Cost: one pass; reads n floats and the encoding,
// writes n.
Status eager_absorb(const OwnContribution& own, const OuterOptimizer& settings, std::span<float> momentum);

}  // namespace atl
