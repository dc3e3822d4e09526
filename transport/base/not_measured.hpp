// The value of what was not measured: a loss, a norm, a time. It is not 0, which would enter a mean.
#pragma once

#include <limits>

namespace atl {

inline constexpr double kNotMeasured = std::numeric_limits<double>::quiet_NaN();

}  // namespace atl
