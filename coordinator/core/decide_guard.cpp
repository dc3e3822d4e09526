#include <algorithm>
#include <cmath>

#include "coordinator/core/decide.hpp"
#include "transport/base/usual_norms.hpp"

namespace atl::coordinator {

NormDecision decide_norms(const NormInput& input) {
  NormDecision decision;
  std::vector<KnownNorm> now;
  for (const JudgedNorm& judged : input.norms) {
    if (std::isfinite(judged.norm)) {
      now.push_back(judged.of_one_round());
    }
  }
  if (input.factor <= 0 || input.usual.size() < kUsualNorms || now.empty()) {
    return decision;
  }
  for (const JudgedNorm& judged : input.norms) {
    const double usual = std::max(lower_median(input.usual, judged.steps), lower_median(now, judged.steps));
    if (!std::isfinite(judged.norm)) {
      decision.rejected.push_back({judged.island, usual, "its norm is not finite"});
    } else if (const std::optional<std::string> why = NormGuard{input.factor, usual}.verdict(judged.norm, judged.missed)) {
      decision.rejected.push_back({judged.island, usual, *why});
    }
  }
  return decision;
}

}  // namespace atl::coordinator
