// Table 4 of Streaming DiLoCo (arXiv:2501.18512): the bandwidth that each method needs to compute a given share of the time.
//
// The printed figures, and ours beside them: the smallest point of the paper's own bandwidth axis (10^(−1 + 4k/49) Gbit/s,
// k = 0…49, on which all printed figures lie) at which strategies/planning/utilisation.hpp reaches the share. H = 100, fragments of 3
// layers, kPaperEffectiveBits a parameter (a quarter of it with FP4).
// Threads: pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "strategies/planning/utilisation.hpp"
#include "transport/base/result.hpp"

namespace atl {

struct Table4Size {
  std::string_view name;  // "1B"
  std::uint32_t layers = 0;
  double step_seconds = 0;
  double parameters = 0;
};

inline constexpr std::array<Table4Size, 3> kTable4Sizes = {{{"1B", 24, 0.1, 1e9}, {"10B", 48, 0.8, 1e10}, {"100B", 108, 4.9, 1e11}}};
inline constexpr std::array<std::string_view, 5> kTable4Methods = {"data-parallel", "DiLoCo", "streaming", "streaming, overlap 1",
                                                                   "streaming, overlap 1, FP4"};
inline constexpr std::array<double, 5> kTable4Shares = {0.50, 0.80, 0.90, 0.95, 0.99};

struct Table4Cell {
  std::uint32_t size = 0;  // indices into the arrays above
  std::uint32_t method = 0;
  std::uint32_t share = 0;
  double printed_gbits = 0;
  double ours_gbits = 0;
  std::int32_t points_apart = 0;  // ours − printed, in points of the axis
};

// The question behind a cell; the link is left at 1 Gbit/s.
UtilisationQuestion table_4_question(std::uint32_t size, std::uint32_t method);

// All 75 cells, by size, method and share. Cost: about half a second. Errors: those of compute_utilisation.
Result<std::vector<Table4Cell>> streaming_table_4();

}  // namespace atl
