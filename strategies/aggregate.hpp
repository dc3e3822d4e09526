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
// radial_directional  RDA of Decoupled DiLoCo (arXiv:2604.21428; known to us by others' notes): M nearly orthogonal vectors of length ρ
//                have a mean of length ρ/√M, so length and direction are averaged apart:
//                    RDA = R · s/|s|,  R = Σ w_m·|v_m| / Σ w_m,  s = Σ w_m·(R/|v_m|)·v_m,
//                norms over the trained values of the whole fragment. `aggregate` gives s, a sum like any other, so that a shard is put
//                together piece by piece; the outer step multiplies it by R/|s| once all of it is there (radial_factor). Where R is 0 it is
//                the weighted mean. A contribution of norm 0 has no direction, and shortens R. Directions that cancel (|s| < R/1024) leave
//                s as it is: the mean of the contributions at equal length, where all norms are equal the weighted mean itself. One
//                contribution is taken as it is. Breakdown point 0, and norms are believed: an island that says a smaller one than its
//                contribution has turns the direction to itself.
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

#include "strategies/buffer_ranges.hpp"
#include "strategies/codec.hpp"
#include "transport/base/result.hpp"

namespace atl {

enum class Weighting : std::uint8_t {
  tokens,   // by the tokens each trained on since the last round (DiLoCo, arXiv:2311.08105, §6.1)
  uniform,  // all the same
  // By tokens²/steps (Decoupled DiLoCo, arXiv:2604.21428): quantity, the tokens, times quality, the tokens of a step.
  tokens_squared_per_step,
};
inline constexpr std::array<std::string_view, 3> kWeightings = {"tokens", "uniform", "tokens-squared-per-step"};
constexpr std::span<const std::string_view> names_of(Weighting) { return kWeightings; }

enum class Aggregator : std::uint8_t { weighted_mean, trimmed_mean, radial_directional };
inline constexpr std::array<std::string_view, 3> kAggregators = {"weighted-mean", "trimmed-mean", "radial-directional"};
constexpr std::span<const std::string_view> names_of(Aggregator) { return kAggregators; }
// For the run file's reference.
inline constexpr const char* kAggregatorsDoc =
    "How the contributions of a round are combined into one. weighted-mean takes all. trimmed-mean leaves out the smallest and the largest "
    "of each value: of n contributions a third of n − 1 at each end, rounded down. So many islands cannot pull the result away from the "
    "others, whatever they send. It needs four islands, and beyond 32 each of them connects to all others. radial-directional averages "
    "lengths and directions of the contributions to a "
    "fragment apart, as contributions that differ much have a mean that is much shorter than each; for the fragment of the embeddings it "
    "is the weighted mean.";

// With fewer contributions an aggregator is no better than the weighted mean.
std::uint32_t least_contributions(Aggregator aggregator);

// Weights in the order of the members, summing to 1 but for rounding (at most 2^-25 a member).
// tokens:  float32(double(tokens[i]) / double(sum of tokens)); a member that trained on none counts nothing.
// uniform: float32(1 / double(members)); the numbers of tokens are not looked at.
// A member with one token and, where the steps are known, without a step holds nothing: its weight is 0, and it is not among the members
// that the others' weights are shares of; unless all are such.
// tokens_squared_per_step: float32(q[i] / sum of q), q[i] = double(tokens[i])·double(tokens[i]) / double(steps[i]), summed in the order of
//          the members; no step counts as one.
// Errors: invalid_argument without members, where all tokens are zero, where their sum does not fit 64 bits, or without a number of steps
// for each member that they are weighted by.
Result<std::vector<float>> contribution_weights(std::span<const std::uint64_t> tokens, Weighting weighting,
                                                std::span<const std::uint64_t> steps = {});

// One encoded array and its weight.
struct EncodedTerm {
  std::span<const std::byte> bytes;
  float weight = 1.0F;
  // Of radial_directional: the norm of its trained values, and where it is a sum, R. 0 where nobody counts it.
  double norm = 0.0;
};

// R of radial_directional: Σ w·|v| / Σ w in double, in the order of the terms; 0 for the other aggregators' terms, which have no norms.
double radial_length(std::span<const EncodedTerm> terms);
// With which factor a term is summed to s: w·R/|v|, 0 without a direction; its weight where R is 0.
float weight_in_sum(const EncodedTerm& term, double radial_length);
// What s is to be multiplied by: float32(R / norm_of_s), and 1 where R is 0 or the directions cancel.
float radial_factor(double radial_length, double norm_of_s);

// That a contribution, or a part of one, has no value beyond the norm that its island has said, so that no sum overflows for it.
// Errors: as check_encoded; corrupt with both numbers. Cost: one pass.
Status check_norm(const CodecSettings& codec, std::span<const std::byte> bytes, std::uint64_t count, double norm);

// The values [first, first + out.size()) of what the terms become together; `first` is a multiple of the codec's granularity.
// The terms are not checked: each has been taken by check_encoded (codec.hpp) and reaches at least to the end of the range.
// A finite result needs finite weights and terms that do not overflow together; whoever uses it looks.
// scratch: memory that is kept between calls, for aggregators that need all values of a coordinate at once.
// Cost: weighted_mean and radial_directional decode each term once and write `out` once a term. trimmed_mean decodes each term once into
// scratch (4 bytes for each value of each term) and sorts n values for each of `out`.
void aggregate(Aggregator aggregator, const CodecSettings& codec, std::span<const EncodedTerm> terms, std::uint64_t first,
               std::span<float> out, std::vector<float>& scratch);

// Where an exchange has two levels (transport/base/exchange_grid.hpp) a sum is taken of each group, and then of the groups' sums. Of an
// aggregator that needs all values of a coordinate at once there is no such sum: its rounds have one level, whatever their size.
bool sums_by_groups(Aggregator aggregator);

// Whether its sum needs the norm of each contribution.
bool needs_norms(Aggregator aggregator);
// Of the terms of one group, with their weights among all: what they add to the sum of all. `length`: radial_length of the terms of all
// groups, those without bytes included. `position` and `buffers` as for share_buffers.
void aggregate_group(Aggregator aggregator, const CodecSettings& codec, std::span<const EncodedTerm> terms, double length,
                     std::span<const BufferRange> buffers, std::uint64_t position, std::span<float> out, std::vector<float>& scratch);
// Of all groups' sums, encoded with `codec`, in the order of the groups' first contributors: the sum of all.
void aggregate_groups(const CodecSettings& codec, std::span<const EncodedTerm> terms, std::span<const BufferRange> buffers,
                      std::uint64_t position, std::span<float> out, std::vector<float>& scratch);

// Of the values that `aggregate` has put into `out`, those of `buffers` become what their share says. The first of `out` is value
// `position` of the fragment. Cost: decodes the first term, or with radial_directional all, once more where there is such a buffer.
void share_buffers(Aggregator aggregator, std::span<const BufferRange> buffers, const CodecSettings& codec,
                   std::span<const EncodedTerm> terms, std::uint64_t first, std::uint64_t position, std::span<float> out,
                   std::vector<float>& scratch);

}  // namespace atl
