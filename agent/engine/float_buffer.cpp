#include "agent/engine/float_buffer.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "transport/base/bytes.hpp"

namespace atl {

Result<FloatBuffer> FloatBuffer::make(std::uint64_t count) {
  FloatBuffer buffer;
  if (count == 0) {
    return buffer;
  }
  const std::size_t bytes = count * sizeof(float);
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return Error{Code::io, "no " + human_bytes(bytes) + " of memory for the outer state: " + std::strerror(errno)};
  }
  ::madvise(memory, bytes, MADV_HUGEPAGE);  // advice: where it is not followed, pages are small
  buffer.floats_ = {static_cast<float*>(memory), static_cast<std::size_t>(count)};
  return buffer;
}

FloatBuffer::FloatBuffer(FloatBuffer&& other) noexcept : floats_(std::exchange(other.floats_, {})) {}

FloatBuffer& FloatBuffer::operator=(FloatBuffer&& other) noexcept {
  std::swap(floats_, other.floats_);
  return *this;
}

FloatBuffer::~FloatBuffer() {
  if (!floats_.empty()) {
    ::munmap(floats_.data(), floats_.size_bytes());
  }
}

}  // namespace atl
