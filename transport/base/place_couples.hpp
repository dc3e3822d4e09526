// Couples of members, by their places in a list. Threads: plain values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace atl {

// The smaller place first; in order, each once.
using PlaceCouples = std::vector<std::pair<std::uint32_t, std::uint32_t>>;

// So many are told, for a message has bounds.
inline constexpr std::size_t kMaxPlaceCouples = 512;

inline bool contains(const PlaceCouples& couples, std::size_t a, std::size_t b) {
  return std::ranges::binary_search(couples,
                                    std::pair(static_cast<std::uint32_t>(std::min(a, b)), static_cast<std::uint32_t>(std::max(a, b))));
}

}  // namespace atl
