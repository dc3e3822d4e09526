#include "agent/trainer/diffusion_task.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <thread>

#include "agent/trainer/data/data_order.hpp"
#include "agent/trainer/data/images.hpp"
#include "agent/trainer/data/kmeans.hpp"
#include "agent/trainer/data/npy.hpp"
#include "agent/trainer/dit_learner.hpp"
#include "agent/trainer/ensemble_flow.hpp"
#include "agent/trainer/feature_model.hpp"
#include "agent/trainer/flow_matching.hpp"
#include "agent/trainer/image_material.hpp"
#include "agent/trainer/new_file.hpp"
#include "agent/trainer/torch_runtime.hpp"
#include "transport/base/rng.hpp"
#include "transport/base/time.hpp"

namespace atl {
namespace {

using island_link::Task;
using island_link::TaskInput;
using nlohmann::json;

std::string expert_name(std::uint32_t k) { return "experts/" + std::to_string(k); }

constexpr Duration kTellEvery = std::chrono::milliseconds(500);

Result<const TaskInput*> input_of(const Task& task, std::string_view name) {
  const auto found = std::ranges::find(task.inputs, name, &TaskInput::task);
  if (found == task.inputs.end()) {
    return Error{Code::corrupt, "task " + task.task + " has no input '" + std::string(name) + "'"};
  }
  return &*found;
}

std::vector<float> all_values(const ImageSet& images) {
  const std::size_t values = images.shape().values();
  std::vector<float> all(images.count() * values);
  for (std::size_t i = 0; i < images.count(); ++i) {
    images.read(i, std::span(all).subspan(i * values, values));
  }
  return all;
}

// ---- features and clusters

struct Features {
  std::vector<float> values;  // [images × width]
  std::size_t width = 0;
};

Result<Features> components_of(const Task& task, const ImageSet& images) {
  ATOLL_ASSIGN(std::vector<bool> fit, held_out_images(images.count(), task.data.validation_fraction, task.seed));
  fit.flip();
  const std::vector<float> values = all_values(images);
  const auto width = static_cast<std::uint32_t>(std::min<std::size_t>(task.diffusion.feature_width, images.shape().values()));
  ATOLL_ASSIGN(std::vector<float> components, principal_components({values, images.shape().values()}, fit, width, task.seed));
  return Features{std::move(components), width};
}

Result<Features> array_features(const std::string& path, const ImageSet& images) {
  ATOLL_ASSIGN(const NpyArray array, NpyArray::read(path));
  if (array.shape().size() != 2 || array.shape()[0] != images.count() || array.type()[0] != 'f') {
    return Error{Code::invalid_argument, path + ": features are floats [" + std::to_string(images.count()) + " images, width], and this array of " + array.type() + " has the shape [" +
                                             std::accumulate(array.shape().begin(), array.shape().end(), std::string(), [](const std::string& text, std::uint64_t extent) {
                                               return text + (text.empty() ? "" : ", ") + std::to_string(extent);
                                             }) + "]"};
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
      return Error{Code::invalid_argument, path + ": the model gives " + std::to_string(width) + " features for an image, and gave " + std::to_string(features.width) + " before"};
    }
    features.width = width;
    features.values.insert(features.values.end(), made.data_ptr<float>(), made.data_ptr<float>() + made.numel());
    ATOLL_TRY(listener.progress({from + some, images.count(), std::nullopt, 0.0, 0.0}));
  }
  return features;
}

Result<std::string> make_features(const Task& task, const TaskListener& listener) {
  ATOLL_ASSIGN(const ImageSet images, ImageSet::open(task.data.files, task.data.format));
  const std::string& by = task.diffusion.features;
  const std::string path = by.find(':') == std::string::npos ? std::string() : by.substr(by.find(':') + 1);
  ATOLL_ASSIGN(const Features features, by.starts_with("npy:")           ? array_features(path, images)
                                        : by.starts_with("torchscript:") ? model_features(task, path, images, listener)
                                                                         : components_of(task, images));
  ATOLL_TRY(write_tensors(task.output, {{"features", {images.count(), features.width}, features.values}}, {{"atoll.run", task.run}, {"atoll.task", task.task}}));
  return json{{"images", images.count()}, {"shape", to_string(images.shape())}, {"classes", images.classes()}, {"by", by.substr(0, by.find(':'))}, {"width", features.width}}.dump();
}

struct Clustering {
  std::vector<std::uint32_t> assignment;
  std::vector<float> centroids;  // empty where there are none (labels, random)
  std::size_t width = 0;
  std::uint64_t fine = 0;
  double inertia = 0;
};

// Fine clusters over the images that are trained on, coarse ones over the fine centroids; every image, held out or not, goes with its nearest fine one.
Result<Clustering> cluster_by_features(const Task& task, const ImageSet& images, const std::vector<bool>& held) {
  ATOLL_ASSIGN(const TaskInput* const input, input_of(task, "features"));
  ATOLL_ASSIGN(const SafetensorsFile file, SafetensorsFile::open(input->path));
  ATOLL_ASSIGN(const std::span<const float> values, file.floats("features"));
  const TensorEntry* entry = file.header().find("features");
  if (entry->shape.size() != 2 || entry->shape[0] != images.count()) {
    return Error{Code::invalid_argument, "the features are of " + std::to_string(entry->shape[0]) + " images and the data set has " + std::to_string(images.count())};
  }
  const Points all{values, entry->shape[1]};
  std::vector<float> used;
  for (std::size_t i = 0; i < all.count(); ++i) {
    if (!held[i]) {
      used.insert(used.end(), all[i].begin(), all[i].end());
    }
  }
  KMeansSettings fine{task.diffusion.fine_clusters, 1024, 200, task.seed};
  if (fine.clusters < task.diffusion.experts) {
    return Error{Code::invalid_argument, "diffusion.fine_clusters " + std::to_string(fine.clusters) + " is less than diffusion.experts " + std::to_string(task.diffusion.experts)};
  }
  ATOLL_ASSIGN(const Clusters small, k_means({used, all.width}, fine));
  const KMeansSettings coarse{task.diffusion.experts, 1, 100, task.seed};
  ATOLL_ASSIGN(const Clusters large, balanced_k_means({small.centroids, all.width}, small.sizes, task.diffusion.balance, coarse));
  Clustering result{nearest_centroids(all, small.centroids), large.centroids, all.width, fine.clusters, 0};
  std::ranges::for_each(result.assignment, [&](std::uint32_t& cluster) { cluster = large.assignment[cluster]; });
  result.inertia = small.inertia;
  return result;
}

Result<Clustering> cluster(const Task& task, const ImageSet& images, const std::vector<bool>& held) {
  const std::uint32_t experts = task.diffusion.experts;
  Clustering result;
  if (experts == 1) {
    result.assignment.assign(images.count(), 0);
    return result;
  }
  if (task.diffusion.clusters_by == "features") {
    return cluster_by_features(task, images, held);
  }
  if (task.diffusion.clusters_by == "random") {
    const Permutation order(images.count(), stream_of("random clusters", task.seed));
    for (std::size_t i = 0; i < images.count(); ++i) {
      result.assignment.push_back(static_cast<std::uint32_t>(order.at(i) % experts));
    }
    return result;
  }
  if (images.classes() < experts) {
    return Error{Code::invalid_argument, "diffusion.clusters_by = \"labels\" needs at least as many classes as experts; the data set has " + std::to_string(images.classes()) +
                                             " classes, diffusion.experts is " + std::to_string(experts)};
  }
  for (const std::uint32_t label : images.labels()) {
    result.assignment.push_back(static_cast<std::uint32_t>(std::uint64_t{label} * experts / images.classes()));
  }
  return result;
}

Result<std::string> make_clusters(const Task& task) {
  ATOLL_ASSIGN(const ImageSet images, ImageSet::open(task.data.files, task.data.format));
  ATOLL_ASSIGN(const std::vector<bool> held, held_out_images(images.count(), task.data.validation_fraction, task.seed));
  if (task.diffusion.experts > images.count()) {
    return Error{Code::invalid_argument, "diffusion.experts " + std::to_string(task.diffusion.experts) + " is more than the " + std::to_string(images.count()) + " images of the data set"};
  }
  // What experts or the router cannot be is said now, not when their turn comes.
  ATOLL_TRY(expert_sizes(task.model, task.diffusion, images));
  if (task.diffusion.experts > 1) {
    ATOLL_TRY(router_sizes(task.diffusion, images));
  }
  ATOLL_ASSIGN(const Clustering clusters, cluster(task, images, held));
  std::vector<std::uint64_t> sizes(task.diffusion.experts, 0);
  std::vector<std::uint64_t> held_sizes(task.diffusion.experts, 0);
  for (std::size_t i = 0; i < images.count(); ++i) {
    ++(held[i] ? held_sizes : sizes)[clusters.assignment[i]];
  }
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    if (sizes[k] < task.training.batch) {
      return Error{Code::invalid_argument, "cluster " + std::to_string(k) + " has " + std::to_string(sizes[k]) + " images to train on, fewer than training.batch (" +
                                               std::to_string(task.training.batch) + "); choose fewer experts, a smaller batch or a diffusion.balance nearer to 1"};
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

// ---- training

Result<ImageMaterial> material_of(const Task& task, std::optional<std::uint32_t> cluster) {
  ATOLL_ASSIGN(const TaskInput* const input, input_of(task, "clustering"));
  return ImageMaterial::open(task.data, task.seed, input->path, cluster);
}

// Steps a learner to its end, telling and saving on the way. `loss`: of the step's images.
using StepLoss = std::function<at::Tensor(const Dit& model, const std::vector<std::size_t>& images, std::uint64_t step)>;
Status train(const Task& task, const TaskListener& listener, const ImageMaterial& material, const island_link::Training& training, DitLearner& learner, const StepLoss& loss_of) {
  if (task.resume) {
    ATOLL_TRY(learner.restore(*task.resume));
  }
  if (material.train.size() < training.batch) {
    return Error{Code::invalid_argument, "there are " + std::to_string(material.train.size()) + " images to train on, fewer than a batch of " + std::to_string(training.batch)};
  }
  const TimePoint begin = now();
  TimePoint told = begin;
  std::uint64_t told_step = learner.step();
  TimePoint next = begin;
  while (learner.step() < training.steps) {
    const std::uint64_t step = learner.step();
    const std::vector<std::size_t> chosen = images_from(material.train, task.seed, step * training.batch, training.batch);
    ATOLL_ASSIGN(const double loss, learner.take_step([&](const Dit& model) { return loss_of(model, chosen, step); }));
    if (task.diffusion.save_every > 0 && learner.step() % task.diffusion.save_every == 0 && learner.step() < training.steps) {
      const std::string path = task.checkpoint + "." + std::to_string(learner.step());
      ATOLL_TRY(learner.save(path));
      ATOLL_TRY(listener.saved({path, learner.step()}));
    }
    const TimePoint here = now();
    if (here - told >= kTellEvery || learner.step() == training.steps) {
      const double speed = static_cast<double>((learner.step() - told_step) * training.batch) / std::max(seconds(here - told), 1e-9);
      ATOLL_TRY(listener.progress({learner.step(), training.steps, std::isfinite(loss) ? std::optional(loss) : std::nullopt, speed, seconds(here - begin)}));
      told = here;
      told_step = learner.step();
    }
    if (training.max_steps_per_second > 0) {
      next += std::chrono::duration_cast<Duration>(std::chrono::duration<double>(1.0 / training.max_steps_per_second));
      while (now() < next) {
        ATOLL_TRY(listener.progress({learner.step(), training.steps, std::nullopt, 0.0, seconds(now() - begin)}));
        std::this_thread::sleep_for(std::min<Duration>(next - now(), std::chrono::milliseconds(20)));
      }
    }
  }
  return {};
}

island_link::Training router_training(const Task& task) {
  island_link::Training training = task.training;
  training.steps = task.diffusion.router_steps;
  training.batch = task.diffusion.router_batch;
  training.learning_rate = task.diffusion.router_learning_rate;
  training.warmup_steps = std::min(training.warmup_steps, training.steps / 10);
  return training;
}

island_link::Training dense_training(const Task& task) {
  island_link::Training training = task.training;
  training.steps = task.diffusion.distill_steps;
  training.batch = task.diffusion.distill_batch;
  training.warmup_steps = std::min(training.warmup_steps, training.steps / 10);
  return training;
}

double training_flops(const DitSizes& sizes, std::uint64_t steps, std::uint32_t batch) {
  return 3.0 * Dit::forward_flops(sizes) * static_cast<double>(steps) * batch;
}

std::map<std::string, std::string> model_facts(const Task& task) { return {{"atoll.run", task.run}, {"atoll.task", task.task}}; }

Result<std::vector<Dit>> experts_of(const Task& task, const at::Device& device) {
  std::vector<Dit> experts;
  for (std::uint32_t k = 0; k < task.diffusion.experts; ++k) {
    ATOLL_ASSIGN(const TaskInput* const input, input_of(task, expert_name(k)));
    ATOLL_ASSIGN(const SafetensorsFile file, SafetensorsFile::open(input->path));
    ATOLL_ASSIGN(Dit expert, load_dit(file, device));
    experts.push_back(std::move(expert));
  }
  return experts;
}

Result<std::string> train_expert(const Task& task, const TaskListener& listener, std::uint32_t cluster) {
  ATOLL_ASSIGN(const ImageMaterial material, material_of(task, cluster));
  ATOLL_ASSIGN(const DitSizes sizes, expert_sizes(task.model, task.diffusion, material.images));
  const std::uint64_t own_seed = stream_of(task.task, task.seed);
  ATOLL_ASSIGN(DitLearner learner, DitLearner::make(sizes, task.training, task.diffusion.ema, own_seed));
  const at::Device device = learner.device();
  ATOLL_TRY(train(task, listener, material, task.training, learner, [&](const Dit& model, const std::vector<std::size_t>& chosen, std::uint64_t step) {
    const at::Tensor clean = material.batch(chosen);
    const NoisedBatch noised = noised_batch(clean, task.diffusion.times, own_seed, step);
    const at::Tensor classes = classes_of(task.diffusion, material.images, sizes, chosen, own_seed, step).to(device);
    return at::mse_loss(model.forward(noised.x.to(device), noised.t.to(device), classes), noised.velocity.to(device));
  }));
  ATOLL_TRY(learner.export_average(task.output, model_facts(task)));
  return json{{"cluster", cluster}, {"images", material.train.size()}, {"steps", task.training.steps}, {"training_flops", training_flops(sizes, task.training.steps, task.training.batch)}}.dump();
}

Result<std::string> train_router(const Task& task, const TaskListener& listener) {
  ATOLL_ASSIGN(const ImageMaterial material, material_of(task, std::nullopt));
  ATOLL_ASSIGN(const DitSizes sizes, router_sizes(task.diffusion, material.images));
  const std::uint64_t own_seed = stream_of(task.task, task.seed);
  const island_link::Training training = router_training(task);
  ATOLL_ASSIGN(DitLearner learner, DitLearner::make(sizes, training, task.diffusion.ema, own_seed));
  const at::Device device = learner.device();
  ATOLL_TRY(train(task, listener, material, training, learner, [&](const Dit& model, const std::vector<std::size_t>& chosen, std::uint64_t step) {
    const NoisedBatch noised = noised_batch(material.batch(chosen), "uniform", own_seed, step);
    std::vector<std::int64_t> clusters;
    for (const std::size_t i : chosen) {
      clusters.push_back(material.assignment[i]);
    }
    return at::cross_entropy_loss(model.forward(noised.x.to(device), noised.t.to(device), {}), at::tensor(clusters, at::kLong).to(device));
  }));
  ATOLL_TRY(learner.export_average(task.output, model_facts(task)));
  return json{{"steps", training.steps}, {"training_flops", training_flops(sizes, training.steps, training.batch)}}.dump();
}

// The dense model's teacher for an image is the expert of its cluster ("Distillation"): no router, and one expert's work for an image.
Result<std::string> distill(const Task& task, const TaskListener& listener) {
  ATOLL_ASSIGN(const ImageMaterial material, material_of(task, std::nullopt));
  ATOLL_ASSIGN(const DitSizes sizes, expert_sizes(task.model, task.diffusion, material.images));
  const std::uint64_t own_seed = stream_of(task.task, task.seed);
  const island_link::Training training = dense_training(task);
  ATOLL_ASSIGN(DitLearner learner, DitLearner::make(sizes, training, task.diffusion.ema, own_seed));
  const at::Device device = learner.device();
  ATOLL_ASSIGN(const std::vector<Dit> experts, experts_of(task, device));
  for (const Dit& expert : experts) {
    if (expert.sizes() != sizes) {
      return Error{Code::invalid_argument, "the experts are not of the sizes that this run trains"};
    }
  }
  ATOLL_TRY(train(task, listener, material, training, learner, [&](const Dit& model, const std::vector<std::size_t>& chosen, std::uint64_t step) {
    const NoisedBatch noised = noised_batch(material.batch(chosen), task.diffusion.times, own_seed, step);
    const at::Tensor x = noised.x.to(device);
    const at::Tensor t = noised.t.to(device);
    const at::Tensor classes = classes_of(task.diffusion, material.images, sizes, chosen, own_seed, step).to(device);
    const at::Tensor taught = at::empty_like(x);
    for (std::size_t k = 0; k < experts.size(); ++k) {
      std::vector<std::int64_t> its;
      for (std::size_t i = 0; i < chosen.size(); ++i) {
        if (material.assignment[chosen[i]] == k) {
          its.push_back(static_cast<std::int64_t>(i));
        }
      }
      if (!its.empty()) {
        const at::NoGradGuard no_gradient;
        const at::Tensor rows = at::tensor(its, at::kLong).to(device);
        taught.index_copy_(0, rows, experts[k].forward(x.index_select(0, rows), t.index_select(0, rows), sizes.classes > 0 ? classes.index_select(0, rows) : at::Tensor()));
      }
    }
    return at::mse_loss(model.forward(x, t, sizes.classes > 0 ? classes : at::Tensor()), taught);
  }));
  ATOLL_TRY(learner.export_average(task.output, model_facts(task)));
  return json{{"steps", training.steps}, {"training_flops", training_flops(sizes, training.steps, training.batch)}}.dump();
}

// ---- the ensemble

json file_entry(const TaskInput& input, const std::string& name) { return {{"file", name}, {"sha256", input.sha256}, {"bytes", input.bytes}}; }

// Sums over images at one noise level.
struct LevelSums {
  double own = 0, top = 0, full = 0;  // squared errors of the flow: expert of the image's cluster, ensemble by top-1, by full
  double dense = 0;                   // of the dense model
  double right = 0, surprise = 0;     // of the router: hits; −log probability of the right cluster
  double confidence = 0;              // of the router's likeliest cluster
};

Result<json> measure(const Task& task, const TaskListener& listener, const std::vector<Dit>& experts, const std::optional<Dit>& router, const std::optional<Dit>& dense) {
  ATOLL_ASSIGN(const ImageMaterial material, material_of(task, std::nullopt));
  const std::vector<std::size_t> chosen = material.evaluated(std::uint64_t{task.training.evaluate_batches} * task.training.batch);
  const at::NoGradGuard no_gradient;
  std::vector<LevelSums> levels(kNoiseLevels);
  std::vector<double> by_expert(experts.size(), 0.0);
  std::vector<std::uint64_t> of_expert(experts.size(), 0);
  constexpr std::size_t batch = 64;  // whatever the training's, so that runs of other batches are measured with the same noise
  for (std::size_t from = 0; from < chosen.size(); from += batch) {
    const std::vector<std::size_t> some(chosen.begin() + static_cast<std::ptrdiff_t>(from), chosen.begin() + static_cast<std::ptrdiff_t>(std::min(from + batch, chosen.size())));
    const at::Tensor clean = material.batch(some);
    std::vector<std::int64_t> clusters;
    for (const std::size_t i : some) {
      clusters.push_back(material.assignment[i]);
    }
    for (std::size_t level = 0; level < kNoiseLevels; ++level) {
      const NoisedBatch noised = noised_at_level(clean, level, task.seed, from);
      LevelSums& sums = levels[level];
      // Every expert sees every image once; the choices are weights of what they say.
      std::vector<at::Tensor> errors;
      std::vector<at::Tensor> flows;
      for (std::size_t k = 0; k < experts.size(); ++k) {
        flows.push_back(experts[k].forward(noised.x, noised.t, {}));
        errors.push_back((flows.back() - noised.velocity).square().flatten(1).mean(1).to(at::kDouble));
      }
      for (std::size_t i = 0; i < some.size(); ++i) {
        const auto k = static_cast<std::size_t>(clusters[i]);
        const double its = errors[k].data_ptr<double>()[i];
        sums.own += its;
        by_expert[k] += its;
        ++of_expert[k];
      }
      const at::Tensor logits = router ? router->forward(noised.x, noised.t, {}) : at::Tensor();
      EnsembleFlow ensemble;
      for (const at::Tensor& flow : flows) {
        ensemble.experts.emplace_back([&flow](const at::Tensor&, const at::Tensor&) { return flow; });
      }
      if (router) {
        ensemble.router = [&logits](const at::Tensor&, const at::Tensor&) { return logits; };
      }
      const auto error_by = [&](const ExpertChoice& choice) {
        ensemble.choice = choice;
        const at::Tensor weights = expert_weights(ensemble, noised.x, noised.t);
        at::Tensor sum = at::zeros_like(noised.x);
        for (std::size_t k = 0; k < flows.size(); ++k) {
          sum.add_(flows[k] * weights.select(1, static_cast<std::int64_t>(k)).view({-1, 1, 1, 1}));
        }
        return (sum - noised.velocity).square().flatten(1).mean(1).to(at::kDouble).sum().item<double>();
      };
      sums.top += error_by({ExpertChoice::Kind::top, 1, 0});
      sums.full += error_by({ExpertChoice::Kind::full, 0, 0});
      if (dense) {
        sums.dense += (dense->forward(noised.x, noised.t, {}) - noised.velocity).square().flatten(1).mean(1).to(at::kDouble).sum().item<double>();
      }
      if (router) {
        const at::Tensor truth = at::tensor(clusters, at::kLong);
        const at::Tensor logs = at::log_softmax(logits.to(at::kDouble), 1);
        sums.right += (logs.argmax(1) == truth).to(at::kDouble).sum().item<double>();
        sums.surprise -= logs.gather(1, truth.unsqueeze(1)).sum().item<double>();
        sums.confidence += std::get<0>(logs.max(1)).exp().sum().item<double>();
      }
    }
    ATOLL_TRY(listener.progress({std::min(from + batch, chosen.size()), chosen.size(), std::nullopt, 0.0, 0.0}));
  }
  const auto count = static_cast<double>(std::max<std::size_t>(chosen.size(), 1));
  json by_level = json::array();
  LevelSums all;
  for (std::size_t level = 0; level < kNoiseLevels; ++level) {
    const LevelSums& sums = levels[level];
    json entry = {{"t", noise_level(level)}, {"expert_of_cluster", sums.own / count}, {"top_1", sums.top / count}, {"full", sums.full / count}};
    if (router) {
      entry["router_accuracy"] = sums.right / count;
      entry["router_confidence"] = sums.confidence / count;
      entry["router_cross_entropy"] = sums.surprise / count;
    }
    if (dense) {
      entry["dense"] = sums.dense / count;
    }
    by_level.push_back(std::move(entry));
    all.own += sums.own, all.top += sums.top, all.full += sums.full, all.right += sums.right, all.dense += sums.dense;
  }
  json of_experts = json::array();
  for (std::size_t k = 0; k < experts.size(); ++k) {
    of_experts.push_back(of_expert[k] == 0 ? json() : json(by_expert[k] / static_cast<double>(of_expert[k])));
  }
  const double total = count * static_cast<double>(kNoiseLevels);
  json result = {{"images", chosen.size()},         {"by_noise_level", std::move(by_level)},  {"experts", std::move(of_experts)},
                 {"expert_of_cluster", all.own / total}, {"top_1", all.top / total}, {"full", all.full / total}};
  if (router) {
    result["router_accuracy"] = all.right / total;
  }
  if (dense) {
    result["dense"] = all.dense / total;
  }
  return result;
}

Result<std::string> assemble(const Task& task, const TaskListener& listener) {
  ATOLL_ASSIGN(const std::vector<Dit> experts, experts_of(task, at::kCPU));
  std::optional<Dit> router;
  std::optional<Dit> dense;
  json files = json::array();
  double expert_flops = 0;
  for (std::uint32_t k = 0; k < task.diffusion.experts; ++k) {
    ATOLL_ASSIGN(const TaskInput* const input, input_of(task, expert_name(k)));
    expert_flops += training_flops(experts[k].sizes(), task.training.steps, task.training.batch);
    files.push_back(file_entry(*input, expert_name(k) + ".safetensors"));
  }
  json document = {{"format", "atoll-ensemble"}, {"version", 1}, {"run", task.run}, {"experts", std::move(files)}, {"training_flops", {{"experts", expert_flops}}}};
  if (task.diffusion.experts > 1) {
    ATOLL_ASSIGN(const TaskInput* const input, input_of(task, "router"));
    ATOLL_ASSIGN(const SafetensorsFile file, SafetensorsFile::open(input->path));
    ATOLL_ASSIGN(Dit loaded, load_dit(file, at::kCPU));
    router.emplace(std::move(loaded));
    document["router"] = file_entry(*input, "router.safetensors");
    const island_link::Training training = router_training(task);
    document["training_flops"]["router"] = training_flops(router->sizes(), training.steps, training.batch);
  }
  if (task.diffusion.distill_steps > 0) {
    ATOLL_ASSIGN(const TaskInput* const input, input_of(task, "distill"));
    ATOLL_ASSIGN(const SafetensorsFile file, SafetensorsFile::open(input->path));
    ATOLL_ASSIGN(Dit loaded, load_dit(file, at::kCPU));
    dense.emplace(std::move(loaded));
    document["dense"] = file_entry(*input, "dense.safetensors");
    const island_link::Training training = dense_training(task);
    document["training_flops"]["dense"] = training_flops(dense->sizes(), training.steps, training.batch);
  }
  set_arithmetic_threads(task.training.threads);
  ATOLL_ASSIGN(document["validation"], measure(task, listener, experts, router, dense));
  const std::string text = document.dump(1);
  NewFile file(task.output + ".new");
  ATOLL_TRY(file.opened());
  ATOLL_TRY(file.write({reinterpret_cast<const std::byte*>(text.data()), text.size()}));
  ATOLL_TRY(file.keep_as(task.output));
  json facts = document["validation"];
  facts.erase("by_noise_level");
  return facts.dump();
}

}  // namespace

Result<std::string> perform(const Task& task, const TaskListener& listener) {
  return catching([&]() -> Result<std::string> {
    if (task.task == "features") {
      return make_features(task, listener);
    }
    if (task.task == "clustering") {
      return make_clusters(task);
    }
    if (task.task == "router") {
      return train_router(task, listener);
    }
    if (task.task == "distill") {
      return distill(task, listener);
    }
    if (task.task == "assemble") {
      return assemble(task, listener);
    }
    if (const std::optional<std::uint32_t> expert = expert_number(task.task)) {
      return train_expert(task, listener, *expert);
    }
    return Error{Code::invalid_argument, "this trainer knows no task '" + task.task + "'"};
  });
}

}  // namespace atl
