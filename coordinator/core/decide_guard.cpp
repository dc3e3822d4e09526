#include <algorithm>
#include <cmath>

#include "coordinator/core/decide.hpp"
#include "transport/base/usual_norms.hpp"

namespace atl::coordinator {

NormDecision decide_norms(const NormInput& input) {
  NormDecision decision;
  std::vector<double> now;
  for (const auto& [island, norm, missed] : input.norms) {
    if (std::isfinite(norm)) {
      now.push_back(norm / (1.0 + missed));
    }
  }
  if (input.factor <= 0 || input.usual.size() < kUsualNorms || now.empty()) {
    return decision;
  }
  decision.median = std::max(lower_median(input.usual), lower_median(now));
  const NormGuard guard{input.factor, decision.median};
  for (const auto& [island, norm, missed] : input.norms) {
    if (!std::isfinite(norm)) {
      decision.rejected.emplace_back(island, "its norm is not finite");
    } else if (const std::optional<std::string> why = guard.verdict(norm, missed)) {
      decision.rejected.emplace_back(island, *why);
    }
  }
  return decision;
}

}  // namespace atl::coordinator
