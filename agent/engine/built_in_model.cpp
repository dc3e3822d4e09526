#include "agent/engine/built_in_model.hpp"

#include <algorithm>

#include "agent/engine/parameter_layout.hpp"
#include "agent/island_link/model_manifest.hpp"
#include "strategies/specification/model_kind.hpp"

namespace atl {

void put_model(const RunSpec& spec, island_link::Configure& order) {
  switch (model_kind(spec)) {
    case ModelKind::diffusion:
      order.diffusion = spec.diffusion;
      [[fallthrough]];
    case ModelKind::language:
      order.model = spec.model;
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
      return island_link::model_manifest(spec.model);
    case ModelKind::diffusion:
      return island_link::image_model_manifest(spec.model, {1, spec.diffusion.patch, 0, 0});
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
