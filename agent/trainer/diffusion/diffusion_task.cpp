#include "agent/trainer/diffusion/diffusion_task.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "agent/trainer/diffusion/cluster_task.hpp"
#include "agent/trainer/diffusion/dit_learner.hpp"
#include "agent/trainer/diffusion/ensemble_flow.hpp"
#include "agent/trainer/diffusion/flow_matching.hpp"
#include "agent/trainer/diffusion/image_material.hpp"
#include "agent/trainer/diffusion/progress_images.hpp"
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

// ---- training

Result<ImageMaterial> material_of(const Task& task, std::optional<std::uint32_t> cluster) {
  ATOLL_TRY(input_of(task, "clustering"));
  return ImageMaterial::open(task.data, task.seed, task.inputs, cluster);
}

// Images that the model makes by now, for people. What cannot be drawn ends no task.
Status show(const Task& task, const TaskListener& listener, const DitLearner& learner) {
  if (!listener.drew || learner.averaged().sizes().outputs > 0) {
    return {};  // a router makes none
  }
  const Result<bool> drawn = draw_progress(learner.averaged(), task.seed, task.checkpoint + ".png");
  return drawn && *drawn ? listener.drew({learner.step()}) : Status();
}

// Steps a learner to its end, telling and saving on the way. `loss`: of the step's images.
using StepLoss = std::function<at::Tensor(const Dit& model, const std::vector<std::size_t>& images, std::uint64_t step)>;
Status train(const Task& task, const TaskListener& listener, const ImageMaterial& material, const island_link::Training& training,
             DitLearner& learner, const StepLoss& loss_of) {
  if (task.resume) {
    ATOLL_TRY(learner.restore(*task.resume));
  }
  if (material.train.size() < training.batch) {
    return Error{Code::invalid_argument, "there are " + std::to_string(material.train.size()) +
                                             " images to train on, fewer than a batch of " + std::to_string(training.batch)};
  }
  const TimePoint begin = now();
  TimePoint told = begin;
  std::uint64_t told_step = learner.step();
  TimePoint next = begin;
  while (learner.step() < training.steps) {
    const std::uint64_t step = learner.step();
    const std::vector<std::size_t> chosen = images_from(material.train, task.seed, step * training.batch, training.batch);
    ATOLL_ASSIGN(const at::Tensor computed, learner.take_step([&](const Dit& model) { return loss_of(model, chosen, step); }));
    if (task.diffusion.save_every > 0 && learner.step() % task.diffusion.save_every == 0 && learner.step() < training.steps) {
      const std::string path = task.checkpoint + "." + std::to_string(learner.step());
      ATOLL_TRY(learner.save(path));
      ATOLL_TRY(listener.saved({path, learner.step()}));
      ATOLL_TRY(show(task, listener, learner));
    }
    const TimePoint here = now();
    if (here - told >= kTellEvery || learner.step() == training.steps) {
      const double loss = computed.item<double>();
      const double speed = static_cast<double>((learner.step() - told_step) * training.batch) / std::max(seconds(here - told), 1e-9);
      ATOLL_TRY(listener.progress(
          {learner.step(), training.steps, std::isfinite(loss) ? std::optional(loss) : std::nullopt, speed, seconds(here - begin)}));
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
  return show(task, listener, learner);
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
  ATOLL_ASSIGN(const DitSizes sizes, expert_sizes(task.model, task.diffusion, facts_of(material.images)));
  const std::uint64_t own_seed = stream_of(task.task, task.seed);
  ATOLL_ASSIGN(DitLearner learner, DitLearner::make(sizes, task.training, task.diffusion.ema, own_seed));
  const at::Device device = learner.device();
  ATOLL_TRY(train(task, listener, material, task.training, learner,
                  [&](const Dit& model, const std::vector<std::size_t>& chosen, std::uint64_t step) {
                    const at::Tensor clean = material.batch(chosen);
                    const NoisedBatch noised = noised_batch(clean, task.diffusion.times, own_seed, step).on(device);
                    const at::Tensor classes = classes_of(task.diffusion, material.images, sizes, chosen, own_seed, step).to(device);
                    return at::mse_loss(model.forward(noised.x, noised.t, classes), noised.velocity);
                  }));
  ATOLL_TRY(learner.export_average(task.output, model_facts(task)));
  return json{{"cluster", cluster},
              {"images", material.train.size()},
              {"steps", task.training.steps},
              {"training_flops", training_flops(sizes, task.training.steps, task.training.batch)}}
      .dump();
}

Result<std::string> train_router(const Task& task, const TaskListener& listener) {
  ATOLL_ASSIGN(const ImageMaterial material, material_of(task, std::nullopt));
  ATOLL_ASSIGN(const DitSizes sizes, router_sizes(task.diffusion, facts_of(material.images)));
  const std::uint64_t own_seed = stream_of(task.task, task.seed);
  const island_link::Training training = router_training(task);
  ATOLL_ASSIGN(DitLearner learner, DitLearner::make(sizes, training, task.diffusion.ema, own_seed));
  const at::Device device = learner.device();
  ATOLL_TRY(
      train(task, listener, material, training, learner, [&](const Dit& model, const std::vector<std::size_t>& chosen, std::uint64_t step) {
        const NoisedBatch noised = noised_batch(material.batch(chosen), "uniform", own_seed, step).on(device);
        std::vector<std::int64_t> clusters;
        for (const std::size_t i : chosen) {
          clusters.push_back(material.assignment[i]);
        }
        return at::cross_entropy_loss(model.forward(noised.x, noised.t, {}), at::tensor(clusters, at::kLong).to(device));
      }));
  ATOLL_TRY(learner.export_average(task.output, model_facts(task)));
  return json{{"steps", training.steps}, {"training_flops", training_flops(sizes, training.steps, training.batch)}}.dump();
}

// The dense model's teacher for an image is the expert of its cluster ("Distillation"): no router, and one expert's work for an image.
Result<std::string> distill(const Task& task, const TaskListener& listener) {
  ATOLL_ASSIGN(const ImageMaterial material, material_of(task, std::nullopt));
  ATOLL_ASSIGN(const DitSizes sizes, expert_sizes(task.model, task.diffusion, facts_of(material.images)));
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
  ATOLL_TRY(
      train(task, listener, material, training, learner, [&](const Dit& model, const std::vector<std::size_t>& chosen, std::uint64_t step) {
        const NoisedBatch noised = noised_batch(material.batch(chosen), task.diffusion.times, own_seed, step).on(device);
        const at::Tensor& x = noised.x;
        const at::Tensor& t = noised.t;
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
            taught.index_copy_(0, rows,
                               experts[k].forward(x.index_select(0, rows), t.index_select(0, rows),
                                                  sizes.classes > 0 ? classes.index_select(0, rows) : at::Tensor()));
          }
        }
        return at::mse_loss(model.forward(x, t, sizes.classes > 0 ? classes : at::Tensor()), taught);
      }));
  ATOLL_TRY(learner.export_average(task.output, model_facts(task)));
  return json{{"steps", training.steps}, {"training_flops", training_flops(sizes, training.steps, training.batch)}}.dump();
}

