// NoLoCo (Kolehmainen et al., arXiv:2506.10911): gossip instead of an all-reduce. Every island i keeps an outer state of its own,
// parameters φ_i and momentum m_i. In every round islands meet in random groups of n (two, as a rule); θ_i is what the
// island's trainer made of φ_i in H inner steps, g_i = φ_i − θ_i its outer gradient:
//     m_i <- α·m_i − β·mean_j g_j + γ·(mean_j φ_j − φ_i)         j over the group, i among them            (eq. 2)
//     φ_i <- φ_i + m_i;   the trainer goes on from φ_i                                                     (eq. 3)
// The sign: eq. 1 prints Δ = new − old and eq. 2 "− β·mean Δ", which would walk away from what was trained. The paper's own
// appendix (eq. 32) and its code add, and so do we: our outer gradient is old − new and is subtracted.
// The last term pulls the outer states together; nothing else does. In a group of all islands with equal φ it vanishes and
// what is left is DiLoCo with a heavy-ball outer optimiser; alone, it is momentum on a single island.
//
// The pull is stable only inside an interval (eq. 74), which depends on the group's size:
//     sqrt(n/(2(n−1)))·α < γ < sqrt(n/(2(n−1))·(2 + α²))         n = 2, α = 0.5: 0.5 < γ < 1.5
// Inside it the variance of φ between islands stays bounded and is proportional to the square of the inner learning rate (Theorem 1).
//
// Pairings are in pairing.hpp, the arithmetic in outer_optimizer.hpp, the spread between islands in projection.hpp, the times
// that it saves in gossip_timing.hpp.
//
// Cost of one round of a fragment of N values in a group of n, b bits of the codec, b' of the codec of the outer parameters:
//   2·(n − 1) messages and (n − 1)·N·(b + b')/8 bytes sent by each, of which (n − 1)·N·b'/8 may travel during the inner steps: the group
//   is known a round ahead. Nobody waits for anybody outside of the group. Left over: nothing.
#pragma once

#include <cstdint>

#include "strategies/codec.hpp"
#include "strategies/diloco.hpp"
#include "transport/base/result.hpp"

namespace atl {

// Open: neither end belongs to it.
struct PullInterval {
  double low = 0;
  double high = 0;
};

// The proven interval of γ. group_size ≥ 2, momentum in [0, 1).
PullInterval pull_interval(double momentum, std::uint32_t group_size);

// Errors: invalid_argument naming the interval if γ is not inside.
Status check_pull(double pull, double momentum, std::uint32_t group_size);

// What each member of a group sends in a round, exactly; nothing where group_size is 1. Errors: those of check_codec.
Result<RoundCost> gossip_cost(std::uint64_t values, std::uint32_t group_size, const CodecSettings& codec,
                              const CodecSettings& parameters_codec);

}  // namespace atl
