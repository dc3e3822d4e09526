// Sparkline: a curve in one line of text.
// Threads: pure.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace atl {

// The values from first to last as at most `width` of ▁▂▃▄▅▆▇█, from their least to their greatest; several values that
// share a character are averaged. Values that are not finite are left out. Empty for fewer than two.
std::string sparkline(std::span<const double> values, std::size_t width);

}  // namespace atl
