// FedBuff (Nguyen et al., arXiv:2106.06639): buffered asynchronous merging. A round is a buffer of K contributions, of whatever age.
//   island i, for ever:  θ_i <- Θ;  H inner steps;  Δ_i = Θ_i − θ_i, Θ_i the outer parameters that it went on from
//   a round:             as soon as K contributions lie in the buffer, whoever made them and however late they are:
//                        Θ <- OuterOpt(Θ, the mean of Δ_i);  the buffer is empty
//
// The composition "fedbuff": fragments whole · period H = 100, no overlap, each island its H steps · group all · payload outer-gradient ·
// codec f32 · quorum K = 2 of contributions of any age, no grace · anchor own · mean of all alike · SGD, η = 1, no momentum · merge 0.
//
// What is the paper's: K, and that age decides nothing; a contribution is taken from the parameters that its island started from; the
// mean is of K, all alike; islands go on at once.
// What is ours:
//   · A round takes all that lies in its buffer when it closes. That is more than K where contributions came while the round before it
//     was being exchanged.
//   · There is no server. The coordinator closes the round and carries no parameter: all members reduce the K contributions among
//     themselves, so that each has the same bytes.
//   · An island has one contribution at most in a buffer. With K islands or fewer that is DiLoCo's barrier without a place to wait at.
//   · The paper's experiments scale a contribution that missed s rounds by 1/√(1+s). We do not: others measured weights of 1/(1 + λ·s)
//     for λ from 0.25 to 4 over asynchronous DiLoCo, and found no difference beyond the seeds'.
//   · max_staleness bounds the age all the same, at a million rounds by default; with a smaller one it is buffered merging of bounded age.
// How it differs from decoupled-diloco: there late contributions count beside the quorum, and K islands that are on time set the pace. Here
// late ones fill the buffer: the slow and the fast set the pace together, and a round closes where all but one are late.
//
// The run's steps go on by H with each round, so a run of N steps merges N/H·K contributions or some more.
// Limits: with K of all islands, equally fast, weights by tokens and the same outer optimiser it is streaming-diloco's rounds, bit for bit
// (tests/sim/decoupled_test.cpp); with K = 1 each contribution is a round of its own.
// Cost: as decoupled_diloco.hpp of one fragment. Memory of an island beside its trainer: 4N arena, 4N outer parameters, 4N for the outer
// parameters that it went on from, and 4 bytes a value for a contribution in flight.
#pragma once

#include "strategies/composition.hpp"
