// Clustering: known clusters are found, twice the same, balanced where asked, and bad input is refused.
#include "agent/trainer/data/kmeans.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

#include "tests/catch.hpp"
#include "transport/base/rng.hpp"

namespace of_kmeans_test {

using namespace atl;

namespace {

// `groups` clouds of `each` points around corners far apart, one after the other.
std::vector<float> clouds(std::size_t groups, std::size_t each, double spread, std::uint64_t seed = 1) {
  Rng rng(seed);
  std::vector<float> values;
  for (std::size_t g = 0; g < groups; ++g) {
    for (std::size_t i = 0; i < each; ++i) {
      values.push_back(static_cast<float>(10.0 * static_cast<double>(g % 2) + spread * rng.normal()));
      values.push_back(static_cast<float>(10.0 * static_cast<double>(g / 2) + spread * rng.normal()));
    }
  }
  return values;
}

bool separates(const std::vector<std::uint32_t>& assignment, std::size_t groups, std::size_t each) {
  std::set<std::uint32_t> seen;
  for (std::size_t g = 0; g < groups; ++g) {
    const std::uint32_t own = assignment[g * each];
    for (std::size_t i = 0; i < each; ++i) {
      if (assignment[g * each + i] != own) {
        return false;
      }
    }
    seen.insert(own);
  }
  return seen.size() == groups;
}

}  // namespace

TEST_CASE("k-means finds clouds that are apart, in passes and in mini-batches") {
  const std::vector<float> values = clouds(4, 200, 0.5);
  for (const std::uint32_t batch : {1000U, 64U}) {
    const auto clusters = k_means({values, 2}, {4, batch, 100, 3});
    REQUIRE(clusters);
    CHECK(separates(clusters->assignment, 4, 200));
    CHECK(clusters->sizes == std::vector<std::uint64_t>{200, 200, 200, 200});
    // 800 points of two coordinates with deviation 0.5.
    CHECK(clusters->inertia == Approx(800 * 2 * 0.25).epsilon(0.1));
    const auto again = k_means({values, 2}, {4, batch, 100, 3});
    CHECK(again->assignment == clusters->assignment);
    CHECK(again->centroids == clusters->centroids);
  }
}

TEST_CASE("no cluster is empty, and inertia falls as clusters are added") {
  const std::vector<float> values = clouds(2, 50, 1.0);
  double before = std::numeric_limits<double>::infinity();
  for (const std::uint32_t count : {1U, 2U, 8U, 40U, 100U}) {
    const auto clusters = k_means({values, 2}, {count, 1000, 50, 1});
    REQUIRE(clusters);
    CHECK(*std::min_element(clusters->sizes.begin(), clusters->sizes.end()) >= 1);
    CHECK(std::accumulate(clusters->sizes.begin(), clusters->sizes.end(), std::uint64_t{0}) == 100);
    CHECK(clusters->inertia < before);
    before = clusters->inertia;
  }
  CHECK(before == Approx(0.0).margin(1e-9));  // as many clusters as points
}

TEST_CASE("a balanced assignment keeps its limit") {
  // Three points near each other and one far away: by distance the weights would be 9 and 1.
  const std::vector<float> values = {0.0F, 0.1F, 0.2F, 10.0F};
  const std::vector<std::uint64_t> weights = {3, 3, 3, 1};
  const auto free = balanced_k_means({values, 1}, weights, 0.0, {2, 1, 50, 1});
  REQUIRE(free);
  CHECK(free->assignment[0] == free->assignment[2]);
  CHECK(free->assignment[0] != free->assignment[3]);
  const auto even = balanced_k_means({values, 1}, weights, 1.25, {2, 1, 50, 1});
  REQUIRE(even);
  std::vector<std::uint64_t> mass(2, 0);
  for (std::size_t i = 0; i < 4; ++i) {
    mass[even->assignment[i]] += weights[i];
  }
  CHECK(std::max(mass[0], mass[1]) == 6);  // at most 1.25 × 5
}

TEST_CASE("principal components keep the distances along the widest directions") {
  Rng rng(5);
  std::vector<float> values;
  for (int i = 0; i < 400; ++i) {
    const double wide = 8 * rng.normal();
    const double narrow = 2 * rng.normal();
    values.push_back(static_cast<float>(3 + 0.6 * wide));
    values.push_back(static_cast<float>(-1 + 0.8 * wide));
    values.push_back(static_cast<float>(narrow));
    values.push_back(static_cast<float>(0.01 * rng.normal()));
  }
  const std::vector<bool> all(400, true);
  const auto projected = principal_components({values, 4}, all, 2, 9);
  REQUIRE(projected);
  double first = 0;
  double second = 0;
  for (std::size_t i = 0; i < 400; ++i) {
    // The first component is ±(0.6, 0.8, 0, 0)·(x − mean): compare it with that direction.
    first += std::pow((*projected)[2 * i], 2) / 400;
    second += std::pow((*projected)[2 * i + 1], 2) / 400;
  }
  CHECK(std::sqrt(first) == Approx(8.0).epsilon(0.1));
  CHECK(std::sqrt(second) == Approx(2.0).epsilon(0.1));
  CHECK(*projected == *principal_components({values, 4}, all, 2, 9));
}

TEST_CASE("points that cannot be clustered are refused") {
  const std::vector<float> values = {1, 2, 3, 4};
  CHECK(k_means({values, 2}, {3, 10, 10, 1}).error().code == Code::invalid_argument);
  const std::vector<float> bad = {1, 2, 3, std::numeric_limits<float>::quiet_NaN()};
  CHECK(k_means({bad, 2}, {2, 10, 10, 1}).error().why == "the feature of point 1 is not finite");
  CHECK(principal_components({values, 2}, {true, true}, 3, 1).error().code == Code::invalid_argument);
}

}  // namespace of_kmeans_test
