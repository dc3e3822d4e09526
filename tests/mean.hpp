// Plain arrays of floats put together by the function that the engine calls (strategies/aggregate.hpp).
#pragma once

#include <span>
#include <vector>

#include "strategies/aggregate.hpp"
#include "tests/catch.hpp"

namespace atl_test {

// Contributions of the size of `out`, one weight each.
inline void aggregate_values(atl::Aggregator aggregator, std::span<const std::span<const float>> contributions,
                             std::span<const float> weights, std::span<float> out) {
  REQUIRE(contributions.size() == weights.size());
  std::vector<atl::EncodedTerm> terms;
  for (std::size_t i = 0; i < contributions.size(); ++i) {
    REQUIRE(contributions[i].size() == out.size());
    terms.push_back({std::as_bytes(contributions[i]), weights[i]});
  }
  std::vector<float> scratch;
  atl::aggregate(aggregator, atl::CodecSettings{}, terms, 0, out, scratch);
}

inline void weighted_mean(std::span<const std::span<const float>> contributions, std::span<const float> weights, std::span<float> mean) {
  aggregate_values(atl::Aggregator::weighted_mean, contributions, weights, mean);
}

}  // namespace atl_test
