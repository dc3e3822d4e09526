#include "strategies/composition.hpp"

#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "strategies/noloco.hpp"

namespace atl {
namespace {

struct Named {
  std::string_view name;
  StrategySettings settings;
};

// The named strategies; diloco.hpp, streaming_diloco.hpp, noloco.hpp, data_parallel.hpp and local.hpp describe them.
const std::array<Named, 6>& named_strategies() {
  static const std::array<Named, 6> kNamed = [] {
    StrategySettings streaming;
    streaming.grouping = "strided";
    streaming.overlap_steps = 1;
    streaming.codec = "fp4";
    streaming.reduce_codec = "int8";
    streaming.outer_learning_rate = 0.4;
    streaming.merge_alpha = 0.5;
    StrategySettings noloco;  // the paper's (§4): H = 50, α = 0.5, β = 0.7; γ = β as in its code. Pace is ours: its islands are equally fast
    noloco.pace = "adaptive";
    noloco.inner_steps = 50;
    noloco.group = "pairs";
    noloco.outer_optimizer = "heavy-ball";
    noloco.outer_momentum = 0.5;
    noloco.outer_pull = 0.7;
    noloco.weighting = "uniform";
    noloco.final_merge = true;
    StrategySettings data_parallel;
    data_parallel.inner_steps = 1;
    data_parallel.payload = "gradient";
    data_parallel.outer_optimizer = "adopt";
    StrategySettings local;
    local.group = "nobody";
    local.payload = "parameters";
    local.outer_optimizer = "adopt";
    StrategySettings diffusion;  // inside of a group of islands that train one expert: DiLoCo
    diffusion.group = "expert";
    return std::array<Named, 6>{{{"diloco", StrategySettings{}},
                                 {"streaming-diloco", streaming},
                                 {"noloco", noloco},
                                 {"data-parallel", data_parallel},
                                 {"local", local},
                                 {"decentralized-diffusion", diffusion}}};
  }();
  return kNamed;
}

template <typename Value>
using Choices = std::span<const std::pair<std::string_view, Value>>;

constexpr std::pair<std::string_view, FragmentKind> kGroupings[] = {{"whole", FragmentKind::whole},
                                                                     {"sequential", FragmentKind::sequential},
                                                                     {"strided", FragmentKind::strided},
                                                                     {"balanced", FragmentKind::balanced}};
constexpr std::pair<std::string_view, Group> kGroups[] = {
    {"all", Group::all}, {"pairs", Group::pairs}, {"nobody", Group::nobody}, {"expert", Group::expert}};
constexpr std::pair<std::string_view, bool> kPaces[] = {{"fixed", false}, {"adaptive", true}};
constexpr std::pair<std::string_view, PayloadKind> kPayloads[] = {
    {"outer-gradient", PayloadKind::outer_gradient}, {"gradient", PayloadKind::gradient}, {"parameters", PayloadKind::parameters}};
constexpr std::pair<std::string_view, CodecKind> kCodecs[] = {
    {"f32", CodecKind::f32}, {"bf16", CodecKind::bf16}, {"int8", CodecKind::int8}, {"fp4", CodecKind::fp4}};
constexpr std::pair<std::string_view, Rounding> kRoundings[] = {{"nearest", Rounding::nearest}, {"stochastic", Rounding::stochastic}};
constexpr std::pair<std::string_view, Weighting> kWeightings[] = {{"tokens", Weighting::tokens}, {"uniform", Weighting::uniform}};
constexpr std::pair<std::string_view, OuterOptimizerKind> kOuterOptimizers[] = {
    {"nesterov", OuterOptimizerKind::nesterov},
    {"heavy-ball", OuterOptimizerKind::heavy_ball},
    {"sgd", OuterOptimizerKind::sgd},
    {"adopt", OuterOptimizerKind::adopt}};

// Reads the settings into a composition and collects what is wrong with them.
class Composer {
 public:
  explicit Composer(const StrategySettings& settings) : settings_(settings) {
    read_choices();
    if (problems_.empty()) {  // ranges and combinations mean something only once every choice is known
      check_ranges();
      check_combinations();
    }
  }
  [[nodiscard]] const Composition& composition() const { return composition_; }
  [[nodiscard]] std::vector<SettingProblem> take_problems() { return std::move(problems_); }

 private:
  void problem(std::string_view field, std::string why) { problems_.push_back({std::string(field), std::move(why)}); }

