// Clustering of a data set by its features: k-means in two stages, as Decentralized Diffusion Models do (arXiv:2501.05450; methods of
// MetaCLIP): many fine clusters over the points, then few coarse ones over the fine centroids.
//
// Everything is deterministic: the same points, settings and seed give the same clusters on every machine (sums in a fixed order, in
// double). Threads: pure functions, one thread each.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "transport/base/result.hpp"

namespace atl {

// Row-major points: values.size() = count × width.
struct Points {
  std::span<const float> values;
  std::size_t width = 0;
  [[nodiscard]] std::size_t count() const { return width == 0 ? 0 : values.size() / width; }
  [[nodiscard]] std::span<const float> operator[](std::size_t i) const { return values.subspan(i * width, width); }
};

struct Clusters {
  std::vector<float> centroids;           // [clusters × width]
  std::vector<std::uint32_t> assignment;  // of every point
  std::vector<std::uint64_t> sizes;       // points of each cluster
  double inertia = 0;                     // sum over points of the squared distance to their centroid
};

struct KMeansSettings {
  std::uint32_t clusters = 1;
  std::uint32_t batch = 1024;      // of a mini-batch; as many points or more: Lloyd's algorithm on all
  std::uint32_t iterations = 100;  // mini-batches, or passes over all points; passes stop early when nothing changes
  std::uint64_t seed = 1;
};

// k-means++ (Arthur and Vassilvitskii, 2007), then mini-batches with a learning rate of 1 / points seen (Sculley, 2010), then one
// assignment of all points. No cluster is empty unless there are fewer distinct points than clusters. Errors: invalid_argument if there are
// fewer points than clusters, or a value is not finite (corrupt). Cost: O(iterations · batch · clusters · width + points · clusters ·
// width).
Result<Clusters> k_means(const Points& points, const KMeansSettings& settings);

// Few clusters over weighted points (the fine centroids, each weighing its points) so that none weighs more than `balance` times the mean:
// in every pass the points are placed heaviest loss of choice first, each into the nearest cluster that has room. A single point that is
// heavier than the limit still goes to the emptiest one. balance ≥ 1; 0: no limit. Errors: as k_means.
Result<Clusters> balanced_k_means(const Points& points, std::span<const std::uint64_t> weights, double balance,
                                  const KMeansSettings& settings);

// The first `components` principal components of the points (mean removed), by subspace iteration from a seeded start; each column is
// scaled by nothing: distances are those of the projection. `fit`: the points that the components are computed from, at most 10,000 of
// them, evenly. Result: [count × components]. Errors: invalid_argument if components is 0 or more than the width; corrupt if a value is not
// finite.
Result<std::vector<float>> principal_components(const Points& points, const std::vector<bool>& fit, std::uint32_t components,
                                                std::uint64_t seed);

// For each point the nearest centroid.
std::vector<std::uint32_t> nearest_centroids(const Points& points, std::span<const float> centroids);

}  // namespace atl
