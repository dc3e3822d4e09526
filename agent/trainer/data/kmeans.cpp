#include "agent/trainer/data/kmeans.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "transport/base/rng.hpp"

namespace atl {
namespace {

constexpr std::size_t kFitPoints = 10'000;
constexpr int kSubspaceIterations = 12;

double squared_distance(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    sum += difference * difference;
  }
  return sum;
}

std::span<const float> row(const std::vector<float>& matrix, std::size_t i, std::size_t width) {
  return std::span(matrix).subspan(i * width, width);
}

std::uint32_t nearest(std::span<const float> point, std::span<const float> centroids, double* distance = nullptr) {
  const std::size_t width = point.size();
  std::uint32_t best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t c = 0; c * width < centroids.size(); ++c) {
    const double here = squared_distance(point, centroids.subspan(c * width, width));
    if (here < least) {
      least = here;
      best = static_cast<std::uint32_t>(c);
    }
  }
  if (distance != nullptr) {
    *distance = least;
  }
  return best;
}

Status check(const Points& points, std::uint32_t clusters) {
  if (clusters == 0 || points.width == 0 || points.count() < clusters) {
    return Error{Code::invalid_argument, std::to_string(points.count()) + " points cannot make " + std::to_string(clusters) + " clusters"};
  }
  const auto bad = std::ranges::find_if(points.values, [](float value) { return !std::isfinite(value); });
  if (bad != points.values.end()) {
    return Error{
        Code::corrupt,
        "the feature of point " + std::to_string(static_cast<std::size_t>(bad - points.values.begin()) / points.width) + " is not finite"};
  }
  return {};
}

// k-means++: each next centre is a point drawn in proportion to weight × squared distance from the nearest centre so far.
std::vector<float> first_centres(const Points& points, std::span<const std::uint64_t> weights, std::uint32_t clusters, Rng& rng) {
  const auto weight = [&](std::size_t i) { return weights.empty() ? 1.0 : static_cast<double>(weights[i]); };
  std::vector<double> distance(points.count(), 1.0);
  std::vector<float> centres;
  for (std::uint32_t c = 0; c < clusters; ++c) {
    double total = 0;
    for (std::size_t i = 0; i < points.count(); ++i) {
      total += weight(i) * distance[i];
    }
    double at = rng.uniform() * total;
    std::size_t chosen = points.count() - 1;
    for (std::size_t i = 0; i < points.count(); ++i) {
      at -= weight(i) * distance[i];
      if (at < 0) {
        chosen = i;
        break;
      }
    }
    centres.insert(centres.end(), points[chosen].begin(), points[chosen].end());
    for (std::size_t i = 0; i < points.count(); ++i) {
      const double here = squared_distance(points[i], points[chosen]);
      distance[i] = c == 0 ? here : std::min(distance[i], here);
    }
  }
  return centres;
}

// Centroids as the weighted means of their points; a cluster without any stays where it was.
void move_to_means(const Points& points, std::span<const std::uint64_t> weights, const std::vector<std::uint32_t>& assignment,
                   std::vector<float>& centroids) {
  std::vector<double> sums(centroids.size(), 0.0);
  std::vector<double> mass(centroids.size() / points.width, 0.0);
  for (std::size_t i = 0; i < points.count(); ++i) {
    const double weight = weights.empty() ? 1.0 : static_cast<double>(weights[i]);
    mass[assignment[i]] += weight;
    for (std::size_t d = 0; d < points.width; ++d) {
      sums[assignment[i] * points.width + d] += weight * static_cast<double>(points[i][d]);
    }
  }
  for (std::size_t c = 0; c < mass.size(); ++c) {
    for (std::size_t d = 0; mass[c] > 0 && d < points.width; ++d) {
      centroids[c * points.width + d] = static_cast<float>(sums[c * points.width + d] / mass[c]);
    }
  }
}

// Gives each empty cluster the point that is farthest from its centroid, if its cluster has others.
void fill_empty(const Points& points, Clusters& clusters) {
  for (std::size_t c = 0; c < clusters.sizes.size(); ++c) {
    if (clusters.sizes[c] > 0) {
      continue;
    }
    std::size_t farthest = points.count();
    double most = 0;
    for (std::size_t i = 0; i < points.count(); ++i) {
      const std::uint32_t own = clusters.assignment[i];
      const double here = squared_distance(points[i], row(clusters.centroids, own, points.width));
      if (clusters.sizes[own] > 1 && here > most) {
        most = here;
        farthest = i;
      }
    }
    if (farthest == points.count()) {
      return;  // fewer distinct points than clusters
    }
    --clusters.sizes[clusters.assignment[farthest]];
    clusters.assignment[farthest] = static_cast<std::uint32_t>(c);
    clusters.sizes[c] = 1;
    std::copy(points[farthest].begin(), points[farthest].end(), clusters.centroids.begin() + static_cast<std::ptrdiff_t>(c * points.width));
  }
}

