// DiLoCo (Douillard et al., arXiv:2311.08105, Algorithm 1): every island trains alone for H inner steps, then the mean of
// the outer gradients (old − new parameters) moves the common outer parameters by one Nesterov step, from which all go on.
//
// The composition "diloco": fragments whole · period H, overlap 0 · group all · payload outer-gradient · codec f32 ·
// mean weighted by tokens · Nesterov with η = 0.7, μ = 0.9 (§6, Table 5) · merge 0. Inner optimiser state stays on its
// island.
// Limits: sgd with η = 1 is federated averaging; one round of it is a model soup; H = 1 with an SGD inner optimiser is
// large-batch data parallelism (§2).
// The same exchange serves every composition of group `all`, so its cost is here.
//
// Cost of one round of a fragment of N values, P islands, b bits of the codec, b' of the reduce codec:
//   P = 1: nothing.   P = 2: 1 message and N·b/8 bytes sent by each.
//   P ≥ 3: 2·(P − 1) messages and about (P−1)/P·N·b/8 + (P−1)/P·N·b'/8 bytes sent by each.
//   P > 32, on two levels (transport/base/exchange_grid.hpp) with C columns and G groups, C·G = P: 2·(C − 1) + 2·(G − 1) messages and about
//   (C−1)/C·N·b/8 + (C−1)/C·N·b'/8 + 2·(G−1)/P·N·b'/8 bytes sent by each: with b = b' as many as on one level.
// A run of T inner steps has ceil(T/H) rounds: H times fewer than data-parallel.
#pragma once

#include <cstdint>

#include "strategies/codec.hpp"
#include "transport/base/exchange_grid.hpp"
#include "transport/base/result.hpp"

namespace atl {

struct RoundCost {
  std::uint64_t messages = 0;  // sent by one member, a whole contribution or shard as one (it travels in pieces)
  std::uint64_t bytes = 0;     // sent by one member: encoded values, without the pieces' headers
  friend bool operator==(const RoundCost&, const RoundCost&) = default;
};

// What member `member` (0-based, in the order of the exchange) of `members` sends, exactly. one_level: see cut_grid; of an aggregator that
// does not sum by groups (aggregate.hpp) any number.
// Errors: invalid_argument unless member < members, or for a bad codec.
Result<RoundCost> exchange_cost(std::uint64_t values, std::uint32_t members, std::uint32_t member, const CodecSettings& codec,
                                const CodecSettings& reduce_codec, std::size_t one_level = kOneLevelMembers);

// Bytes member `member` sends in a run of `total_steps` with period H. Errors: as exchange_cost and Schedule::make.
Result<RoundCost> diloco_cost(std::uint64_t values, std::uint64_t total_steps, std::uint64_t inner_steps, std::uint32_t members,
                              std::uint32_t member, const CodecSettings& codec, const CodecSettings& reduce_codec);

}  // namespace atl