// ---- the ensemble

json file_entry(const TaskInput& input, const std::string& name) {
  return {{"file", name}, {"sha256", input.sha256}, {"bytes", input.bytes}};
}

// Sums over images at one noise level.
struct LevelSums {
  double own = 0, top = 0, full = 0;  // squared errors of the flow: expert of the image's cluster, ensemble by top-1, by full
  double dense = 0;                   // of the dense model
  double right = 0, surprise = 0;     // of the router: hits; −log probability of the right cluster
  double confidence = 0;              // of the router's likeliest cluster
};

Result<json> measure(const Task& task, const TaskListener& listener, const std::vector<Dit>& experts, const std::optional<Dit>& router,
                     const std::optional<Dit>& dense, at::Device device) {
  ATOLL_ASSIGN(const ImageMaterial material, material_of(task, std::nullopt));
  const std::vector<std::size_t> chosen = material.evaluated(std::uint64_t{task.training.evaluate_batches} * task.training.batch);
  const at::NoGradGuard no_gradient;
  std::vector<LevelSums> levels(kNoiseLevels);
  std::vector<double> by_expert(experts.size(), 0.0);
  std::vector<std::uint64_t> of_expert(experts.size(), 0);
  constexpr std::size_t kBatch = 64;  // whatever the training's, so that runs of other batches are measured with the same noise
  for (std::size_t from = 0; from < chosen.size(); from += kBatch) {
    const std::vector<std::size_t> some(chosen.begin() + static_cast<std::ptrdiff_t>(from),
                                        chosen.begin() + static_cast<std::ptrdiff_t>(std::min(from + kBatch, chosen.size())));
    const at::Tensor clean = material.batch(some);
    std::vector<std::int64_t> clusters;
    for (const std::size_t i : some) {
      clusters.push_back(material.assignment[i]);
    }
    for (std::size_t level = 0; level < kNoiseLevels; ++level) {
      const NoisedBatch noised = noised_at_level(clean, level, task.seed, from).on(device);
      LevelSums& sums = levels[level];
      // Every expert sees every image once; the choices are weights of what they say.
      std::vector<at::Tensor> errors;
      std::vector<at::Tensor> flows;
      for (std::size_t k = 0; k < experts.size(); ++k) {
        flows.push_back(experts[k].forward(noised.x, noised.t, {}));
        errors.push_back((flows.back() - noised.velocity).square().flatten(1).mean(1).to(at::kDouble).cpu());
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
        sums.dense +=
            (dense->forward(noised.x, noised.t, {}) - noised.velocity).square().flatten(1).mean(1).to(at::kDouble).sum().item<double>();
      }
      if (router) {
        const at::Tensor truth = at::tensor(clusters, at::kLong).to(device);
        const at::Tensor logs = at::log_softmax(logits.to(at::kDouble), 1);
        sums.right += (logs.argmax(1) == truth).to(at::kDouble).sum().item<double>();
        sums.surprise -= logs.gather(1, truth.unsqueeze(1)).sum().item<double>();
        sums.confidence += std::get<0>(logs.max(1)).exp().sum().item<double>();
      }
    }
    ATOLL_TRY(listener.progress({std::min(from + kBatch, chosen.size()), chosen.size(), std::nullopt, 0.0, 0.0}));
  }
  const auto count = static_cast<double>(std::max<std::size_t>(chosen.size(), 1));
  json by_level = json::array();
  LevelSums all;
  for (std::size_t level = 0; level < kNoiseLevels; ++level) {
    const LevelSums& sums = levels[level];
    json entry = {
        {"t", noise_level(level)}, {"expert_of_cluster", sums.own / count}, {"top_1", sums.top / count}, {"full", sums.full / count}};
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
  json result = {{"images", chosen.size()},          {"by_noise_level", std::move(by_level)},
                 {"experts", std::move(of_experts)}, {"expert_of_cluster", all.own / total},
                 {"top_1", all.top / total},         {"full", all.full / total}};
  if (router) {
    result["router_accuracy"] = all.right / total;
  }
  if (dense) {
    result["dense"] = all.dense / total;
  }
  return result;
}

Result<std::string> assemble(const Task& task, const TaskListener& listener) {
  ATOLL_ASSIGN(const at::Device device, device_named(task.training.device));
  ATOLL_ASSIGN(const std::vector<Dit> experts, experts_of(task, device));
  std::optional<Dit> router;
  std::optional<Dit> dense;
  json files = json::array();
  double expert_flops = 0;
  for (std::uint32_t k = 0; k < task.diffusion.experts; ++k) {
    ATOLL_ASSIGN(const TaskInput* const input, input_of(task, expert_name(k)));
    expert_flops += training_flops(experts[k].sizes(), task.training.steps, task.training.batch);
    files.push_back(file_entry(*input, expert_name(k) + ".safetensors"));
  }
  json document = {{"format", "atoll-ensemble"},
                   {"version", 1},
                   {"run", task.run},
                   {"experts", std::move(files)},
                   {"training_flops", {{"experts", expert_flops}}}};
  if (task.diffusion.experts > 1) {
    ATOLL_ASSIGN(const TaskInput* const input, input_of(task, "router"));
    ATOLL_ASSIGN(const SafetensorsFile file, SafetensorsFile::open(input->path));
    ATOLL_ASSIGN(Dit loaded, load_dit(file, device));
    router.emplace(std::move(loaded));
    document["router"] = file_entry(*input, "router.safetensors");
    const island_link::Training training = router_training(task);
    document["training_flops"]["router"] = training_flops(router->sizes(), training.steps, training.batch);
  }
  if (task.diffusion.distill_steps > 0) {
    ATOLL_ASSIGN(const TaskInput* const input, input_of(task, "distill"));
    ATOLL_ASSIGN(const SafetensorsFile file, SafetensorsFile::open(input->path));
    ATOLL_ASSIGN(Dit loaded, load_dit(file, device));
    dense.emplace(std::move(loaded));
    document["dense"] = file_entry(*input, "dense.safetensors");
    const island_link::Training training = dense_training(task);
    document["training_flops"]["dense"] = training_flops(dense->sizes(), training.steps, training.batch);
  }
  set_arithmetic_threads(task.training.threads);
  ATOLL_ASSIGN(document["validation"], measure(task, listener, experts, router, dense, device));
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
    if (task.task.starts_with("images/")) {
      return pack_images(task);
    }
    if (task.task.starts_with("features")) {
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
