#include <algorithm>
#include <cmath>
#include <limits>

#include "coordinator/core/bounded_sum.hpp"
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

std::vector<RejectedAmount> decide_amounts(const AmountInput& input) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  std::vector<std::uint64_t> tokens;
  for (const JudgedAmount& judged : input.amounts) {
    if (judged.trained) {
      tokens.push_back(judged.tokens);
    }
  }
  std::ranges::sort(tokens);
  const std::uint64_t median = tokens.size() < 3 ? 0 : tokens[(tokens.size() - 1) / 2];
  std::vector<RejectedAmount> rejected;
  for (const JudgedAmount& judged : input.amounts) {
    const std::uint64_t steps = bounded_product(bounded_product(input.inner_steps, kMostPeriods, kMost), 1ULL + judged.missed, kMost);
    const std::uint64_t most = input.tokens_per_step == 0 ? kMost : bounded_product(steps, input.tokens_per_step, kMost);
    const std::uint64_t most_beside = median == 0 ? kMost : bounded_product(median, kMostTimes, kMost);
    const std::string claims = "it claims " + std::to_string(judged.tokens) + " tokens, ";
    if (judged.tokens > most) {
      rejected.push_back({judged.island, claims + "and a contribution of this run holds " + std::to_string(most) + " at most"});
    } else if (judged.tokens > most_beside) {
      rejected.push_back({judged.island, claims + "more than " + std::to_string(kMostTimes) + " times the median of the round's, " +
                                             std::to_string(median)});
    }
  }
  return rejected.size() == input.amounts.size() ? std::vector<RejectedAmount>() : rejected;
}

}  // namespace atl::coordinator
