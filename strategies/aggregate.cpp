#include "strategies/aggregate.hpp"

#include <algorithm>
#include <string>

#include "strategies/codec_kernels.hpp"

namespace atl {
namespace {

Error invalid(std::string why) { return {Code::invalid_argument, std::move(why)}; }

}  // namespace

Result<std::vector<float>> contribution_weights(std::span<const std::uint64_t> tokens, Weighting weighting) {
  if (tokens.empty()) {
    return invalid("a mean needs at least one contribution");
  }
  if (weighting == Weighting::uniform) {
    return std::vector<float>(tokens.size(), static_cast<float>(1.0 / static_cast<double>(tokens.size())));
  }
  std::uint64_t sum = 0;
  for (const std::uint64_t count : tokens) {
    if (sum + count < sum) {
      return invalid("the members' tokens sum to more than 64 bits hold");
    }
    sum += count;
  }
  if (sum == 0) {
    return invalid("no member has trained on any token since the last round, so their contributions have no weights");
  }
  std::vector<float> weights;
  weights.reserve(tokens.size());
  for (const std::uint64_t count : tokens) {
    weights.push_back(static_cast<float>(static_cast<double>(count) / static_cast<double>(sum)));
  }
  return weights;
}

Status weighted_mean(std::span<const std::span<const float>> contributions, std::span<const float> weights, std::span<float> mean) {
  if (contributions.empty() || contributions.size() != weights.size()) {
    return invalid(std::to_string(contributions.size()) + " contributions do not fit " + std::to_string(weights.size()) + " weights");
  }
  for (const auto& contribution : contributions) {
    if (contribution.size() != mean.size()) {
      return invalid("a contribution of " + std::to_string(contribution.size()) + " values does not fit a mean of " +
                     std::to_string(mean.size()));
    }
  }
  std::fill(mean.begin(), mean.end(), 0.0F);
  for (std::size_t member = 0; member < contributions.size(); ++member) {
    kernels::accumulate(contributions[member].data(), weights[member], mean.size(), mean.data());
  }
  return {};
}

}  // namespace atl