void count_and_measure(const Points& points, Clusters& clusters) {
  clusters.sizes.assign(clusters.centroids.size() / points.width, 0);
  clusters.inertia = 0;
  for (std::size_t i = 0; i < points.count(); ++i) {
    ++clusters.sizes[clusters.assignment[i]];
    clusters.inertia += squared_distance(points[i], row(clusters.centroids, clusters.assignment[i], points.width));
  }
}

void mini_batches(const Points& points, const KMeansSettings& settings, Rng& rng, std::vector<float>& centroids) {
  std::vector<double> seen(settings.clusters, 0.0);
  std::vector<std::size_t> batch(settings.batch);
  std::vector<std::uint32_t> own(settings.batch);
  for (std::uint32_t iteration = 0; iteration < settings.iterations; ++iteration) {
    for (std::size_t i = 0; i < batch.size(); ++i) {
      batch[i] = rng.below(points.count());
      own[i] = nearest(points[batch[i]], centroids);
    }
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const double rate = 1.0 / ++seen[own[i]];
      for (std::size_t d = 0; d < points.width; ++d) {
        float& value = centroids[own[i] * points.width + d];
        value = static_cast<float>((1.0 - rate) * static_cast<double>(value) + rate * static_cast<double>(points[batch[i]][d]));
      }
    }
  }
}

// One pass of the balanced assignment: who loses most by not getting the nearest cluster chooses first.
std::vector<std::uint32_t> place(const Points& points, std::span<const std::uint64_t> weights, double limit,
                                 const std::vector<float>& centroids) {
  const std::size_t clusters = centroids.size() / points.width;
  std::vector<std::vector<double>> distances(points.count(), std::vector<double>(clusters));
  std::vector<double> regret(points.count(), 0.0);
  for (std::size_t i = 0; i < points.count(); ++i) {
    for (std::size_t c = 0; c < clusters; ++c) {
      distances[i][c] = squared_distance(points[i], row(centroids, c, points.width));
    }
    std::vector<double> sorted = distances[i];
    std::sort(sorted.begin(), sorted.end());
    regret[i] = clusters > 1 ? static_cast<double>(weights[i]) * (sorted[1] - sorted[0]) : 0.0;
  }
  std::vector<std::size_t> order(points.count());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return regret[a] > regret[b]; });
  std::vector<double> mass(clusters, 0.0);
  std::vector<std::uint32_t> assignment(points.count(), 0);
  for (const std::size_t i : order) {
    const auto weight = static_cast<double>(weights[i]);
    std::size_t best = clusters;
    for (std::size_t c = 0; c < clusters; ++c) {
      const bool room = limit <= 0 || mass[c] + weight <= limit;
      if (room && (best == clusters || distances[i][c] < distances[i][best])) {
        best = c;
      }
    }
    if (best == clusters) {
      best = static_cast<std::size_t>(std::min_element(mass.begin(), mass.end()) - mass.begin());
    }
    mass[best] += weight;
    assignment[i] = static_cast<std::uint32_t>(best);
  }
  return assignment;
}

// Makes the columns of a [rows × columns] matrix orthonormal (modified Gram–Schmidt); a column that vanishes becomes zero.
void orthonormalise(std::vector<double>& matrix, std::size_t rows, std::size_t columns) {
  for (std::size_t c = 0; c < columns; ++c) {
    for (std::size_t before = 0; before < c; ++before) {
      double product = 0;
      for (std::size_t r = 0; r < rows; ++r) {
        product += matrix[r * columns + c] * matrix[r * columns + before];
      }
      for (std::size_t r = 0; r < rows; ++r) {
        matrix[r * columns + c] -= product * matrix[r * columns + before];
      }
    }
    double norm = 0;
    for (std::size_t r = 0; r < rows; ++r) {
      norm += matrix[r * columns + c] * matrix[r * columns + c];
    }
    norm = std::sqrt(norm);
    for (std::size_t r = 0; r < rows; ++r) {
      matrix[r * columns + c] = norm > 1e-12 ? matrix[r * columns + c] / norm : 0.0;
    }
  }
}

}  // namespace

std::vector<std::uint32_t> nearest_centroids(const Points& points, std::span<const float> centroids) {
  std::vector<std::uint32_t> assignment(points.count());
  for (std::size_t i = 0; i < points.count(); ++i) {
    assignment[i] = nearest(points[i], centroids);
  }
  return assignment;
}

