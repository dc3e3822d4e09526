// What a tensor's bytes are, in a few letters, for tests that pin them.
#pragma once

#include <cstdint>
#include <cstdio>
#include <span>
#include <string>

#include "agent/trainer/tensor_values.hpp"

namespace atl_test {

// FNV-1a over the bytes of a float32 tensor on the processor, in hexadecimal.
inline std::string digest_of(const at::Tensor& tensor) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const std::byte byte : std::as_bytes(atl::floats_of(tensor))) {
    hash = (hash ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3ULL;
  }
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

}  // namespace atl_test
