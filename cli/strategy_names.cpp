#include "cli/strategy_names.hpp"

#include <algorithm>
#include <array>

#include "agent/run_composition.hpp"
#include "strategies/composition.hpp"
#include "transport/run_keys.hpp"

namespace atl {
namespace {

// With another value of this part the run would not be what its name says.
struct Essential {
  std::string_view name;
  std::string_view key;
};
constexpr std::array<Essential, 12> kEssential = {{{"diloco", "group"},
                                                  {"diloco", "payload"},
                                                  {"streaming-diloco", "group"},
                                                  {"streaming-diloco", "payload"},
                                                  {"noloco", "group"},
                                                  {"noloco", "outer_optimizer"},
                                                  {"data-parallel", "payload"},
                                                  {"data-parallel", "inner_steps"},
                                                  {"local", "group"},
                                                  {"local", "outer_optimizer"},
                                                  {"decentralized-diffusion", "group"},
                                                  {"decentralized-diffusion", "payload"}}};

StrategySpec spec_of(const StrategySettings& settings, const std::string& name) {
  StrategySpec spec;
  spec.name = name;
  spec.grouping = settings.grouping;
  spec.fragments = settings.fragments;
  spec.layers_per_fragment = settings.layers_per_fragment;
  spec.inner_steps = settings.inner_steps;
  spec.group = settings.group;
  spec.payload = settings.payload;
  spec.codec = settings.codec;
  spec.reduce_codec = settings.reduce_codec;
  spec.codec_block = settings.codec_block;
  spec.rounding = settings.rounding;
  spec.error_feedback = settings.error_feedback;
  spec.outer_optimizer = settings.outer_optimizer;
  spec.outer_learning_rate = settings.outer_learning_rate;
  spec.outer_momentum = settings.outer_momentum;
  spec.merge_alpha = settings.merge_alpha;
  spec.overlap_steps = settings.overlap_steps;
  spec.weighting = settings.weighting;
  spec.pace = settings.pace;
  spec.outer_pull = settings.outer_pull;
  spec.allow_unstable = settings.allow_unstable;
  spec.parameters_codec = settings.parameters_codec;
  spec.group_size = settings.group_size;
  spec.max_skew = settings.max_skew;
  spec.final_merge = settings.final_merge;
  return spec;
}

void check_effect(const StrategySpec& strategy, const std::function<bool(std::string_view)>& is_set, std::vector<RunProblem>& problems) {
  const auto refuse = [&](std::string_view key, const std::string& with) {
    if (is_set(key)) {
      problems.push_back({"strategy", key, std::string(key) + " has no effect with " + with + "; remove it", {"strategy.name"}});
    }
  };
  if (strategy.outer_optimizer == "adopt") {
    refuse("outer_learning_rate", "outer_optimizer = \"adopt\"");
    refuse("outer_momentum", "outer_optimizer = \"adopt\"");
  }
  if (strategy.outer_optimizer == "sgd") {
    refuse("outer_momentum", "outer_optimizer = \"sgd\"");
  }
  if (strategy.grouping == "whole") {
    refuse("fragments", "grouping = \"whole\"");
    refuse("layers_per_fragment", "grouping = \"whole\"");
  } else if (strategy.grouping == "balanced") {
    refuse("layers_per_fragment", "grouping = \"balanced\"");
  } else if (strategy.fragments != 0) {
    refuse("layers_per_fragment", "fragments = " + std::to_string(strategy.fragments));
  }
  if (strategy.group != "pairs") {
    for (const std::string_view key : {"group_size", "outer_pull", "allow_unstable", "parameters_codec", "max_skew", "final_merge"}) {
      refuse(key, "group = \"" + strategy.group + "\"");
    }
  } else {
    refuse("reduce_codec", "group = \"pairs\"");
  }
  const auto scaled = [](const std::string& codec) { return codec == "int8" || codec == "fp4"; };
  if (!scaled(strategy.codec) && !scaled(strategy.reduce_codec) && !scaled(strategy.parameters_codec)) {
    refuse("codec_block", "codecs that have no scales (f32, bf16)");
  }
  if (strategy.codec == "f32") {
    refuse("rounding", "codec = \"f32\"");
    refuse("error_feedback", "codec = \"f32\", which loses nothing");
  }
  if (strategy.group == "nobody") {
    for (const std::string_view key : {"codec", "reduce_codec", "weighting"}) {
      refuse(key, "group = \"" + strategy.group + "\"");
    }
  }
}

}  // namespace

std::vector<RunProblem> apply_strategy_name(StrategySpec& strategy, const std::function<bool(std::string_view key)>& is_set) {
  const Result<StrategySettings> named = named_strategy(strategy.name);
  if (!named) {
    return {{"strategy", "name", named.error().why}};
  }
  RunSpec spec;
  spec.strategy = strategy;
  RunSpec defaults;
  defaults.strategy = spec_of(*named, strategy.name);
  std::vector<RunProblem> problems;
  for (const RunKey& key : run_keys()) {
    if (key.section != "strategy" || value_of(key, spec) == value_of(key, defaults)) {
      continue;
    }
    if (!is_set(key.name)) {
      if (const Status put = assign(key, value_of(key, defaults), spec); !put) {
        problems.push_back({"strategy", key.name, put.error().why});
      }
      continue;
    }
    const bool essential = std::ranges::any_of(kEssential, [&](const Essential& part) { return part.name == strategy.name && part.key == key.name; });
    if (essential) {
      problems.push_back({"strategy", key.name,
                          std::string(key.name) + " = " + toml_value(key, spec) + " contradicts name = \"" + strategy.name + "\", which means " +
                              std::string(key.name) + " = " + toml_value(key, defaults),
                          {"strategy.name"}});
    }
  }
  strategy = spec.strategy;
  if (strategy.name == "streaming-diloco" && strategy.grouping == "whole") {
    problems.push_back({"strategy", "grouping", "grouping = \"whole\" contradicts name = \"streaming-diloco\", which synchronises part by part; use name = \"diloco\"",
                        {"strategy.name"}});
  }
  check_effect(strategy, is_set, problems);
  for (const SettingProblem& problem : strategy_problems(settings_of(strategy))) {
    // A part that this run file cannot name has its default, which is always possible.
    if (const RunKey* key = find_run_key("strategy", problem.field)) {
      problems.push_back({"strategy", key->name, std::string(key->name) + " " + problem.why, {"strategy.name"}});
    }
  }
  return problems;
}

}  // namespace atl
