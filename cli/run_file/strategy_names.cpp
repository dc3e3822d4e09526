#include "cli/run_file/strategy_names.hpp"

#include "strategies/composition.hpp"
#include "strategies/specification/run_keys.hpp"

namespace atl {
namespace {

void check_effect(const StrategySpec& strategy, const std::function<bool(std::string_view)>& is_set, std::vector<RunProblem>& problems) {
  const auto refuse = [&](std::string_view key, const std::string& with) {
    if (is_set(key)) {
      problems.push_back({"strategy", key, std::string(key) + " has no effect with " + with + "; remove it", {"strategy.name"}});
    }
  };
  if (strategy.outer_optimizer == OuterOptimizerKind::adopt) {
    refuse("outer_learning_rate", "outer_optimizer = \"adopt\"");
    refuse("outer_momentum", "outer_optimizer = \"adopt\"");
  }
  if (strategy.outer_optimizer == OuterOptimizerKind::sgd) {
    refuse("outer_momentum", "outer_optimizer = \"sgd\"");
  }
  if (strategy.grouping == FragmentKind::whole) {
    refuse("fragments", "grouping = \"whole\"");
    refuse("layers_per_fragment", "grouping = \"whole\"");
  } else if (strategy.grouping == FragmentKind::balanced) {
    refuse("layers_per_fragment", "grouping = \"balanced\"");
  } else if (strategy.fragments != 0) {
    refuse("layers_per_fragment", "fragments = " + std::to_string(strategy.fragments));
  }
  if (strategy.group != Group::pairs) {
    for (const std::string_view key : {"group_size", "outer_pull", "allow_unstable", "parameters_codec", "max_skew", "final_merge"}) {
      refuse(key, "group = \"" + std::string(name_of(strategy.group)) + "\"");
    }
  } else {
    refuse("reduce_codec", "group = \"pairs\"");
  }
  const auto scaled = [](CodecKind codec) { return codec == CodecKind::int8 || codec == CodecKind::fp4; };
  if (!scaled(strategy.codec) && !scaled(strategy.reduce_codec) && !scaled(strategy.parameters_codec)) {
    refuse("codec_block", "codecs that have no scales (f32, bf16)");
  }
  if (strategy.codec == CodecKind::f32) {
    refuse("rounding", "codec = \"f32\"");
    refuse("error_feedback", "codec = \"f32\", which loses nothing");
  }
  if (strategy.group == Group::nobody) {
    for (const std::string_view key : {"codec", "reduce_codec", "packing", "weighting"}) {
      refuse(key, "group = \"" + std::string(name_of(strategy.group)) + "\"");
    }
  }
}

}  // namespace

std::vector<RunProblem> apply_strategy_name(StrategySpec& strategy, const std::function<bool(std::string_view key)>& is_set) {
  const Result<StrategySpec> named = named_strategy(strategy.name);
  if (!named) {
    return {{"strategy", "name", named.error().why}};
  }
  RunSpec spec;
  spec.strategy = strategy;
  RunSpec defaults;
  defaults.strategy = *named;
  std::vector<RunProblem> problems;
  for (const RunKey& key : run_keys()) {
    if (key.section != "strategy" || is_set(key.name)) {
      continue;
    }
    if (const Status put = assign(key, value_of(key, defaults), spec); !put) {
      problems.push_back({"strategy", key.name, put.error().why});
    }
  }
  strategy = spec.strategy;
  if (named->overlap_steps == named->inner_steps && !is_set("overlap_steps")) {
    strategy.overlap_steps = strategy.inner_steps;  // a whole period stays one
  }
  check_effect(strategy, is_set, problems);
  for (const SettingProblem& problem : strategy_problems(strategy)) {
    // A part that this run file cannot name has its default, which is always possible.
    if (const RunKey* key = find_run_key("strategy", problem.field)) {
      problems.push_back({"strategy", key->name, std::string(key->name) + " " + problem.why, {"strategy.name"}});
    }
  }
  return problems;
}

}  // namespace atl
