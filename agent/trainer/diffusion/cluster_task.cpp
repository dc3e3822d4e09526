#include "agent/trainer/diffusion/cluster_task.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "agent/trainer/data/data_order.hpp"
#include "agent/trainer/data/kmeans.hpp"
#include "agent/trainer/data/npy.hpp"
#include "agent/trainer/diffusion/dit_learner.hpp"
#include "agent/trainer/diffusion/feature_model.hpp"
#include "agent/trainer/diffusion/image_material.hpp"
#include "agent/trainer/torch_runtime.hpp"
#include "transport/base/rng.hpp"

namespace atl {
namespace {

using island_link::Task;
using island_link::TaskInput;
using nlohmann::json;

constexpr const char* kInertiaKey = "atoll.inertia";

std::vector<float> all_values(const ImageSet& images) {
  const std::size_t values = images.shape().values();
  std::vector<float> all(images.count() * values);
  for (std::size_t i = 0; i < images.count(); ++i) {
    images.read(i, std::span(all).subspan(i * values, values));
  }
  return all;
}

// ---- features

struct Features {
  std::vector<float> values;  // [images × width]
  std::size_t width = 0;
};

Result<Features> components_of(const Task& task, const SplitImages& split) {
  const ImageSet& images = split.images;
  std::vector<bool> fit = split.held;
  fit.flip();
  const std::vector<float> values = all_values(images);
  const auto width = static_cast<std::uint32_t>(std::min<std::size_t>(task.diffusion.feature_width, images.shape().values()));
  ATOLL_ASSIGN(std::vector<float> components, principal_components({values, images.shape().values()}, fit, width, task.seed));
  return Features{std::move(components), width};
}

Result<Features> array_features(const std::string& path, const ImageSet& images) {
  ATOLL_ASSIGN(const NpyArray array, NpyArray::read(path));
  if (array.shape().size() != 2 || array.shape()[0] != images.count() || array.type()[0] != 'f') {
    return Error{Code::invalid_argument, path + ": features are floats [" + std::to_string(images.count()) +
                                             " images, width], and this array of " + array.type() + " has the shape [" +
                                             std::accumulate(array.shape().begin(), array.shape().end(), std::string(),
                                                             [](const std::string& text, std::uint64_t extent) {
                                                               return text + (text.empty() ? "" : ", ") + std::to_string(extent);
                                                             }) +
                                             "]"};
  }
  Features features{std::vector<float>(array.count()), static_cast<std::size_t>(array.shape()[1])};
  for (std::size_t i = 0; i < array.count(); ++i) {
    features.values[i] = static_cast<float>(array.at(i));
    if (!std::isfinite(features.values[i])) {
      return Error{Code::corrupt, path + ": the feature of image " + std::to_string(i / features.width) + " is not finite"};
    }
  }
  return features;
}

// What a model of the user's makes of batches [B, C, H, W] of the images as the experts see them: [B, width].
Result<Features> model_features(const Task& task, const std::string& path, const ImageSet& images, const TaskListener& listener) {
  constexpr std::size_t kBatch = 64;
  set_arithmetic_threads(task.training.threads);
  ATOLL_ASSIGN(const at::Device device, device_named(task.training.device));
  ATOLL_ASSIGN(FeatureModel model, FeatureModel::load(path, device));
  Features features;
  const ImageShape& shape = images.shape();
  for (std::size_t from = 0; from < images.count(); from += kBatch) {
    const std::size_t some = std::min(kBatch, images.count() - from);
    const at::Tensor batch = at::empty({static_cast<std::int64_t>(some), shape.channels, shape.height, shape.width}, at::kFloat);
    for (std::size_t i = 0; i < some; ++i) {
      images.read(from + i, {batch.data_ptr<float>() + i * shape.values(), shape.values()});
    }
    ATOLL_ASSIGN(const at::Tensor made, model.features(batch));
    const auto width = static_cast<std::size_t>(made.size(1));
    if (from > 0 && width != features.width) {
      return Error{Code::invalid_argument, path + ": the model gives " + std::to_string(width) + " features for an image, and gave " +
                                               std::to_string(features.width) + " before"};
    }
    features.width = width;
    features.values.insert(features.values.end(), made.data_ptr<float>(), made.data_ptr<float>() + made.numel());
    ATOLL_TRY(listener.progress({from + some, images.count(), std::nullopt, 0.0, 0.0}));
  }
  return features;
}

// The FILE of "npy:FILE" or "torchscript:FILE".
std::string features_path(const Task& task) {
  const std::string& by = task.diffusion.features;
  return by.find(':') == std::string::npos ? std::string() : by.substr(by.find(':') + 1);
}

Result<Features> features_of(const Task& task, const SplitImages& split, const TaskListener& listener) {
  const std::string& by = task.diffusion.features;
  return by.starts_with("npy:")           ? array_features(features_path(task), split.images)
         : by.starts_with("torchscript:") ? model_features(task, features_path(task), split.images, listener)
                                          : components_of(task, split);
}

json facts_json(const Task& task, const ImageSet& images, std::size_t width) {
  const std::string& by = task.diffusion.features;
  return {{"images", images.count()},
          {"shape", to_string(images.shape())},
          {"classes", images.classes()},
          {"by", by.substr(0, by.find(':'))},
          {"width", width}};
}

// ---- the fine clusters of one part

// Of images that are trained on.
Result<Clusters> fine_clusters(const Points& all, const std::vector<bool>& held, const KMeansSettings& settings) {
  std::vector<float> used;
  for (std::size_t i = 0; i < all.count(); ++i) {
    if (!held[i]) {
      used.insert(used.end(), all[i].begin(), all[i].end());
    }
  }
  return k_means({used, all.width}, settings);
}

// The mean pixels of the images of each fine cluster that are trained on.
std::vector<float> mean_images(const SplitImages& split, const std::vector<std::uint32_t>& assignment, std::size_t clusters) {
  const std::size_t values = split.images.shape().values();
  std::vector<double> sums(clusters * values, 0.0);
  std::vector<std::uint64_t> counts(clusters, 0);
  std::vector<float> image(values);
  for (std::size_t i = 0; i < split.images.count(); ++i) {
    if (!split.held[i]) {
      split.images.read(i, image);
      double* const sum = sums.data() + assignment[i] * values;
      std::transform(image.begin(), image.end(), sum, sum, [](float value, double before) { return before + value; });
      ++counts[assignment[i]];
    }
  }
  std::vector<float> means(sums.size());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    means[i] = static_cast<float>(sums[i] / static_cast<double>(std::max<std::uint64_t>(counts[i / values], 1)));
  }
  return means;
}

// Of the images of another task images/P, or this island's.
Result<std::string> make_part_features(const Task& task, const TaskListener& listener) {
  const std::string number = task.task.substr(task.task.find('/') + 1);
  ATOLL_ASSIGN(const TaskInput* const input, input_of(task, "images/" + number));
  ATOLL_ASSIGN(const SafetensorsFile packed, SafetensorsFile::open(input->path));
  ATOLL_ASSIGN(const PartFacts part, part_facts(packed));
  std::size_t place = 0;
  if (std::from_chars(number.data(), number.data() + number.size(), place).ptr != number.data() + number.size() ||
      place >= task.data.parts) {
    return Error{Code::invalid_argument, "this trainer knows no task '" + task.task + "'"};
  }
  ATOLL_ASSIGN(ImageSet images, ImageSet::open({input->path}, "safetensors"));
  ATOLL_ASSIGN(std::vector<bool> held, held_out_of_part(images.count(), place, task.data.parts, task.data.validation_fraction, task.seed));
  const SplitImages split{std::move(images), std::move(held)};
  Features features;
  if (task.diffusion.features.starts_with("npy:")) {
    ATOLL_ASSIGN(const std::span<const float> values, packed.floats("features"));
    const TensorEntry* entry = packed.header().find("features");
    if (entry->shape.size() != 2 || entry->shape[0] != split.images.count()) {
      return Error{Code::corrupt, input->path + ": its features are not of its images"};
    }
    features = Features{{values.begin(), values.end()}, entry->shape[1]};
  } else {
    ATOLL_ASSIGN(features, features_of(task, split, listener));
  }
  const auto trained = static_cast<std::uint64_t>(std::ranges::count(split.held, false));
  const std::uint32_t share = std::max(task.diffusion.experts, (task.diffusion.fine_clusters + task.data.parts - 1) / task.data.parts);
  const Points points{features.values, features.width};
  ATOLL_ASSIGN(
      const Clusters fine,
      fine_clusters(points, split.held, {static_cast<std::uint32_t>(std::min<std::uint64_t>(share, trained)), 1024, 200, task.seed}));
  const std::vector<std::uint32_t> nearest = nearest_centroids(points, fine.centroids);
  const bool of_pixels = task.diffusion.features == "pixels-pca";
  const std::vector<float> centroids = of_pixels ? mean_images(split, nearest, fine.sizes.size()) : fine.centroids;
  const std::vector<float> assignment(nearest.begin(), nearest.end());
  const std::vector<float> sizes(fine.sizes.begin(), fine.sizes.end());
  ATOLL_TRY(write_tensors(
      task.output,
      {{"assignment", {assignment.size()}, assignment},
       {"centroids", {sizes.size(), centroids.size() / sizes.size()}, centroids},
       {"sizes", {sizes.size()}, sizes}},
      {{"atoll.run", task.run}, {"atoll.task", task.task}, {kPartKey, to_json(part)}, {kInertiaKey, json(fine.inertia).dump()}}));
  json facts = facts_json(task, split.images, features.width);
  facts["fine_clusters"] = fine.sizes.size();
  facts["fine_inertia"] = fine.inertia;
  return facts.dump();
}

// ---- clusters

struct Clustering {
  ImageFacts images;
  std::vector<bool> held;
  std::vector<std::uint32_t> assignment;
  std::vector<float> centroids;  // empty where there are none (labels, random)
  std::size_t width = 0;
  std::uint64_t fine = 0;
  double inertia = 0;
};

// Fine clusters over the images that are trained on, coarse ones over the fine centroids; every image, held out or not, goes with its
// nearest fine one.
Status cluster_by_features(const Task& task, Clustering& result) {
  ATOLL_ASSIGN(const TaskInput* const input, input_of(task, "features"));
  ATOLL_ASSIGN(const SafetensorsFile file, SafetensorsFile::open(input->path));
  ATOLL_ASSIGN(const std::span<const float> values, file.floats("features"));
  const TensorEntry* entry = file.header().find("features");
  if (entry->shape.size() != 2 || entry->shape[0] != result.held.size()) {
    return Error{Code::invalid_argument, "the features are of " + std::to_string(entry->shape[0]) + " images and the data set has " +
                                             std::to_string(result.held.size())};
  }
  const Points all{values, entry->shape[1]};
  ATOLL_ASSIGN(const Clusters small, fine_clusters(all, result.held, {task.diffusion.fine_clusters, 1024, 200, task.seed}));
  ATOLL_ASSIGN(const Clusters large, balanced_k_means({small.centroids, all.width}, small.sizes, task.diffusion.balance,
                                                      {task.diffusion.experts, 1, 100, task.seed}));
  result.assignment = nearest_centroids(all, small.centroids);
  std::ranges::for_each(result.assignment, [&](std::uint32_t& cluster) { cluster = large.assignment[cluster]; });
  result.centroids = large.centroids;
  result.width = all.width;
  result.fine = small.sizes.size();
  result.inertia = small.inertia;
  return {};
}

// The same of a data set whose parts have made their fine clusters themselves.
Status cluster_parts(const Task& task, Clustering& result) {
  std::vector<PartFacts> parts;
  std::vector<float> centroids;
  std::vector<std::uint64_t> sizes;
  for (const TaskInput* input : numbered_inputs(task.inputs, "features")) {
    ATOLL_ASSIGN(const SafetensorsFile file, SafetensorsFile::open(input->path));
    ATOLL_ASSIGN(const PartFacts part, part_facts(file));
    parts.push_back(part);
    ATOLL_ASSIGN(result.images, facts_together(parts));
    ATOLL_ASSIGN(const std::span<const float> assignment, file.floats("assignment"));
    ATOLL_ASSIGN(const std::span<const float> own, file.floats("centroids"));
    ATOLL_ASSIGN(const std::span<const float> weights, file.floats("sizes"));
    const std::size_t width = weights.empty() ? 0 : own.size() / weights.size();
    const bool of_its_clusters =
        std::ranges::all_of(assignment, [&](float cluster) { return cluster >= 0 && cluster < static_cast<float>(weights.size()); });
    if (assignment.size() != part.count || !of_its_clusters) {
      return Error{Code::corrupt, input->path + ": its fine clusters are not those of its images"};
    }
    if (result.width != 0 && width != result.width) {
      return Error{Code::invalid_argument, "the features of task " + input->task + " have a width of " + std::to_string(width) +
                                               ", those of features/0 one of " + std::to_string(result.width)};
    }
    result.width = width;
    const auto first = static_cast<std::uint32_t>(sizes.size());
    std::ranges::transform(assignment, std::back_inserter(result.assignment),
                           [&](float cluster) { return first + static_cast<std::uint32_t>(cluster); });
    centroids.insert(centroids.end(), own.begin(), own.end());
    sizes.insert(sizes.end(), weights.begin(), weights.end());
    const auto inertia = file.header().metadata.find(kInertiaKey);
    const json number = inertia == file.header().metadata.end() ? json() : json::parse(inertia->second, nullptr, false);
    result.inertia += number.is_number() ? number.get<double>() : 0.0;
  }
  std::vector<std::size_t> counts;
  std::ranges::transform(parts, std::back_inserter(counts), &PartFacts::count);
  ATOLL_ASSIGN(result.held, held_out_of_parts(counts, task.data.validation_fraction, task.seed));
  if (task.diffusion.features == "pixels-pca") {
    const auto width = static_cast<std::uint32_t>(std::min<std::size_t>(task.diffusion.feature_width, result.width));
    ATOLL_ASSIGN(centroids, principal_components({centroids, result.width}, std::vector<bool>(sizes.size(), true), width, task.seed));
    result.width = width;
  }
  ATOLL_ASSIGN(const Clusters large,
               balanced_k_means({centroids, result.width}, sizes, task.diffusion.balance, {task.diffusion.experts, 1, 100, task.seed}));
  std::ranges::for_each(result.assignment, [&](std::uint32_t& cluster) { cluster = large.assignment[cluster]; });
  result.centroids = large.centroids;
  result.fine = sizes.size();
  return {};
}

Result<Clustering> cluster(const Task& task) {
  const std::uint32_t experts = task.diffusion.experts;
  Clustering result;
  if (!numbered_inputs(task.inputs, "features").empty()) {
    ATOLL_TRY(cluster_parts(task, result));
    return result;
  }
  ATOLL_ASSIGN(SplitImages split, open_images(task.data, task.seed, task.inputs));
  const std::size_t count = split.images.count();
  result.images = facts_of(split.images);
  result.held = std::move(split.held);
  if (experts > count) {
    return Error{Code::invalid_argument,
                 "diffusion.experts " + std::to_string(experts) + " is more than the " + std::to_string(count) + " images of the data set"};
  }
  if (experts == 1) {
    result.assignment.assign(count, 0);
  } else if (task.diffusion.clusters_by == "features") {
    ATOLL_TRY(cluster_by_features(task, result));
  } else if (task.diffusion.clusters_by == "random") {
    const Permutation order(count, stream_of("random clusters", task.seed));
    for (std::size_t i = 0; i < count; ++i) {
      result.assignment.push_back(static_cast<std::uint32_t>(order.at(i) % experts));
    }
  } else if (result.images.classes < experts) {
    return Error{Code::invalid_argument, "diffusion.clusters_by = \"labels\" needs at least as many classes as experts; the data set has " +
                                             std::to_string(result.images.classes) + " classes, diffusion.experts is " +
                                             std::to_string(experts)};
  } else {
    for (const std::uint32_t label : split.images.labels()) {
      result.assignment.push_back(static_cast<std::uint32_t>(std::uint64_t{label} * experts / result.images.classes));
    }
  }
  return result;
}

}  // namespace

