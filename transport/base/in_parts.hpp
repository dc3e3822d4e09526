// Work that falls into parts which do not touch each other: by whom it is done is up to whoever has threads.
#pragma once

#include <cstddef>
#include <functional>

namespace atl {

// Calls the second argument with each number below the first, once, in any order and perhaps at one time; returns when all have returned.
using InParts = std::function<void(std::size_t count, const std::function<void(std::size_t)>& part)>;

// With no thread but the caller's.
inline void one_after_another(std::size_t count, const std::function<void(std::size_t)>& part) {
  for (std::size_t i = 0; i < count; ++i) {
    part(i);
  }
}

}  // namespace atl