Result<Clusters> k_means(const Points& points, const KMeansSettings& settings) {
  ATOLL_TRY(check(points, settings.clusters));
  Rng rng(settings.seed, stream_of("k-means"));
  Clusters clusters;
  clusters.centroids = first_centres(points, {}, settings.clusters, rng);
  if (settings.batch < points.count()) {
    mini_batches(points, settings, rng, clusters.centroids);
    clusters.assignment = nearest_centroids(points, clusters.centroids);
  } else {
    for (std::uint32_t pass = 0; pass < settings.iterations; ++pass) {
      std::vector<std::uint32_t> assignment = nearest_centroids(points, clusters.centroids);
      if (assignment == clusters.assignment) {
        break;
      }
      clusters.assignment = std::move(assignment);
      move_to_means(points, {}, clusters.assignment, clusters.centroids);
    }
    clusters.assignment = nearest_centroids(points, clusters.centroids);
  }
  count_and_measure(points, clusters);
  fill_empty(points, clusters);
  count_and_measure(points, clusters);
  return clusters;
}

Result<Clusters> balanced_k_means(const Points& points, std::span<const std::uint64_t> weights, double balance,
                                  const KMeansSettings& settings) {
  ATOLL_TRY(check(points, settings.clusters));
  ATOLL_CHECK(weights.size() == points.count(), "a weight for every point");
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0,
                                       [](double sum, std::uint64_t weight) { return sum + static_cast<double>(weight); });
  const double limit = balance > 0 ? std::max(balance, 1.0) * total / settings.clusters : 0.0;
  Rng rng(settings.seed, stream_of("coarse k-means"));
  Clusters clusters;
  clusters.centroids = first_centres(points, weights, settings.clusters, rng);
  for (std::uint32_t pass = 0; pass < settings.iterations; ++pass) {
    std::vector<std::uint32_t> assignment = place(points, weights, limit, clusters.centroids);
    if (assignment == clusters.assignment) {
      break;
    }
    clusters.assignment = std::move(assignment);
    move_to_means(points, weights, clusters.assignment, clusters.centroids);
  }
  count_and_measure(points, clusters);
  return clusters;
}

Result<std::vector<float>> principal_components(const Points& points, const std::vector<bool>& fit, std::uint32_t components,
                                                std::uint64_t seed) {
  if (components == 0 || components > points.width) {
    return Error{Code::invalid_argument,
                 std::to_string(components) + " principal components of points with " + std::to_string(points.width) + " values"};
  }
  ATOLL_TRY(check(points, 1));
  std::vector<std::size_t> used;
  for (std::size_t i = 0; i < points.count(); ++i) {
    if (fit[i]) {
      used.push_back(i);
    }
  }
  if (used.size() > kFitPoints) {
    std::vector<std::size_t> fewer(kFitPoints);
    for (std::size_t i = 0; i < kFitPoints; ++i) {
      fewer[i] = used[i * used.size() / kFitPoints];
    }
    used = std::move(fewer);
  }
  const std::size_t width = points.width;
  std::vector<double> mean(width, 0.0);
  for (const std::size_t i : used) {
    for (std::size_t d = 0; d < width; ++d) {
      mean[d] += static_cast<double>(points[i][d]) / static_cast<double>(used.size());
    }
  }
  Rng rng(seed, stream_of("principal components"));
  std::vector<double> basis(width * components);
  std::ranges::generate(basis, [&] { return rng.normal(); });
  orthonormalise(basis, width, components);
  // basis ← orthonormal(Σ (x − mean)(x − mean)ᵀ · basis), the power method on a whole subspace.
  std::vector<double> projected(components);
  const auto project = [&](std::size_t i) {
    std::ranges::fill(projected, 0.0);
    for (std::size_t d = 0; d < width; ++d) {
      const double value = static_cast<double>(points[i][d]) - mean[d];
      for (std::size_t c = 0; c < components; ++c) {
        projected[c] += value * basis[d * components + c];
      }
    }
  };
  for (int iteration = 0; iteration < kSubspaceIterations; ++iteration) {
    std::vector<double> next(basis.size(), 0.0);
    for (const std::size_t i : used) {
      project(i);
      for (std::size_t d = 0; d < width; ++d) {
        const double value = static_cast<double>(points[i][d]) - mean[d];
        for (std::size_t c = 0; c < components; ++c) {
          next[d * components + c] += value * projected[c];
        }
      }
    }
    basis = std::move(next);
    orthonormalise(basis, width, components);
  }
  std::vector<float> result;
  result.reserve(points.count() * components);
  for (std::size_t i = 0; i < points.count(); ++i) {
    project(i);
    for (const double value : projected) {
      result.push_back(static_cast<float>(value));
    }
  }
  return result;
}

}  // namespace atl
