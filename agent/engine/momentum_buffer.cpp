#include "agent/engine/momentum_buffer.hpp"

#include <algorithm>

namespace atl {

Result<MomentumBuffer> MomentumBuffer::make(std::uint64_t count, OuterStateFormat format) {
  MomentumBuffer buffer;
  buffer.format_ = format;
  buffer.count_ = count;
  ATOLL_ASSIGN(buffer.memory_, FloatBuffer::make(buffer.rounded() ? (count + 1) / 2 : count));
  return buffer;
}

void MomentumBuffer::clear() { std::ranges::fill(memory_.floats(), 0.0F); }

OuterState MomentumBuffer::with(std::span<float> parameters, std::uint64_t offset, std::uint64_t seed) const {
  if (memory_.empty()) {
    return {parameters, {}};
  }
  if (!rounded()) {
    return {parameters, memory_.floats().subspan(offset, parameters.size())};
  }
  const std::span<std::byte> bytes = std::as_writable_bytes(memory_.floats()).subspan(2 * offset, 2 * parameters.size());
  return {parameters, {}, {bytes, {offset, seed}}};
}

std::vector<float> MomentumBuffer::values() const {
  if (!rounded()) {
    return {memory_.floats().begin(), memory_.floats().end()};
  }
  std::vector<float> values(count_);
  decode_momentum({std::as_writable_bytes(memory_.floats())}, values);
  return values;
}

}  // namespace atl
