#include "agent/engine/outer_buffers.hpp"

#include <algorithm>

namespace atl {

Result<OuterBuffers> OuterBuffers::make(std::uint64_t count, OuterOptimizerKind kind, OuterStateFormat format) {
  OuterBuffers buffers;
  buffers.format_ = format;
  ATOLL_ASSIGN(buffers.parameters_, FloatBuffer::make(count));
  if (has_momentum(kind)) {
    ATOLL_ASSIGN(buffers.momentum_, FloatBuffer::make((count * bytes_a_value(format) + sizeof(float) - 1) / sizeof(float)));
  }
  return buffers;
}

void OuterBuffers::begin_with(std::span<const float> parameters) {
  std::ranges::copy(parameters, parameters_.floats().begin());
  std::ranges::fill(momentum_.floats(), 0.0F);
}

OuterState OuterBuffers::range(std::uint64_t offset, std::uint64_t count, std::uint64_t seed) const {
  OuterState state{parameters().subspan(offset, count), {}};
  if (!momentum_.empty() && format_ == OuterStateFormat::f32) {
    state.momentum = momentum_.floats().subspan(offset, count);
  } else if (!momentum_.empty()) {
    state.rounded = {std::as_writable_bytes(momentum_.floats()).subspan(2 * offset, 2 * count), {offset, seed}};
  }
  return state;
}

std::vector<float> OuterBuffers::momentum() const {
  const OuterState state = all();
  std::vector<float> values(state.momentum.begin(), state.momentum.end());
  if (!state.rounded.bytes.empty()) {
    values.resize(parameters().size());
    decode_momentum(state.rounded, values);
  }
  return values;
}

}  // namespace atl
