// Streaming DiLoCo (Douillard et al., arXiv:2501.18512, Algorithm 2): DiLoCo whose parameters are synchronised fragment by
// fragment, in turns, while the islands go on training. For fragment p with offset t_p = floor(p·H/F):
//   at step t, (t − t_p) mod H = 0:        Δ_p = θ_p(outer) − θ_p(local, t); it is encoded, sent, decoded and summed in float32
//   at step t + τ:                         θ~_p = OuterOpt_p(θ_p(outer), mean Δ_p), by Nesterov with a momentum per fragment
//                                          θ_p(local) <- α·θ_p(local, t + τ) + (1 − α)·θ~_p
// θ~_p is the next reference, the same on all islands, never the mixed local value. τ and the first synchronisation are
// explained in schedule.hpp, the merge in agent/island_link/README.md, the fragments in fragments.hpp, E3M0 in codec.hpp.
//
// The composition "streaming-diloco": fragments strided, 3 layers each, embeddings and head as one more · period H = 100,
// overlap τ = 1 · group all · payload outer-gradient · codec fp4, reduce codec int8 · mean weighted by tokens · Nesterov with
// η = 0.4, μ = 0.9 · merge α = 0.5. These are the paper's: strided fragments of three layers at every scale (§2.2), H of its
// Dolma runs and bandwidth tables, τ of its main runs and FP4 outer gradients (§2.4), η tuned once and kept at all scales
// (§3.2), α of its ablations, a uniform merge.
// The reduce codec is ours: the paper's islands decode and sum everyone's codes, which costs P − 1 times the bytes; three or
// more islands here share the sum out and encode its shards once more. Of the mean of four fp4 contributions that second
// encoding would add 40 % to the error if it were fp4 again, 0.05 % with int8, 0.001 % with bf16 (measured by
// tests/paper/streaming_test.cpp): int8 is the smallest that costs nothing.
// Limits: one fragment, τ = 0, α = 0 and codec f32 is DiLoCo with these outer settings, bit for bit.
//
// Cost of one round of a fragment of N/F values: as in diloco.hpp with N/F in place of N. Over a period of H steps each island
// sends as many bytes as a DiLoCo round of the same codecs, in F parts: the peak is that of the largest fragment, about F
// times lower. fp4 with blocks of 256 is 4.125 bits a value, int8 8.125.
#pragma once

#include "strategies/composition.hpp"
#include "strategies/diloco.hpp"
