// Decoupled DiLoCo (arXiv:2604.21428): Streaming DiLoCo in which no island waits for another. The paper has no public code; what is known
// of it here is second-hand, so no test calls a figure the paper's.
//   learner m, for ever:   θ_m <- InnerOpt(θ_m);  where a newer outer fragment has arrived:  θ_m[p] <- Θ_p
//   a round of fragment p: as soon as `quorum` contributions are there, and a grace time is over, with those that are there then:
//                          Δ_m = Θ_p − θ_m[p];   w_m = tokens_m² / steps_m;
//                          Δ = RDA_w(Δ_m), of embeddings the weighted mean;   Θ_p <- OuterOpt_p(Θ_p, Δ)
//
// What is the paper's: everybody receives every result and takes it in place of its own (α = 0); who is late contributes to the next round
// of the fragment; the anchor, from which Δ_m is taken, is the newest outer fragment when Δ_m is merged ("newest"); weights of tokens² over
// steps since the fragment was taken over (quantity times quality); radial-directional averaging; P = 24 fragments, H = 24, τ = 2, K = 1,
// bf16; tensors are put into fragments by size, each into the smallest so far (bin-packed).
//
// What is ours:
//   · An island takes a newer result over once it has published what it trained on that fragment since it took the last one, and not
//     before: what it trained is in a contribution, and not overwritten. What the overlap overwrites is counted out of the weight.
//     Where a round was held up so long that the next one is due on this island (a slower island, one that died), it publishes once more
//     first: with the anchor "newest" that contribution has what the island did since its last one, and the difference of both models. With
//     "own" it would count twice what it published before, so there the result is taken at once.
//   · The quorum is of contributions that are on time. One that missed its round counts in a later one, and closes none.
//   · With pace "adaptive" (the default here) the others are told when the first contribution to a round is there, and publish what they
//     have. Where the grace time is as long as a step of the slowest island, islands of any speed are in every round.
//   · anchor "own" takes Δ_m from the outer fragment that the island trained from. A late Δ_m is then no pull back to an older Θ_p.
//   · A contribution that missed more than max_staleness rounds of its fragment does not count, and its island is told so.
//   · The grace time is γ = 1/2 of what the overlap hides beside the exchange (coordinator/core/decide.hpp, decide_grace): γ is not known.
//     With adaptive pace it is at least 1.25 steps of the slowest island, where τ of its steps are that long.
//   · The coordinator decides when a round closes, and carries no parameter: members reduce the contributions among themselves, as in every
//     round, so that all hold the same bytes and a digest says so.
// The number of a round belongs to the run. A run ends after the rounds of [training].steps inner steps of its fastest islands (those of
// the quorum); slower ones do fewer. A trainer's step, and with it its learning rate, is the run's: it moves to that of the round that the
// others have come to. With [training].tokens the run ends once so many are committed, and the learning rate follows them.
//
// Limits: with the quorum of all islands, the weighted mean and weights by tokens, and where results come within the overlap, it is
// streaming-diloco, bit for bit (tests/sim/decoupled_test.cpp). RDA of one contribution is that contribution.
//
// Cost of one round of a fragment of N/F values: as in diloco.hpp with N/F in place of N, for all members, late ones included: they read
// the result, and send their share of the reducing. Memory of an island beside its trainer: 4N arena, 4N outer parameters, 4N (in bf16 2N)
// momentum, and of each fragment in flight 4 bytes a value for its contribution, and as much again while a newer result waits to be taken
// over.
#pragma once

#include "strategies/composition.hpp"
#include "strategies/streaming_diloco.hpp"
