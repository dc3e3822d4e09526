// The aggregator: how the members' contributions become one.
//
// weighted_mean  result[i] = (((0 + w0·c0[i]) + w1·c1[i]) + …), in float32, in the order of the members. With one contribution of
//                weight 1 the contribution itself. Breakdown point 0: one member can move it anywhere.
// trimmed_mean   for every i apart: of n contributions the k smallest and the k largest values are left out, k = ⌊(n − 1) / 3⌋, and the
//                others are weighted: Σ w_m·c_m[i] / Σ w_m in the order of the members, in float32; where all their weights are 0,
//                Σ c_m[i] / (n − 2k). Of equal values that of the earlier member counts as the smaller. After the coordinate-wise trimmed
//                mean of Yin, Chen, Ramchandran and Bartlett (2018, Definition 2). Breakdown point k of n: whatever k members send, a
//                result lies between the smallest and the largest value of the others. What it costs: of every coordinate it throws away
//                2k honest values, and heavy members do not count as such among those thrown away.
//
// A weight is the same float32 on every island because it is computed from integers by one formula: correctly rounded IEEE
// conversions and one division.
// The engine calls `aggregate` wherever contributions meet: on the owner of a shard, piece by piece, and, where two members read each
// other's contribution, on both with the outer step. To add an aggregator: an enum value with its text, and its case in aggregate.cpp.
// Threads: pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "strategies/codec.hpp"
#include "transport/base/result.hpp"

namespace atl {

enum class Weighting : std::uint8_t {
  tokens,   // by the tokens each trained on since the last round (DiLoCo, arXiv:2311.08105, §6.1)
  uniform,  // all the same
};
inline constexpr std::array<std::string_view, 2> kWeightings = {"tokens", "uniform"};
constexpr std::span<const std::string_view> names_of(Weighting) { return kWeightings; }

enum class Aggregator : std::uint8_t { weighted_mean, trimmed_mean };
inline constexpr std::array<std::string_view, 2> kAggregators = {"weighted-mean", "trimmed-mean"};
constexpr std::span<const std::string_view> names_of(Aggregator) { return kAggregators; }
// For the run file's reference.
inline constexpr const char* kAggregatorsDoc =
    "How the contributions of a round are combined into one. weighted-mean takes all. trimmed-mean leaves out the smallest and the largest "
    "of each value: of n contributions a third of n − 1 at each end, rounded down. So many islands cannot pull the result away from the "
    "others, whatever they send. It needs four islands.";

// How values that no optimiser trains (a network's buffers: BatchNorm's running mean and variance) become the same on all islands. They
// take no part in the outer step: after a round they are what the islands' own values come to.
enum class BufferShare : std::uint8_t {
  mean,  // as the contributions are combined
  one,   // those of the first contributor, in the order of the members
};
// Values [offset, offset + count) of a fragment. Ranges are in order and do not overlap.
struct BufferRange {
  std::uint64_t offset = 0;
  std::uint64_t count = 0;
  BufferShare share = BufferShare::mean;
  friend bool operator==(const BufferRange&, const BufferRange&) = default;
};

// With fewer contributions an aggregator is no better than the weighted mean.
std::uint32_t least_contributions(Aggregator aggregator);

// Weights in the order of the members, summing to 1 but for rounding (at most 2^-25 a member).
// tokens:  float32(double(tokens[i]) / double(sum of tokens)); a member that trained on none counts nothing.
// uniform: float32(1 / double(members)); the numbers of tokens are not looked at.
// Errors: invalid_argument without members, where all tokens are zero, or where their sum does not fit 64 bits.
Result<std::vector<float>> contribution_weights(std::span<const std::uint64_t> tokens, Weighting weighting);

// One encoded array and its weight.
struct EncodedTerm {
  std::span<const std::byte> bytes;
  float weight = 1.0F;
};

// The values [first, first + out.size()) of what the terms become together; `first` is a multiple of the codec's granularity.
// The terms are not checked: each has been taken by check_encoded (codec.hpp) and reaches at least to the end of the range.
// A finite result needs finite weights and terms that do not overflow together; whoever uses it looks.
// scratch: memory that is kept between calls, for aggregators that need all values of a coordinate at once.
// Cost: weighted_mean decodes each term once and writes `out` once a term. trimmed_mean decodes each term once into scratch (4 bytes for
// each value of each term) and sorts n values for each of `out`.
void aggregate(Aggregator aggregator, const CodecSettings& codec, std::span<const EncodedTerm> terms, std::uint64_t first,
               std::span<float> out, std::vector<float>& scratch);

// Of the values that `aggregate` has put into `out`, those of `buffers` that are one island's become that one's. The first of `out` is
// value `position` of the fragment. Cost: decodes the first term once more where there is such a buffer.
void take_from_one(std::span<const BufferRange> buffers, const CodecSettings& codec, std::span<const EncodedTerm> terms,
                   std::uint64_t first, std::uint64_t position, std::span<float> out, std::vector<float>& scratch);

}  // namespace atl
