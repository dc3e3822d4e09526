// The aggregator: how the members' contributions become one.
//
// A weight is the same float32 on every island because it is computed from integers by one formula: correctly rounded
// IEEE conversions and one division. The mean is summed in the order of the members, in float32, product by product:
// mean[i] = (((0 + w0·c0[i]) + w1·c1[i]) + …). That is bit for bit what codec.hpp's decode_accumulate does from zeros.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "transport/base/result.hpp"

namespace atl {

enum class Weighting : std::uint8_t {
  tokens,   // by the tokens each trained on since the last round (DiLoCo, arXiv:2311.08105, §6.1)
  uniform,  // all the same
};

// Weights in the order of the members, summing to 1 but for rounding (at most 2^-25 a member).
// tokens:  float32(double(tokens[i]) / double(sum of tokens)); a member that trained on none counts nothing.
// uniform: float32(1 / double(members)); the numbers of tokens are not looked at.
// Errors: invalid_argument without members, where all tokens are zero, or where their sum does not fit 64 bits.
Result<std::vector<float>> contribution_weights(std::span<const std::uint64_t> tokens, Weighting weighting);

// Errors: invalid_argument if there are no contributions, or their number or sizes differ from `weights` and `mean`.
// Cost: reads each contribution once; writes `mean` once per contribution.
Status weighted_mean(std::span<const std::span<const float>> contributions, std::span<const float> weights, std::span<float> mean);

}  // namespace atl
