// Buffers: values of a fragment that no optimiser trains (a network's BatchNorm running mean and variance, say).
//
// They take no part in the outer step: after a round they are what the islands' own values come to. They count for no norm either.
// Threads: plain values and pure functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace atl {

// How buffers become the same on all islands.
enum class BufferShare : std::uint8_t {
  mean,  // as the contributions are combined; of radial_directional: their weighted mean
  one,   // those of the first contributor, in the order of the members
};

// Values [offset, offset + count) of a fragment. Ranges are in order and do not overlap.
struct BufferRange {
  std::uint64_t offset = 0;
  std::uint64_t count = 0;
  BufferShare share = BufferShare::mean;
  friend bool operator==(const BufferRange&, const BufferRange&) = default;
};

// Calls `step(begin, end, buffer)` for the runs of trained values and of buffers within [done, done + count), counted from `done`.
template <typename Step>
void each_run(std::span<const BufferRange> buffers, std::size_t done, std::size_t count, const Step& step) {
  std::size_t at = 0;
  for (const BufferRange& range : buffers) {
    if (range.offset + range.count <= done || range.offset >= done + count) {
      continue;
    }
    const std::size_t from = std::max<std::uint64_t>(range.offset, done) - done;
    const std::size_t to = std::min<std::uint64_t>(range.offset + range.count, done + count) - done;
    if (from > at) {
      step(at, from, false);
    }
    step(from, to, true);
    at = to;
  }
  if (at < count) {
    step(at, count, false);
  }
}

}  // namespace atl
