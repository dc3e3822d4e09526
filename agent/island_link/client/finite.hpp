// Numbers that a trainer reports: what is not finite is none.
#pragma once

#include <cmath>
#include <optional>

namespace atl::island_link {

inline std::optional<double> finite(std::optional<double> value) { return value && std::isfinite(*value) ? value : std::nullopt; }

}  // namespace atl::island_link
