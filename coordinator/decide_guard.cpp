#include <algorithm>
#include <cmath>
#include <cstdio>

#include "coordinator/decide.hpp"

namespace atl::coordinator {
namespace {

// The middle one, the lower of two: of {1, 100} the median is 1, so that one of two islands can be told from the other.
double median_of(std::vector<double> values) {
  if (values.empty()) {
    return 0;
  }
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

}  // namespace

NormDecision decide_norms(const NormInput& input) {
  NormDecision decision;
  std::vector<double> now;
  for (const auto& [island, norm] : input.norms) {
    if (std::isfinite(norm)) {
      now.push_back(norm);
    }
  }
  if (input.factor <= 0 || input.usual.size() < kUsualNorms || now.empty()) {
    return decision;
  }
  decision.median = std::max(median_of(input.usual), median_of(now));
  for (const auto& [island, norm] : input.norms) {
    if (!std::isfinite(norm) || (decision.median > 0 && norm > input.factor * decision.median)) {
      decision.rejected.emplace_back(island, "its norm of " + number_text(norm) + " is more than " + number_text(input.factor) + " times the usual " + number_text(decision.median));
    }
  }
  return decision;
}

}  // namespace atl::coordinator
