// The outer optimiser: how the outer state (the last synchronised parameters and their momentum) moves by a round's
// reduced result.
//
// nesterov  SGD with Nesterov momentum exactly as torch.optim.SGD(nesterov=True, dampening=0), which DiLoCo's public
//           implementations use (arXiv:2311.08105, Algorithm 1, "OuterOpt"):
//               b <- μ·b + g;  d <- g + μ·b;  θ <- θ − η·d.
//           torch sets b <- g at the first step; a momentum that begins as zeros gives the same: μ·0 + g = g.
//           Each product, sum and difference is rounded to float32 on its own (torch may fuse some of them).
// heavy_ball  m <- μ·m − η·g;  θ <- θ + m: the momentum is a displacement and there is no look-ahead, as in the baseline of
//           NoLoCo's public code. Given a group's outer parameters it is NoLoCo's modified momentum (arXiv:2506.10911, eq. 2
//           and 3, with the sign that works, see noloco.hpp), α = momentum, β = learning_rate, γ = pull:
//               m <- α·m − β·g + γ·(mean_j φ_j − φ);  φ <- φ + m.
//           Each product, sum and difference is rounded to float32 on its own.
// clipped_momentum  m <- clip(μ·m + g/Λ, −φ, φ), each value apart;  θ <- θ − η·m: CO2's (co2.hpp, which has Λ); φ = 0 does not clip, and
//           without gap_penalty Λ is 1.
// sgd       θ <- θ − η·g; the momentum is neither read nor changed.
// adopt     θ <- the given values, exactly; the momentum is neither read nor changed.
// The gradient is old minus new, the weighted mean over contributors of (outer parameters − local parameters).
//
// The forms that take a ReducedResult decode it block by block, so that no array of gradients is ever written. With radial_directional g is
// s·R/|s| (aggregate.hpp): the result is decoded once more before, for |s|, and multiplied in the cache as the step reads it.
// All: state unchanged on error. Errors: invalid_argument if sizes differ or a setting is out of its range; corrupt if the
// gradient is not finite, naming the index.
// Cost for n parameters: nesterov, heavy_ball and clipped_momentum read 3n and write 2n floats (with a momentum in bf16 half a float less
// each, and 16 random bits a value), sgd 2n and n, adopt n and n; besides that the check reads the gradient (or its encoded bytes) once
// more before, and gap_penalty gradient and momentum. A group of P is read P·n more, checked and decoded. No allocation beyond a few chunks
// (at most 256 KiB each) per call. Threads: pure functions; disjoint ranges of one state may be stepped concurrently.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "strategies/aggregate.hpp"
#include "strategies/codec.hpp"
#include "strategies/rounded_momentum.hpp"
#include "transport/base/in_parts.hpp"
#include "transport/base/result.hpp"

namespace atl {

enum class OuterOptimizerKind : std::uint8_t { nesterov, heavy_ball, sgd, adopt, clipped_momentum };
inline constexpr std::array<std::string_view, 5> kOuterOptimizers = {"nesterov", "heavy-ball", "sgd", "adopt", "clipped-momentum"};
constexpr std::span<const std::string_view> names_of(OuterOptimizerKind) { return kOuterOptimizers; }

struct OuterOptimizer {
  OuterOptimizerKind kind = OuterOptimizerKind::nesterov;
  double learning_rate = 0.7;  // η > 0; of all but adopt
  double momentum = 0.9;       // 0 ≤ μ < 1; of nesterov, heavy_ball and clipped_momentum
  double pull = 0.0;           // γ ≥ 0; of heavy_ball, towards the group's mean
  double clip = 0.0;           // φ ≥ 0; of clipped_momentum
  bool gap_penalty = false;    // of clipped_momentum
  friend bool operator==(const OuterOptimizer&, const OuterOptimizer&) = default;
};

// What checkpoints put before a parameter's name for what the outer optimiser keeps of it: a row for each moment.
inline constexpr std::array<std::string_view, 1> kMoments = {"momentum/"};

// One buffer of the outer state, as it is kept.
struct OuterBuffer {
  std::string_view prefix;  // of its tensors in a file: one of kMoments, say; empty: the parameters themselves
  OuterStateFormat format = OuterStateFormat::f32;
  std::span<std::byte> bytes;
  // Of the values [first, first + count).
  [[nodiscard]] std::span<std::byte> part(std::uint64_t first, std::uint64_t count) const {
    return bytes.subspan(bytes_a_value(format) * first, bytes_a_value(format) * count);
  }
};

// A range of the outer state, in the same order. The momentum begins as zeros; it may be missing for sgd and adopt.
struct OuterState {
  std::span<float> parameters;
  std::span<float> momentum;     // in float32; empty where it is kept in bf16
  RoundedMomentum rounded = {};  // in bf16; each step leaves what it computes in float32, rounded by `rounded.at`
  // Those that there are, the parameters first: what is written, read and copied of an outer state.
  [[nodiscard]] std::vector<OuterBuffer> buffers() const;
};

// A round's result as it came over the links: what its terms become together (aggregate.hpp). One term of weight 1 is the array
// that a shard's owner reduced and encoded; two or more are contributions that were sent whole.
struct ReducedResult {
  CodecSettings codec;
  std::span<const EncodedTerm> terms;
  Aggregator aggregator = Aggregator::weighted_mean;
  std::span<const BufferRange> buffers = {};  // their step is θ <- θ − g, without momentum: what the islands' own values come to
};

// The outer parameters of a group in the order of its members, as everyone in it decodes them. This island's own are among
// them, encoded like the others': with a lossy codec it is then the decoded values that differ, each pair's differences
// cancel in the mean of the group, and equal outer states pull at nothing.
struct GroupParameters {
  CodecSettings codec;
  std::span<const std::span<const std::byte>> members;  // encoded
  std::size_t self = 0;                                 // this island's place
};

// Whether the outer state has a momentum that the kind reads and changes.
bool has_momentum(OuterOptimizerKind kind);

// Bytes of the outer state for each parameter.
std::uint64_t outer_state_bytes(OuterOptimizerKind kind, OuterStateFormat format);

// Errors: invalid_argument naming the setting: learning_rate not finite or ≤ 0, momentum outside [0, 1), pull not finite or < 0.
Status check_outer_optimizer(const OuterOptimizer& settings);

// The step that `settings` names; heavy_ball without a group: no pull. The gradient does not overlap the state; adopt's values may be the
// state's own parameters.
Status outer_step(std::span<const float> gradient, const OuterOptimizer& settings, OuterState state);
// The state comes out the same whoever does the parts: each is of 256 Ki values or the few more that a codec's blocks make of them.
Status outer_step(const ReducedResult& result, const OuterOptimizer& settings, OuterState state,
                  const InParts& in_parts = one_after_another);

// heavy_ball with the pull of a group: mean_j φ_j − φ is computed as (Σ_{j≠self} (φ_j − φ_self)) · float32(1/P), in member order
// from 0, so that it is exactly 0 where all are equal, and of two members exactly the negative of the other's. Buffers become the group's
// mean, whatever their share is: in a pair there is no island that all hear of.
// Errors: as above; invalid_argument for another kind or a `self` that is no member; corrupt where the outer parameters of a
// member are no finite encoding, or too large to subtract.
Status outer_step(const ReducedResult& result, const GroupParameters& group, const OuterOptimizer& settings, OuterState state);

// The values of a result, without a step: for a trainer that wants the mean itself (payload gradient).
// Errors: as above; then `values` is unspecified.
Status decode_result(const ReducedResult& result, std::span<float> values);

}  // namespace atl
