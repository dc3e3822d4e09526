// Random projections of an island's outer parameters: a few hundred bytes from which the distance between islands can be told
// without sending parameters.
//
// Parameter n is added with a random sign to one of kProjections sums, sum and sign being a function of (seed, n) alone (a
// count sketch, after Charikar, Chen and Farach-Colton 2002, in the form of Thorup and Zhang 2004). The projection is
// linear, so that of a difference is the difference of the projections, and for x = φ_i − φ_j
//     E ‖Sx‖² = ‖x‖²,    Var ‖Sx‖² = 2/K · (‖x‖₂⁴ − ‖x‖₄⁴) ≤ 2/K · ‖x‖⁴           K = kProjections = 128
// over random seeds: the squared distance is unbiased with a relative standard deviation of at most sqrt(2/128) = 12.5 %, the distance
// itself of about 6 %. The mean of the squared distances of several islands to their mean is linear in such terms, so the same holds for it
// (and it varies less, the more directions the islands differ in).
// Sums are in double and sent as float32: the rounding adds about 2^-24 of ‖φ‖ to a distance, nothing beside a spread of more than 10^-6 of
// it.
//
// Cost: one pass over the parameters, about 2 ns each: a quarter of a Philox block and one addition. 512 bytes a round.
// Threads: pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace atl {

inline constexpr std::size_t kProjections = 128;
using Projection = std::array<double, kProjections>;

// Adds the values at positions [position, position + values.size()) of the parameter vector to the sums.
// position is a multiple of 4: one Philox block serves four parameters.
void project(std::uint64_t seed, std::uint64_t position, std::span<const float> values, Projection& sums);

}  // namespace atl
