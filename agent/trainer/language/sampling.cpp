#include "agent/trainer/language/sampling.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace atl {

namespace {

std::int64_t likeliest(std::span<const float> logits) { return std::max_element(logits.begin(), logits.end()) - logits.begin(); }

}  // namespace

std::int64_t draw(std::span<const float> logits, const Sampling& sampling, Rng& rng) {
  if (sampling.temperature <= 0.0) {
    return likeliest(logits);
  }
  std::vector<std::size_t> candidates(logits.size());
  std::iota(candidates.begin(), candidates.end(), 0);
  const std::size_t kept = sampling.top_k == 0 ? candidates.size() : std::min<std::size_t>(candidates.size(), sampling.top_k);
  const auto larger = [&logits](std::size_t a, std::size_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; };
  std::partial_sort(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(kept), candidates.end(), larger);
  std::vector<double> weights(kept);
  double sum = 0.0;
  for (std::size_t i = 0; i < kept; ++i) {
    weights[i] = std::exp((static_cast<double>(logits[candidates[i]]) - static_cast<double>(logits[candidates[0]])) / sampling.temperature);
    sum += weights[i];
  }
  double at = rng.uniform() * sum;
  for (std::size_t i = 0; i < kept; ++i) {
    at -= weights[i];
    if (at < 0.0) {
      return static_cast<std::int64_t>(candidates[i]);
    }
  }
  return static_cast<std::int64_t>(candidates[0]);
}

}  // namespace atl
