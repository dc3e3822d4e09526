// The outer optimiser's momentum of a run on this island, as it is kept between rounds: in float32, or in bf16 ([strategy].outer_state).
//
// Memory for N parameters: 4N or 2N bytes, zeroed at first. Threads: a plain value that can be moved.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "agent/engine/float_buffer.hpp"
#include "strategies/outer_optimizer.hpp"
#include "strategies/rounded_momentum.hpp"
#include "transport/base/result.hpp"

namespace atl {

class MomentumBuffer {
 public:
  MomentumBuffer() = default;  // of an outer optimiser that has none
  // Errors: io if there is not that much memory.
  static Result<MomentumBuffer> make(std::uint64_t count, OuterStateFormat format);
  void clear();

  // The outer state that these parameters are, the first of them at `offset`, with their momentum. seed: of the round whose step is taken.
  [[nodiscard]] OuterState with(std::span<float> parameters, std::uint64_t offset = 0, std::uint64_t seed = 0) const;
  // All of it, in float32.
  [[nodiscard]] std::vector<float> values() const;

 private:
  [[nodiscard]] bool rounded() const { return format_ == OuterStateFormat::bf16; }

  OuterStateFormat format_ = OuterStateFormat::f32;
  std::uint64_t count_ = 0;
  FloatBuffer memory_;  // in bf16 two values share a float's place
};

}  // namespace atl
