#include "strategies/merge.hpp"

#include <algorithm>
#include <string>

#include "strategies/vectorised.hpp"

namespace atl {
namespace {

ATOLL_VECTORISED void mix(float a, float b, const float* __restrict global, std::size_t count, float* __restrict local) {
  for (std::size_t i = 0; i < count; ++i) {
    local[i] = a * local[i] + b * global[i];
  }
}

}  // namespace

Status merge(double alpha, std::span<const float> global, std::span<float> local) {
  if (!(alpha >= 0.0 && alpha <= 1.0)) {
    return Error{Code::invalid_argument, "merge_alpha must be from 0 to 1, not " + std::to_string(alpha)};
  }
  if (global.size() != local.size()) {
    return Error{Code::invalid_argument,
                 std::to_string(local.size()) + " local parameters do not fit " + std::to_string(global.size()) + " global parameters"};
  }
  if (alpha == 0.0) {
    std::copy(global.begin(), global.end(), local.begin());
  } else if (alpha < 1.0) {
    mix(static_cast<float>(alpha), static_cast<float>(1.0 - alpha), global.data(), local.size(), local.data());
  }
  return {};
}

}  // namespace atl
