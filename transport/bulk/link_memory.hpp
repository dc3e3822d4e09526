// How much memory an island spends on pieces that are on their way, whatever its paths would bear, and on what.
// Threads: plain values.
#pragma once

#include <cstdint>

namespace atl {

inline constexpr std::uint64_t kLinkMemory = 512ULL << 20;
inline constexpr std::uint64_t kLeastLinkMemory = 16ULL << 20;  // less than a few pieces would stop everything

// The parts of a budget. Together they are the budget.
struct LinkMemory {
  std::uint64_t windows = 0;  // asked of peers and not arrived, or arrived and not reduced (path_window.hpp)
  std::uint64_t inbox = 0;    // arrived and not fetched by the caller
  std::uint64_t outbox = 0;   // handed to ZeroMQ and not in the kernel yet
};

constexpr LinkMemory share_out(std::uint64_t budget) { return {budget / 2, budget / 4, budget - budget / 2 - budget / 4}; }

}  // namespace atl