  template <typename Value>
  void choose(std::string_view field, const std::string& text, Choices<Value> choices, Value& out) {
    std::string allowed;
    for (const auto& [name, value] : choices) {
      if (name == text) {
        out = value;
        return;
      }
      allowed += (allowed.empty() ? "" : ", ") + std::string(name);
    }
    problem(field, "'" + text + "' is not one of " + allowed);
  }

  void read_choices() {
    choose<FragmentKind>("grouping", settings_.grouping, kGroupings, composition_.fragments.kind);
    choose<Group>("group", settings_.group, kGroups, composition_.group);
    choose<PayloadKind>("payload", settings_.payload, kPayloads, composition_.payload);
    choose<CodecKind>("codec", settings_.codec, kCodecs, composition_.codec.kind);
    choose<CodecKind>("reduce_codec", settings_.reduce_codec, kCodecs, composition_.reduce_codec.kind);
    choose<Rounding>("rounding", settings_.rounding, kRoundings, composition_.codec.rounding);
    choose<Weighting>("weighting", settings_.weighting, kWeightings, composition_.weighting);
    choose<OuterOptimizerKind>("outer_optimizer", settings_.outer_optimizer, kOuterOptimizers, composition_.outer.kind);
    choose<CodecKind>("parameters_codec", settings_.parameters_codec, kCodecs, composition_.parameters_codec.kind);
    choose<bool>("pace", settings_.pace, kPaces, composition_.adaptive_pace);
    composition_.fragments.fragments = settings_.fragments;
    composition_.fragments.layers_per_fragment = settings_.layers_per_fragment;
    composition_.inner_steps = settings_.inner_steps;
    composition_.overlap_steps = settings_.overlap_steps;
    composition_.codec.block = settings_.codec_block;
    composition_.reduce_codec.block = settings_.codec_block;
    composition_.error_feedback = settings_.error_feedback;
    composition_.outer.learning_rate = settings_.outer_learning_rate;
    composition_.outer.momentum = settings_.outer_momentum;
    composition_.merge_alpha = settings_.merge_alpha;
    composition_.outer.pull = settings_.outer_pull;
    composition_.parameters_codec.block = settings_.codec_block;
    composition_.group_size = settings_.group_size;
    composition_.max_skew = settings_.max_skew;
    composition_.final_merge = settings_.final_merge;
  }

  void check_ranges() {
    if (settings_.layers_per_fragment < 1) {
      problem("layers_per_fragment", "must be at least 1");
    }
    if (composition_.fragments.kind == FragmentKind::balanced && settings_.fragments < 1) {
      problem("fragments", "must be at least 1 with grouping 'balanced'");
    }
    if (settings_.inner_steps < 1) {
      problem("inner_steps", "must be at least 1");
    }
    if (settings_.inner_steps >= 1 && settings_.overlap_steps >= settings_.inner_steps) {
      problem("overlap_steps", "must be smaller than inner_steps (" + std::to_string(settings_.inner_steps) + "), not " +
                                   std::to_string(settings_.overlap_steps) + ": a round would begin before the one before it is applied");
    }
    for (const CodecSettings& codec : {composition_.codec, composition_.reduce_codec}) {
      if (const Status status = check_codec(codec); !status) {
        problem("codec_block", status.error().why);
        break;
      }
    }
    if (!std::isfinite(settings_.outer_learning_rate) || settings_.outer_learning_rate <= 0.0) {
      problem("outer_learning_rate", "must be above 0, not " + std::to_string(settings_.outer_learning_rate));
    }
    if (!(settings_.outer_momentum >= 0.0 && settings_.outer_momentum < 1.0)) {
      problem("outer_momentum", "must be at least 0 and below 1, not " + std::to_string(settings_.outer_momentum));
    }
    if (!(settings_.merge_alpha >= 0.0 && settings_.merge_alpha <= 1.0)) {
      problem("merge_alpha", "must be from 0 to 1, not " + std::to_string(settings_.merge_alpha));
    }
  }

