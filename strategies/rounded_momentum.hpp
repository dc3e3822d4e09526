// The outer optimiser's momentum in bf16: 2 bytes a value between rounds instead of 4 ([strategy].outer_state = "bf16").
//
// The outer step decodes a value of the momentum, computes in float32, moves the parameter with what it computed, and rounds only what is
// kept for the next round. The outer parameters are float32 always.
//
// Rounding is stochastic. To the nearest, a momentum would stay where it is as soon as one round's change is less than half the distance
// of its neighbours in bf16, which is |m|/512 to |m|/256: with μ = 0.9 it would stop up to 4 % away from where it tends to, and from
// μ = 0.997 on it would never decay. Stochastic rounding is right on average, whatever μ is.
//     One rounding moves a value by less than 2^-7·|m|, by 0 on average, with a standard deviation of at most 2^-8·|m|.
//     Over all rounds a kept momentum differs from one in float32 by less than 2^-7·max|m|/(1 − μ); the standard deviation of that is at
//     most 2^-8·max|m|/sqrt(1 − μ²), 0.9 % at μ = 0.9.
// A value that would round to infinity becomes the largest finite one.
//
// The random number of a value is a pure function of the round's seed and of the value's position in the outer state. So all islands keep
// the same bits, whatever their threads and in whatever ranges they take the step, and an island that applies a round later than the
// others keeps them, too.
// Threads: plain values and pure functions; disjoint ranges may be read and written concurrently.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "strategies/choices.hpp"
#include "strategies/codec.hpp"

namespace atl {

// In which bits the momentum is kept between rounds.
enum class OuterStateFormat : std::uint8_t { f32, bf16 };
inline constexpr std::array<std::string_view, 2> kOuterStateFormats = {"f32", "bf16"};
constexpr std::span<const std::string_view> names_of(OuterStateFormat) { return kOuterStateFormats; }
constexpr std::uint64_t bytes_a_value(OuterStateFormat format) { return format == OuterStateFormat::bf16 ? 2 : 4; }

// A range of such a momentum, encoded as codec.hpp has it. It begins as zeros.
struct RoundedMomentum {
  std::span<std::byte> bytes;  // 2 a value; empty where the momentum is float32
  EncodePosition at = {};      // where the range begins in the outer state, a multiple of 16; and the seed of the round
  [[nodiscard]] std::size_t size() const { return bytes.size() / 2; }
  // From this value on, a multiple of 16.
  [[nodiscard]] RoundedMomentum from(std::size_t first) const { return {bytes.subspan(2 * first), {at.position + first, at.seed}}; }
};

// values <- the first of the momentum, exactly. Cost: one pass.
void decode_momentum(const RoundedMomentum& momentum, std::span<float> values);
// The first of the momentum <- values, rounded; a value that bf16 has stays as it is. Cost: one pass, 16 random bits a value.
void round_momentum(std::span<const float> values, const RoundedMomentum& momentum);

}  // namespace atl
