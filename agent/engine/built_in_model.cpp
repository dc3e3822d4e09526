#include "agent/engine/built_in_model.hpp"

#include <algorithm>

#include "agent/engine/parameter_layout.hpp"
#include "agent/island_link/model_manifest.hpp"
#include "strategies/specification/model_kind.hpp"

namespace atl {

island_link::Model model_of(const ModelSpec& spec) {
  island_link::Model model;
  model.layers = spec.layers;
  model.width = spec.width;
  model.heads = spec.heads;
  model.feed_forward = spec.feed_forward;
  model.vocabulary = spec.vocabulary;
  model.tied_embeddings = spec.tied_embeddings;
  return model;
}

island_link::Training training_of(const TrainingSpec& training) {
  island_link::Training message;
  message.steps = training.steps;
  message.batch = training.batch;
  message.sequence_length = training.sequence_length;
  message.accumulation = training.accumulation;
  message.learning_rate = training.learning_rate;
  message.warmup_steps = training.warmup_steps;
  message.final_learning_rate = training.final_learning_rate;
  message.weight_decay = training.weight_decay;
  message.beta1 = training.beta1;
  message.beta2 = training.beta2;
  message.epsilon = training.epsilon;
  message.clip_norm = training.clip_norm;
  message.max_steps_per_second = training.max_steps_per_second;
  message.device = training.device;
  message.precision = training.precision;
  message.threads = training.threads;
  message.evaluate_batches = training.evaluate_batches;
  return message;
}

island_link::Diffusion diffusion_of(const DiffusionSpec& d) {
  island_link::Diffusion message;
  message.experts = d.experts;
  message.clusters_by = d.clusters_by;
  message.features = d.features;
  message.feature_width = d.feature_width;
  message.fine_clusters = d.fine_clusters;
  message.balance = d.balance;
  message.patch = d.patch;
  message.conditional = d.conditional;
  message.class_dropout = d.class_dropout;
  message.times = d.times;
  message.ema = d.ema;
  message.router_patch = d.router_patch;
  message.router_layers = d.router_layers;
  message.router_width = d.router_width;
  message.router_heads = d.router_heads;
  message.router_steps = d.router_steps;
  message.router_batch = d.router_batch;
  message.router_learning_rate = d.router_learning_rate;
  message.distill_steps = d.distill_steps;
  message.distill_batch = d.distill_batch;
  message.save_every = d.save_every;
  return message;
}

void put_model(const RunSpec& spec, island_link::Configure& order) {
  switch (model_kind(spec)) {
    case ModelKind::diffusion:
      order.diffusion = diffusion_of(spec.diffusion);
      [[fallthrough]];
    case ModelKind::language:
      order.model = model_of(spec.model);
      return;
    case ModelKind::own:
      order.trainer = island_link::OwnTrainer{spec.trainer.name, spec.trainer.ranks, spec.trainer.tokens_per_sample,
                                              spec.trainer.settings.empty() ? "{}" : spec.trainer.settings};
      return;
  }
}

namespace {

// One parameter for each fragment that there will be, of equal size: all that is known before a trainer has said what it has.
island_link::Manifest stand_in_manifest(const RunSpec& spec) {
  const StrategySpec& strategy = spec.strategy;
  const bool by_layers = strategy.grouping == FragmentKind::sequential || strategy.grouping == FragmentKind::strided;
  const std::uint32_t cuts = strategy.grouping == FragmentKind::whole ? 1 : std::max(strategy.fragments, 1U);
  const std::uint32_t fragments = cuts + (by_layers ? 1 : 0);
  const std::uint64_t values = std::max<std::uint64_t>(parse_count(spec.trainer.parameters).value_or(0) / fragments, 1);
  island_link::Manifest manifest;
  for (std::uint32_t fragment = 0; fragment < fragments; ++fragment) {
    manifest.parameters.push_back({"fragment " + std::to_string(fragment), {values}, static_cast<std::int32_t>(fragment)});
  }
  return manifest;
}

}  // namespace

island_link::Manifest manifest_of(const RunSpec& spec) {
  switch (model_kind(spec)) {
    case ModelKind::language:
      return island_link::model_manifest(model_of(spec.model));
    case ModelKind::diffusion:
      return island_link::image_model_manifest(model_of(spec.model), {1, spec.diffusion.patch, 0, 0});
    case ModelKind::own:
      break;
  }
  return stand_in_manifest(spec);
}

Result<std::vector<std::uint64_t>> fragment_values(const RunSpec& spec, const FragmentPlan& plan) {
  ATOLL_ASSIGN(const ParameterLayout layout, ParameterLayout::make(manifest_of(spec), plan));
  std::vector<std::uint64_t> values;
  for (const island_link::Fragment& fragment : layout.fragments()) {
    values.push_back(fragment.count);
  }
  return values;
}

}  // namespace atl
