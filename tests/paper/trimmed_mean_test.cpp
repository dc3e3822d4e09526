// The trimmed mean (strategies/aggregate.hpp): its definition by hand, its breakdown point, and where it is the weighted mean.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/catch.hpp"
#include "tests/mean.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/rng.hpp"

using namespace atl;

namespace {

using Vectors = std::vector<std::vector<float>>;

std::vector<float> trimmed_mean(const Vectors& contributions, const std::vector<float>& weights) {
  std::vector<std::span<const float>> views(contributions.begin(), contributions.end());
  std::vector<float> out(contributions.front().size());
  atl_test::aggregate_values(Aggregator::trimmed_mean, views, weights, out);
  return out;
}

std::vector<float> uniform(std::size_t members) { return std::vector<float>(members, 1.0F / static_cast<float>(members)); }

}  // namespace

TEST_CASE("trimmed mean: a third at each end is left out, and the others are weighted") {
  CHECK(trimmed_mean({{1}, {100}, {2}, {3}}, uniform(4))[0] == 2.5F);
  CHECK(trimmed_mean({{1}, {100}, {2}, {3}}, {0.25F, 0.125F, 0.125F, 0.5F})[0] == (0.125F * 2 + 0.5F * 3) / 0.625F);
  CHECK(trimmed_mean({{1}, {100}, {2}, {6}}, {0.5F, 0.5F, 0.0F, 0.0F})[0] == 4.0F);  // the heavy ones are those left out
  CHECK(trimmed_mean({{5}, {5}, {5}, {7}}, {0.5F, 0.25F, 0.125F, 0.125F})[0] == 5.0F);
  // Each value apart: another member is left out of each.
  CHECK(trimmed_mean({{-9, 1}, {1, 2}, {2, 90}, {3, 3}, {4, 4}, {50, -7}, {5, 5}}, uniform(7)) == std::vector<float>{3, 3});
}

TEST_CASE("trimmed mean: with fewer than four contributions it is the weighted mean, bit for bit") {
  Rng rng(3);
  for (std::size_t members = 1; members <= 3; ++members) {
    Vectors contributions(members, std::vector<float>(100));
    for (std::vector<float>& contribution : contributions) {
      std::ranges::generate(contribution, [&] { return static_cast<float>(rng.normal()); });
    }
    std::vector<float> weights = uniform(members);
    weights.back() *= 0.5F;
    std::vector<std::span<const float>> views(contributions.begin(), contributions.end());
    std::vector<float> mean(100);
    atl_test::weighted_mean(views, weights, mean);
    CHECK(trimmed_mean(contributions, weights) == mean);
  }
  CHECK(least_contributions(Aggregator::trimmed_mean) == 4);
}

TEST_CASE("trimmed mean: a third of the members moves it nowhere, whatever they send, and one more does") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> lies = {1e30F, -1e30F, kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN(), 0.0F};
  Rng rng(4);
  for (std::size_t members = 4; members <= 16; ++members) {
    const std::size_t k = (members - 1) / 3;
    for (int trial = 0; trial < 200; ++trial) {
      std::vector<float> honest(members - k);
      std::ranges::generate(honest, [&] { return static_cast<float>(rng.normal()); });
      Vectors contributions;
      for (const float value : honest) {
        contributions.push_back({value});
      }
      const bool together = rng.chance(0.5);
      const float lie = lies[rng.below(lies.size())];
      for (std::size_t i = 0; i < k; ++i) {
        const auto at = contributions.begin() + static_cast<std::ptrdiff_t>(rng.below(contributions.size() + 1));
        contributions.insert(at, {together ? lie : lies[rng.below(lies.size())]});
      }
      std::vector<float> weights(members);
      std::ranges::generate(weights, [&] { return static_cast<float>(rng.uniform()); });
      const float result = trimmed_mean(contributions, weights)[0];
      const auto [least, most] = std::ranges::minmax(honest);
      const float rounding = 1e-6F * std::max(std::abs(least), std::abs(most));
      INFO(members << " members, trial " << trial << ": " << result << " of " << least << " to " << most);
      REQUIRE((result >= least - rounding && result <= most + rounding));
    }
    Vectors broken(members, {1.0F});
    for (std::size_t i = 0; i <= k; ++i) {
      broken[i] = {1e30F};
    }
    CHECK(trimmed_mean(broken, uniform(members))[0] > 1e20F);
  }
}

TEST_CASE("trimmed mean: encoded and in pieces it comes to the same bytes as whole") {
  Rng rng(5);
  for (const CodecKind kind : {CodecKind::f32, CodecKind::bf16, CodecKind::int8, CodecKind::fp4}) {
    const CodecSettings codec{kind, 64, Rounding::nearest};
    constexpr std::size_t kValues = 1024;
    std::vector<Bytes> encoded;
    for (int member = 0; member < 5; ++member) {
      std::vector<float> values(kValues);
      std::ranges::generate(values, [&] { return static_cast<float>(rng.normal()); });
      encoded.emplace_back(encoded_bytes(codec, kValues));
      REQUIRE(encode(codec, values, encoded.back()));
    }
    std::vector<EncodedTerm> terms;
    for (const Bytes& bytes : encoded) {
      terms.push_back({bytes, 0.2F});
    }
    std::vector<float> scratch;
    std::vector<float> whole(kValues);
    aggregate(Aggregator::trimmed_mean, codec, terms, 0, whole, scratch);
    std::vector<float> pieces(kValues);
    for (std::size_t first = 0; first < kValues; first += 256) {
      aggregate(Aggregator::trimmed_mean, codec, terms, first, std::span(pieces).subspan(first, 256), scratch);
    }
    CHECK(pieces == whole);
  }
}
