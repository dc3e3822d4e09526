// SampledDigest: whether data are what they were, against accidents and not against people.
//
// Of up to kWholeUpTo values all count; of more, kSamples blocks that are spread evenly, the first and the last among them, and the number
// of values. So a set of any size takes a fraction of a second, a changed length or order is always noticed, and in large data a small
// change may not be. Threads: plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace atl {

class SampledDigest {
 public:
  static constexpr std::uint64_t kWholeUpTo = std::uint64_t{1} << 24;
  static constexpr std::uint64_t kSamples = 2048;
  static constexpr std::uint64_t kBlock = 4096;

  // Calls `look` with the places (offset, count) that count of so many values, in order.
  static void for_each_block(std::uint64_t values, const std::function<void(std::uint64_t offset, std::uint64_t count)>& look);

  void add(std::span<const std::byte> bytes);
  // 16 hexadecimal digits.
  [[nodiscard]] std::string text() const;

 private:
  std::uint64_t state_ = 0x243f6a8885a308d3ULL;
};

}  // namespace atl
