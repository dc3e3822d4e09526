// An island's contribution to a round: the outer gradient, outer parameters − local parameters.
//
// It is formed in place in the arena, over the local parameters that the trainer left there: no further array. Old minus
// new, so that it acts as a gradient (DiLoCo, arXiv:2311.08105, Algorithm 1).
// Threads: pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "strategies/buffer_ranges.hpp"
#include "strategies/codec.hpp"
#include "transport/base/result.hpp"

namespace atl {

struct ContributionSummary {
  // L2 norm, summed in double in eight interleaved lanes: the same on every machine. Of independent islands it shrinks
  // about as 1/sqrt(islands) in their mean (same paper, §6.2), which makes it worth watching.
  double norm = 0.0;
};

// local[i] <- fl(outer[i] − local[i]).
// Errors: invalid_argument if sizes differ (unchanged); corrupt naming the first index whose difference is not finite
// (`local` then holds the differences and is of no further use).
// Cost: one pass, reads 2n and writes n floats.
Result<ContributionSummary> form_outer_gradient(std::span<const float> outer, std::span<float> local);

// The same check and norm for a contribution that is sent as it is (a gradient, parameters). One pass, reads n floats.
Result<ContributionSummary> summarise_contribution(std::span<const float> values);

// What tells a contribution from another: a hash of the bits of its values, of 65,536 of them at equal distances where there are more.
// Equal contributions have equal fingerprints; that others have is as unlikely as with any hash of 64 bits, unless they differ in a few
// values. 0: none, because all that were looked at are zero. Cost: reads at most 65,536 floats.
std::uint64_t fingerprint_of(std::span<const float> values);

// The L2 norm of an array's trained values, taken as the array comes, in order. Value i is squared and added in double to lane i mod 8,
// so that the norm is the same however the array is cut.
class TrainedNorm {
 public:
  explicit TrainedNorm(std::span<const BufferRange> buffers = {}) : buffers_(buffers) {}
  void add(std::span<const float> next);
  [[nodiscard]] double value() const;

 private:
  std::span<const BufferRange> buffers_;
  std::array<double, 8> lanes_{};
  std::uint64_t position_ = 0;
};

// The norm of `count` encoded values but buffers, decoded piece by piece. Errors: as check_encoded. Cost: one pass; a buffer of 256 KiB.
Result<double> encoded_norm(const CodecSettings& settings, std::span<const std::byte> bytes, std::uint64_t count,
                            std::span<const BufferRange> buffers = {});

}  // namespace atl
