#include "cli/views/parts/sparkline.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <vector>

namespace atl {

std::string sparkline(std::span<const double> values, std::size_t width) {
  static constexpr std::array<std::string_view, 8> kBars = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  std::vector<double> finite;
  std::ranges::copy_if(values, std::back_inserter(finite), [](double value) { return std::isfinite(value); });
  if (finite.size() < 2 || width == 0) {
    return {};
  }
  const std::size_t count = std::min(width, finite.size());
  std::vector<double> shown(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t begin = i * finite.size() / count;
    const std::size_t end = (i + 1) * finite.size() / count;
    double sum = 0;
    for (std::size_t k = begin; k < end; ++k) {
      sum += finite[k];
    }
    shown[i] = sum / static_cast<double>(end - begin);
  }
  const auto [least, most] = std::ranges::minmax(shown);
  std::string line;
  for (const double value : shown) {
    const double height = most > least ? (value - least) / (most - least) : 0.0;
    line += kBars[std::min<std::size_t>(7, static_cast<std::size_t>(height * 8.0))];
  }
  return line;
}

}  // namespace atl
