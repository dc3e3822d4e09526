// Sums and products of counts that stop at a bound and never wrap, for numbers that peers tell.
// Threads: pure functions.
#pragma once

#include <algorithm>
#include <cstdint>

namespace atl {

// a + b, at most `most`.
[[nodiscard]] constexpr std::uint64_t bounded_sum(std::uint64_t a, std::uint64_t b, std::uint64_t most) {
  return a >= most || b >= most - a ? most : a + b;
}

// a · b, at most `most`.
[[nodiscard]] constexpr std::uint64_t bounded_product(std::uint64_t a, std::uint64_t b, std::uint64_t most) {
  return a != 0 && b > most / a ? most : std::min(a * b, most);
}

}  // namespace atl
