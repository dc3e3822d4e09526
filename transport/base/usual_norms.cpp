#include "transport/base/usual_norms.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace atl {
namespace {

constexpr std::size_t kNorms = 64;
constexpr std::size_t kFragments = 4096;

std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

}  // namespace

double KnownNorm::expected(std::uint64_t of_steps) const {
  return steps == 0 || of_steps <= steps ? norm : norm * static_cast<double>(of_steps) / static_cast<double>(steps);
}

void UsualNorms::add(std::uint32_t fragment, double norm, std::uint64_t steps) {
  if (norm > 0 && (norms_.size() < kFragments || norms_.count(fragment) > 0)) {
    std::deque<KnownNorm>& norms = norms_[fragment];
    norms.push_back({norm, steps});
    if (norms.size() > kNorms) {
      norms.pop_front();
    }
  }
}

std::vector<KnownNorm> UsualNorms::of(std::uint32_t fragment) const {
  const auto found = norms_.find(fragment);
  return found == norms_.end() ? std::vector<KnownNorm>{} : std::vector<KnownNorm>(found->second.begin(), found->second.end());
}

double UsualNorms::median(std::uint32_t fragment) const {
  const std::vector<KnownNorm> norms = of(fragment);
  return norms.size() < kUsualNorms ? 0 : lower_median(norms, 0);
}

double lower_median(std::vector<double> values) {
  if (values.empty()) {
    return 0;
  }
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double lower_median(const std::vector<KnownNorm>& norms, std::uint64_t steps) {
  std::vector<double> expected;
  expected.reserve(norms.size());
  for (const KnownNorm& norm : norms) {
    expected.push_back(norm.expected(steps));
  }
  return lower_median(std::move(expected));
}

std::optional<std::string> NormGuard::verdict(double norm, std::uint32_t missed) const {
  if (factor <= 0 || usual <= 0 || norm <= factor * usual * (1.0 + missed)) {
    return std::nullopt;
  }
  return "its norm of " + number_text(norm) + " is more than " + number_text(factor) + " times the usual " + number_text(usual) +
         (missed > 0 ? ", also for each of the " + std::to_string(missed) + " rounds that it missed" : "");
}

}  // namespace atl
