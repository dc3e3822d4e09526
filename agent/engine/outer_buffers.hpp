// The memory of a run's outer state on this island: parameters, and what the outer optimiser keeps of them between rounds, in float32 or
// in bf16 ([strategy].outer_state).
//
// Memory: outer_state_bytes for each parameter, zeroed at first. Threads: a plain value that can be moved.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "agent/engine/float_buffer.hpp"
#include "strategies/outer_optimizer.hpp"
#include "transport/base/result.hpp"

namespace atl {

class OuterBuffers {
 public:
  OuterBuffers() = default;
  // Errors: io if there is not that much memory.
  static Result<OuterBuffers> make(std::uint64_t count, OuterOptimizerKind kind, OuterStateFormat format);
  // These are the parameters now, and nothing is kept of earlier rounds.
  void begin_with(std::span<const float> parameters);

  [[nodiscard]] std::span<float> parameters() const { return parameters_.floats(); }
  // The values [offset, offset + count). seed: of the round whose step is taken.
  [[nodiscard]] OuterState range(std::uint64_t offset, std::uint64_t count, std::uint64_t seed = 0) const;
  [[nodiscard]] OuterState all() const { return range(0, parameters().size()); }
  // All of it, in float32.
  [[nodiscard]] std::vector<float> momentum() const;

 private:
  OuterStateFormat format_ = OuterStateFormat::f32;
  FloatBuffer parameters_;
  FloatBuffer momentum_;  // in bf16 two values share a float's place
};

}  // namespace atl
