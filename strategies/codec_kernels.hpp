// The inner loops of the codecs, without checks: codec.cpp and the fused outer step are their only callers.
//
// Sizes are in values; `codes` and `bytes` need no alignment. Results are the same at every vector width.
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "strategies/codec.hpp"

namespace atl::kernels {

inline constexpr std::uint32_t kInfinityBits = 0x7f800000U;  // without sign; those of a NaN are more

// The largest |x| as its bits without sign: an infinity or a NaN is 0x7f800000 or more.
std::uint32_t max_magnitude(const float* values, std::size_t count);
std::uint32_t max_magnitude_f32(const std::byte* bytes, std::size_t count);
std::uint32_t max_magnitude_bf16(const std::byte* bytes, std::size_t count);  // as the float's bits

// words[i]: word (position + i) mod 4 of base's philox block (position + i) / 4 under the seed; position is a multiple of 4.
void random_words(std::uint64_t seed, std::uint64_t position, std::uint32_t* words, std::size_t count);

void encode_bf16(const float* values, std::size_t count, std::byte* bytes);
void encode_bf16_stochastic(const float* values, const std::uint32_t* random, std::size_t count, std::byte* bytes);
void decode_bf16(const std::byte* bytes, std::size_t count, float* values);

// The scale for a block with this absmax; 0 where the block becomes zeros.
float int8_scale(float absmax);
float fp4_scale(float absmax);
// The largest scales whose decoded values are finite for every code.
constexpr float kMaxInt8Scale = 0x1.FFFEp+120F;
constexpr float kMaxFp4Scale = 0x1.FFFFFEp+121F;

// One block (or its part, beginning at an even value) of codes; scale > 0 when encoding.
void encode_int8(const float* values, std::size_t count, float scale, std::byte* codes);
void encode_int8_stochastic(const float* values, const std::uint32_t* random, std::size_t count, float scale, std::byte* codes);
void decode_int8(const std::byte* codes, std::size_t count, float scale, float* values);
void encode_fp4(const float* values, std::size_t count, float scale, std::byte* codes);
void encode_fp4_stochastic(const float* values, const std::uint32_t* random, std::size_t count, float scale, std::byte* codes);
void decode_fp4(const std::byte* codes, std::size_t count, float scale, float* values);

// sum[i] = fl(sum[i] + fl(weight · values[i])).
void accumulate(const float* values, float weight, std::size_t count, float* sum);

// Bytes that check_encoded has accepted.
void decode(const CodecSettings& settings, const std::byte* bytes, std::size_t count, float* values);
void decode_accumulate(const CodecSettings& settings, const std::byte* bytes, float weight, std::size_t count, float* sum);

}  // namespace atl::kernels