Result<std::string> pack_images(const Task& task) {
  ATOLL_ASSIGN(const ImageSet images, ImageSet::open(task.data.files, task.data.format));
  const ImageShape& shape = images.shape();
  std::vector<TensorView> tensors = {
      {"images", {images.count(), shape.channels, shape.height, shape.width}, images.floats(), images.bytes()}};
  const std::vector<float> labels(images.labels().begin(), images.labels().end());
  if (!labels.empty()) {
    tensors.push_back({"labels", {labels.size()}, labels});
  }
  Features features;
  if (task.diffusion.experts > 1 && task.diffusion.clusters_by == "features" && task.diffusion.features.starts_with("npy:")) {
    ATOLL_ASSIGN(features, array_features(features_path(task), images));
    tensors.push_back({"features", {images.count(), features.width}, features.values});
  }
  ATOLL_TRY(write_tensors(task.output, std::move(tensors),
                          {{kPartKey, to_json(PartFacts{facts_of(images), images.count(), !images.bytes().empty()})}}));
  return json{{"images", images.count()}, {"shape", to_string(shape)}, {"classes", images.classes()}}.dump();
}

Result<std::string> make_features(const Task& task, const TaskListener& listener) {
  if (task.task != "features") {
    return make_part_features(task, listener);
  }
  ATOLL_ASSIGN(const SplitImages split, open_images(task.data, task.seed, {}));
  ATOLL_ASSIGN(const Features features, features_of(task, split, listener));
  ATOLL_TRY(write_tensors(task.output, {{"features", {split.images.count(), features.width}, features.values}},
                          {{"atoll.run", task.run}, {"atoll.task", task.task}}));
  return facts_json(task, split.images, features.width).dump();
}

