// A large array of float32: zeroed, page-aligned, on huge pages where the kernel gives them.
//
// The outer state of a model is read and written once a round from end to end; on 4 KiB pages that walk spends a good part
// of its time in the page tables. Pages are given by the kernel when first touched.
// Threads: a plain value that can be moved.
#pragma once

#include <cstdint>
#include <span>

#include "transport/base/result.hpp"

namespace atl {

class FloatBuffer {
 public:
  FloatBuffer() = default;
  // Errors: io if there is not that much memory.
  static Result<FloatBuffer> make(std::uint64_t count);
  FloatBuffer(FloatBuffer&& other) noexcept;
  FloatBuffer& operator=(FloatBuffer&& other) noexcept;
  FloatBuffer(const FloatBuffer&) = delete;
  FloatBuffer& operator=(const FloatBuffer&) = delete;
  ~FloatBuffer();

  [[nodiscard]] std::span<float> floats() const { return floats_; }
  [[nodiscard]] bool empty() const { return floats_.empty(); }

 private:
  std::span<float> floats_;
};

}  // namespace atl
