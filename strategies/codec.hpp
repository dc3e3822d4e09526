// Codecs: in which bits a contribution or a reduced result travels.
//
// f32   4 bytes a value, little-endian IEEE 754. Exact.
// bf16  2 bytes a value: the upper half of the float, little-endian. |error| ≤ 2^-8 · |x| nearest, 2^-7 · |x| stochastic;
//       for |x| below 2^-126 at most 2^-133. Values that would round to infinity become the largest finite one.
// int8  for each block of `block` values (the last may be shorter): float32 scale s, then one signed byte c a value;
//       x ≈ c·s. s is absmax/127, rounded up to 17 significant bits so that c·s is exact. |error| ≤ 0.51·s nearest, ≤ 1.01·s
//       stochastic, and s ≤ absmax/126.9.
// fp4   for each block: float32 scale s = absmax/64, then 4 bits a value, the earlier value in the low half, a last odd
//       half zero: sign bit (8) and code 0…7; code 0 is zero, code c is ±s·2^(c-1). The E3M0 of Streaming DiLoCo
//       (arXiv:2501.18512, §2.4), which specifies neither bias, scaling nor rounding: those here are ours. Rounding is to
//       the nearest with linear midpoints (1.5·2^j·s, below s/2 to zero; a tie goes up): error ≤ |x|/3 for |x| ≥ s, ≤ s/2
//       below.
// In int8 and fp4 a block whose absmax is below 2^-100 becomes zeros. In int8 values above 0.99 · 2^128 are saturated there.
//
// Stochastic rounding is unbiased (to 2^-17 of the step between neighbours); its random number for the value at position i
// of the contribution is a pure function of (seed, i).
//
// Piece granularity: a contribution may be encoded and decoded in pieces, each alone, when every piece begins at a
// multiple of `piece_granularity`; the concatenated pieces are the bytes of the whole.
//
// Deterministic: the same bytes on every machine. Decoding then encoding (nearest) gives the same bytes again.
//
// Threads: pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "strategies/choices.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/in_parts.hpp"
#include "transport/base/result.hpp"

namespace atl {

// Grows with any change of a byte layout or of a rounding. Islands of different versions never meet in a run: the coordinator refuses at
// hello whoever has another than its own.
inline constexpr std::uint32_t kCodecVersion = 1;

enum class CodecKind : std::uint8_t { f32, bf16, int8, fp4 };
inline constexpr std::array<std::string_view, 4> kCodecKinds = {"f32", "bf16", "int8", "fp4"};
constexpr std::span<const std::string_view> names_of(CodecKind) { return kCodecKinds; }
enum class Rounding : std::uint8_t { nearest, stochastic };
inline constexpr std::array<std::string_view, 2> kRoundings = {"nearest", "stochastic"};
constexpr std::span<const std::string_view> names_of(Rounding) { return kRoundings; }

// How what is encoded travels: as it is, or each piece without what the codec leaves redundant (transport/bulk/packing.hpp).
enum class Packing : std::uint8_t { none, zstd };
inline constexpr std::array<std::string_view, 2> kPackings = {"none", "zstd"};
constexpr std::span<const std::string_view> names_of(Packing) { return kPackings; }

struct CodecSettings {
  CodecKind kind = CodecKind::f32;
  std::uint32_t block = 256;              // values that share a scale; of int8 and fp4; a multiple of 16, at most 65536
  Rounding rounding = Rounding::nearest;  // of all but f32
  friend bool operator==(const CodecSettings&, const CodecSettings&) = default;
};

// Errors: invalid_argument for a block that is not allowed.
Status check_codec(const CodecSettings& settings);

// 16 for f32 and bf16, the block for int8 and fp4.
std::uint32_t piece_granularity(const CodecSettings& settings);
// Where shards may begin that suit both halves of an exchange: the least common multiple of the two granularities.
std::uint64_t shard_granularity(const CodecSettings& contribution, const CodecSettings& reduced);
// About so many values, to be encoded or decoded in one pass: pieces of both codecs may begin at each multiple of it.
std::uint64_t values_at_once(std::uint64_t about, const CodecSettings& one, const CodecSettings& other);
inline std::uint64_t values_at_once(std::uint64_t about, const CodecSettings& codec) { return values_at_once(about, codec, codec); }
// For plans, before there is anything encoded: bytes of `count` values where they are computed with; count ≤ 2^58. Packed they travel as
// fewer. Whoever holds an encoding asks that: its size, or what follows.
std::uint64_t encoded_bytes(const CodecSettings& settings, std::uint64_t count);
// Whether so many bytes can be an encoding of `count` values.
bool can_encode(const CodecSettings& settings, std::uint64_t bytes, std::uint64_t count);
// The bytes of an encoding from value `first` on, a multiple of piece_granularity.
std::span<const std::byte> encoded_from(const CodecSettings& settings, std::span<const std::byte> encoding, std::uint64_t first);
// Those of `count` values of it, which end at such a multiple or with the encoding.
std::span<const std::byte> encoded_part(const CodecSettings& settings, std::span<const std::byte> encoding, std::uint64_t first,
                                        std::uint64_t count);

// Where the values lie in the contribution, and the seed of its rounding.
struct EncodePosition {
  std::uint64_t position = 0;  // of the first value; a multiple of piece_granularity
  std::uint64_t seed = 0;      // of stochastic rounding
};

// Errors: corrupt if a value is not finite, naming its position; invalid_argument for bad settings, a position that is not
// a multiple of the granularity, or an `out` that is not exactly encoded_bytes long. On error `out` is unspecified.
// Cost: one pass (nearest); allocates nothing.
Status encode(const CodecSettings& settings, std::span<const float> values, std::span<std::byte> out, EncodePosition at = {});
// The same into memory of its own.
Result<Bytes> encoding_of(const CodecSettings& settings, std::span<const float> values, EncodePosition at = {});

// That the bytes are an encoding of `count` finite values. Errors: corrupt, with the index of the first value at fault.
Status check_encoded(const CodecSettings& settings, std::span<const std::byte> bytes, std::uint64_t count,
                     const InParts& in_parts = one_after_another);

// As check_encoded, and what no |decoded value| exceeds: the largest itself in f32 and bf16, that of the largest scale in
// int8 and fp4.
Result<float> encoded_bound(const CodecSettings& settings, std::span<const std::byte> bytes, std::uint64_t count,
                            const InParts& in_parts = one_after_another);

// Errors: as check_encoded; then `values` is unchanged.
Status decode(const CodecSettings& settings, std::span<const std::byte> bytes, std::span<float> values);

// sum[i] = fl(sum[i] + fl(weight · value[i])), so that a reduction in a fixed order needs no scratch.
// Errors: as check_encoded; then `sum` is unchanged.
Status decode_accumulate(const CodecSettings& settings, std::span<const std::byte> bytes, float weight, std::span<float> sum);

}  // namespace atl