Result<std::string> make_clusters(const Task& task) {
  ATOLL_ASSIGN(const Clustering clusters, cluster(task));
  // What experts or the router cannot be is said now, not when their turn comes.
  ATOLL_TRY(expert_sizes(task.model, task.diffusion, clusters.images));
  if (task.diffusion.experts > 1) {
    ATOLL_TRY(router_sizes(task.diffusion, clusters.images));
  }
  std::vector<std::uint64_t> sizes(task.diffusion.experts, 0);
  std::vector<std::uint64_t> held_sizes(task.diffusion.experts, 0);
  for (std::size_t i = 0; i < clusters.assignment.size(); ++i) {
    ++(clusters.held[i] ? held_sizes : sizes)[clusters.assignment[i]];
  }
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    if (sizes[k] < task.training.batch) {
      return Error{Code::invalid_argument, "cluster " + std::to_string(k) + " has " + std::to_string(sizes[k]) +
                                               " images to train on, fewer than training.batch (" + std::to_string(task.training.batch) +
                                               "); choose fewer experts, a smaller batch or a diffusion.balance nearer to 1"};
    }
  }
  const std::vector<float> assignment(clusters.assignment.begin(), clusters.assignment.end());
  std::vector<TensorView> tensors = {{"assignment", {assignment.size()}, assignment}};
  if (!clusters.centroids.empty()) {
    tensors.push_back({"centroids", {task.diffusion.experts, clusters.width}, clusters.centroids});
  }
  ATOLL_TRY(write_tensors(task.output, std::move(tensors), {{"atoll.run", task.run}, {"atoll.task", task.task}}));
  json facts = {{"by", task.diffusion.experts == 1 ? "none" : task.diffusion.clusters_by}, {"sizes", sizes}, {"held_out", held_sizes}};
  if (clusters.fine > 0) {
    facts["fine_clusters"] = clusters.fine;
    facts["fine_inertia"] = clusters.inertia;
  }
  return facts.dump();
}

}  // namespace atl