  void check_pairs() {
    if (composition_.group != Group::pairs) {
      if (settings_.outer_pull != 0.0) {
        problem("outer_pull", "must be 0 unless group is 'pairs': equal outer states have nothing to be pulled to");
      }
      if (settings_.group_size != 2) {
        problem("group_size", "has no effect unless group is 'pairs'");
      }
      return;
    }
    if (settings_.group_size < 2) {
      problem("group_size", "must be at least 2, not " + std::to_string(settings_.group_size));
      return;
    }
    if (composition_.payload != PayloadKind::outer_gradient) {
      problem("payload", "must be 'outer-gradient' with group 'pairs'");
    }
    if (composition_.outer.kind != OuterOptimizerKind::heavy_ball) {
      problem("outer_optimizer", "must be 'heavy-ball' with group 'pairs', whose outer states it keeps together");
    }
    if (composition_.weighting != Weighting::uniform) {
      problem("weighting", "must be 'uniform' with group 'pairs'");
    }
    if (!settings_.allow_unstable) {
      if (const Status status = check_pull(settings_.outer_pull, settings_.outer_momentum, settings_.group_size); !status) {
        problem("outer_pull", status.error().why);
      }
    }
  }

  void check_combinations() {
    check_pairs();
    const bool adopts = composition_.outer.kind == OuterOptimizerKind::adopt;
    if (composition_.group == Group::expert && composition_.payload != PayloadKind::outer_gradient) {
      problem("payload", "must be 'outer-gradient' with group 'expert': that is what islands send that train one expert together");
    }
    if (composition_.group == Group::nobody && composition_.payload == PayloadKind::gradient) {
      problem("payload", "'gradient' needs a group to average with; with group 'nobody' use 'parameters' or 'outer-gradient'");
    }
    const bool by_itself = composition_.group == Group::nobody;
    if (by_itself &&
        (composition_.codec.kind != CodecKind::f32 || composition_.reduce_codec.kind != CodecKind::f32)) {
      problem(composition_.codec.kind != CodecKind::f32 ? "codec" : "reduce_codec", "must be f32 with group '" + settings_.group + "', which sends no contributions");
    }
    if (composition_.error_feedback && composition_.codec.kind == CodecKind::f32) {
      problem("error_feedback", "needs a codec that rounds; 'f32' loses nothing");
    }
    if (composition_.payload == PayloadKind::gradient && settings_.inner_steps != 1) {
      problem("inner_steps",
              "must be 1 with payload 'gradient', which is averaged before every step, not " + std::to_string(settings_.inner_steps));
    }
    if (composition_.payload == PayloadKind::gradient && composition_.fragments.kind != FragmentKind::whole) {
      problem("grouping", "must be 'whole' with payload 'gradient', which is averaged before every step");
    }
    if (composition_.payload == PayloadKind::outer_gradient && adopts) {
      problem("outer_optimizer", "'adopt' takes parameters, not an outer gradient; use 'nesterov', 'heavy-ball' or 'sgd', or payload 'parameters'");
    }
    if (composition_.payload != PayloadKind::outer_gradient && !adopts) {
      problem("outer_optimizer", "must be 'adopt' with payload '" + settings_.payload + "'; '" + settings_.outer_optimizer +
                                     "' needs payload 'outer-gradient'");
    }
    if (settings_.merge_alpha > 0.0 && (composition_.payload == PayloadKind::gradient || by_itself) && adopts) {
      problem("merge_alpha", "must be 0 where the outer parameters are the trainer's own: there is nothing to merge");
    }
  }

  const StrategySettings& settings_;
  Composition composition_;
  std::vector<SettingProblem> problems_;
};

}  // namespace

Result<StrategySettings> named_strategy(std::string_view name) {
  std::string known;
  for (const Named& named : named_strategies()) {
    if (named.name == name) {
      return named.settings;
    }
    known += (known.empty() ? "" : ", ") + std::string(named.name);
  }
  return Error{Code::invalid_argument, "no strategy is named '" + std::string(name) + "'; there are " + known};
}

std::span<const std::string_view> strategy_names() {
  static const std::vector<std::string_view> kNames = [] {
    std::vector<std::string_view> names;
    for (const Named& named : named_strategies()) {
      names.push_back(named.name);
    }
    return names;
  }();
  return kNames;
}

std::vector<SettingProblem> strategy_problems(const StrategySettings& settings) { return Composer(settings).take_problems(); }

Result<Composition> compose(const StrategySettings& settings) {
  Composer composer(settings);
  if (const auto problems = composer.take_problems(); !problems.empty()) {
    return Error{Code::invalid_argument, problems.front().field + ": " + problems.front().why};
  }
  return composer.composition();
}

Result<Schedule> schedule_of(const Composition& composition, std::uint64_t total_steps, std::uint32_t fragments) {
  return Schedule::make(total_steps, composition.inner_steps, fragments, composition.overlap_steps);
}

}  // namespace atl
