#include "strategies/composition.hpp"

#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "strategies/eager.hpp"
#include "strategies/noloco.hpp"
#include "transport/base/bytes.hpp"

namespace atl {
namespace {

// The named strategies; diloco.hpp, streaming_diloco.hpp, eager.hpp, co2.hpp, noloco.hpp, data_parallel.hpp and local.hpp describe them.
const std::array<StrategySpec, 10>& named_strategies() {
  static const std::array<StrategySpec, 10> kNamed = [] {
    StrategySpec streaming;
    streaming.name = "streaming-diloco";
    streaming.grouping = FragmentKind::strided;
    streaming.overlap_steps = 1;
    streaming.codec = CodecKind::fp4;
    streaming.reduce_codec = CodecKind::int8;
    streaming.outer_learning_rate = 0.4;
    streaming.merge_alpha = 0.5;
    StrategySpec decoupled;  // P, H, τ, α, K and bf16 of the paper; η and μ as tuned for streaming-diloco
    decoupled.name = "decoupled-diloco";
    decoupled.grouping = FragmentKind::balanced;
    decoupled.fragments = 24;
    decoupled.inner_steps = 24;
    decoupled.overlap_steps = 2;
    decoupled.codec = CodecKind::bf16;
    decoupled.reduce_codec = CodecKind::bf16;
    decoupled.outer_learning_rate = 0.4;
    decoupled.weighting = Weighting::tokens_squared_per_step;
    decoupled.aggregator = Aggregator::radial_directional;
    decoupled.quorum = 1;
    decoupled.pace = Pace::adaptive;
    StrategySpec fedbuff;  // the paper's rule: every contribution counts once, alike, from its own base; nobody waits for more than K
    fedbuff.name = "fedbuff";
    fedbuff.outer_learning_rate = 1.0;
    fedbuff.outer_optimizer = OuterOptimizerKind::sgd;
    fedbuff.outer_momentum = 0.0;
    fedbuff.weighting = Weighting::uniform;
    fedbuff.quorum = 2;
    fedbuff.quorum_of = QuorumOf::any_age;
    fedbuff.grace = "0s";
    fedbuff.max_staleness = 1'000'000;
    fedbuff.anchor = Anchor::own;
    StrategySpec eager;  // H as in the paper; η and μ as tuned for streaming-diloco
    eager.name = "eager-diloco";
    eager.inner_steps = 30;
    eager.overlap_steps = 30;
    eager.outer_learning_rate = 0.4;
    eager.eager = true;
    StrategySpec co2;  // H, β, η and φ of the paper's code
    co2.name = "co2";
    co2.inner_steps = 48;
    co2.overlap_steps = 48;
    co2.outer_optimizer = OuterOptimizerKind::clipped_momentum;
    co2.outer_learning_rate = 1.0;
    co2.outer_momentum = 0.5;
    co2.outer_clip = 1.0;
    co2.gap_penalty = true;
    co2.weighting = Weighting::uniform;
    // The paper's (§4): H = 50, α = 0.5, β = 0.7; γ = β as in its code. The pace is ours: the paper's islands are equally fast.
    StrategySpec noloco;
    noloco.name = "noloco";
    noloco.pace = Pace::adaptive;
    noloco.inner_steps = 50;
    noloco.group = Group::pairs;
    noloco.outer_optimizer = OuterOptimizerKind::heavy_ball;
    noloco.outer_momentum = 0.5;
    noloco.outer_pull = 0.7;
    noloco.weighting = Weighting::uniform;
    noloco.final_merge = true;
    StrategySpec data_parallel;
    data_parallel.name = "data-parallel";
    data_parallel.inner_steps = 1;
    data_parallel.payload = PayloadKind::gradient;
    data_parallel.outer_optimizer = OuterOptimizerKind::adopt;
    StrategySpec local;
    local.name = "local";
    local.group = Group::nobody;
    local.payload = PayloadKind::parameters;
    local.outer_optimizer = OuterOptimizerKind::adopt;
    StrategySpec diffusion;  // inside of a group of islands that train one expert: DiLoCo
    diffusion.name = "decentralized-diffusion";
    diffusion.group = Group::expert;
    return std::array<StrategySpec, 10>{StrategySpec{}, streaming, decoupled, fedbuff, eager, co2, noloco, data_parallel, local, diffusion};
  }();
  return kNamed;
}

std::string in_quotes(std::string_view text) { return "'" + std::string(text) + "'"; }

// The parts that a spec names; whether they go together is the Composer's to say.
Composition parts_of(const StrategySpec& spec) {
  Composition parts;
  parts.fragments = {spec.grouping, spec.fragments, spec.layers_per_fragment};
  parts.inner_steps = spec.inner_steps;
  parts.offset = spec.offset;
  parts.overlap_steps = spec.overlap_steps;
  parts.group = spec.group;
  parts.payload = spec.payload;
  parts.codec = {spec.codec, spec.codec_block, spec.rounding};
  parts.reduce_codec = {spec.reduce_codec, spec.codec_block, Rounding::nearest};
  parts.parameters_codec = {spec.parameters_codec, spec.codec_block, Rounding::nearest};
  parts.packing = spec.packing;
  parts.error_feedback = spec.error_feedback;
  parts.weighting = spec.weighting;
  parts.aggregator = spec.aggregator;
  parts.outer = {spec.outer_optimizer, spec.outer_learning_rate, spec.outer_momentum, spec.outer_pull, spec.outer_clip, spec.gap_penalty};
  parts.outer_state = spec.outer_state;
  parts.merge_alpha = spec.merge_alpha;
  parts.eager = spec.eager;
  parts.group_size = spec.group_size;
  parts.max_skew = spec.max_skew;
  parts.final_merge = spec.final_merge;
  parts.adaptive_pace = spec.pace == Pace::adaptive;
  parts.quorum = spec.quorum;
  parts.quorum_of = spec.quorum_of;
  parts.max_staleness = spec.max_staleness;
  parts.anchor = spec.anchor;
  return parts;
}

// Takes a spec's parts together and collects what is wrong with them.
class Composer {
 public:
  explicit Composer(const StrategySpec& settings) : settings_(settings), composition_(parts_of(settings)) {
    check_ranges();
    check_combinations();
  }
  [[nodiscard]] const Composition& composition() const { return composition_; }
  [[nodiscard]] std::vector<SettingProblem> take_problems() { return std::move(problems_); }

 private:
  void problem(std::string_view field, std::string why) { problems_.push_back({std::string(field), std::move(why)}); }

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
    if (settings_.inner_steps >= 1) {
      check_steps();
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

  void check_steps() {
    const std::string inner_steps = "inner_steps (" + std::to_string(settings_.inner_steps) + ")";
    if (settings_.offset > settings_.inner_steps) {
      problem("offset", "must not be more than " + inner_steps + ", not " + std::to_string(settings_.offset));
    }
    if (composition_.payload == PayloadKind::gradient && settings_.overlap_steps > 0) {
      problem("overlap_steps",
              "must be 0 with payload 'gradient', which the step that made it waits for, not " + std::to_string(settings_.overlap_steps));
    } else if (settings_.overlap_steps > settings_.inner_steps) {
      problem("overlap_steps", "must not be more than " + inner_steps + ", not " + std::to_string(settings_.overlap_steps) +
                                   ": a round would begin before the one before it is applied");
    }
  }

  void check_whole_period() {
    if (settings_.eager && composition_.quorum > 0) {
      problem("eager", "must be false with a quorum, where no island waits for a result that its own term could stand in for");
    } else if (settings_.eager && !composition_.whole_period()) {
      problem("eager", "needs an overlap of the whole period: overlap_steps must be inner_steps (" + std::to_string(settings_.inner_steps) +
                           "), not " + std::to_string(settings_.overlap_steps) + ", and merge_alpha 0, not " +
                           std::to_string(settings_.merge_alpha));
    } else if (settings_.eager && !suits_eager(settings_.outer_optimizer)) {
      problem("eager", "needs an outer optimiser that is linear, which " + in_quotes(name_of(settings_.outer_optimizer)) + " is not");
    } else if (settings_.eager && composition_.aggregator != Aggregator::weighted_mean) {
      problem("eager", "needs aggregator 'weighted-mean', of which an island knows its own part");
    }
    if (!composition_.whole_period()) {
      return;
    }
    if (composition_.group != Group::all || composition_.payload != PayloadKind::outer_gradient) {
      problem("overlap_steps", "must be less than inner_steps (" + std::to_string(settings_.inner_steps) +
                                   ") where merge_alpha is 0, unless group is 'all' and payload 'outer-gradient'");
    }
    if (composition_.adaptive_pace) {
      problem("pace", "must be 'fixed' with an overlap of the whole period, in which nobody waits for a slower island");
    }
  }

  void check_momentum() {
    const bool clips = settings_.outer_optimizer == OuterOptimizerKind::clipped_momentum;
    if (!(settings_.outer_clip >= 0.0 && std::isfinite(settings_.outer_clip))) {
      problem("outer_clip", "must be at least 0, not " + std::to_string(settings_.outer_clip));
    } else if (settings_.outer_clip > 0.0 && !clips) {
      problem("outer_clip",
              "has no effect with outer_optimizer " + in_quotes(name_of(settings_.outer_optimizer)) + "; it belongs to 'clipped-momentum'");
    }
    if (settings_.gap_penalty && !clips) {
      problem("gap_penalty",
              "has no effect with outer_optimizer " + in_quotes(name_of(settings_.outer_optimizer)) + "; it belongs to 'clipped-momentum'");
    }
    if (settings_.outer_state != OuterStateFormat::f32 && !has_momentum(settings_.outer_optimizer)) {
      problem("outer_state", "'bf16' has no effect with outer_optimizer " + in_quotes(name_of(settings_.outer_optimizer)) +
                                 ", which has no momentum to keep; use \"f32\"");
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

  // Rounds that close with a quorum.
  void check_quorum() {
    if (composition_.quorum == 0) {
      if (composition_.quorum_of != QuorumOf::on_time) {
        problem("quorum_of", "has no effect without a quorum: rounds close with the contributions of all");
      }
      return;
    }
    if (composition_.group != Group::all || composition_.payload != PayloadKind::outer_gradient) {
      problem("quorum", "needs group 'all' and payload 'outer-gradient': only there can a round close without somebody's contribution");
    }
    if (const auto grace = grace_of(settings_); !grace) {
      problem("grace", "must be \"auto\" or a duration like \"500ms\", not " + in_quotes(settings_.grace));
    } else if (*grace && **grace > Duration(0) && settings_.overlap_steps == 0) {
      problem("grace",
              in_quotes(settings_.grace) + " is longer than what an overlap of 0 steps hides: the fastest island would wait; use \"auto\"");
    }
    if (composition_.error_feedback) {
      problem("error_feedback", "must be false with a quorum: a contribution that is formed anew would take the same residual twice");
    }
    if (composition_.max_staleness == 0 && settings_.overlap_steps >= settings_.inner_steps) {
      problem("max_staleness", "0 is kept by no island where overlap_steps (" + std::to_string(settings_.overlap_steps) +
                                   ") is inner_steps: every contribution is formed one round late");
    }
  }

  void check_combinations() {
    check_pairs();
    check_quorum();
    check_whole_period();
    check_momentum();
    if (composition_.group != Group::all && composition_.group != Group::expert && composition_.aggregator != Aggregator::weighted_mean) {
      problem("aggregator", "must be 'weighted-mean' with group " + in_quotes(name_of(settings_.group)) +
                                ", whose rounds have too few contributions for any other");
    }
    if (composition_.aggregator == Aggregator::radial_directional && composition_.payload != PayloadKind::outer_gradient) {
      problem("aggregator", "'radial-directional' averages lengths and directions of outer gradients, and payload is " +
                                in_quotes(name_of(settings_.payload)));
    }
    const bool adopts = composition_.outer.kind == OuterOptimizerKind::adopt;
    if (composition_.group == Group::expert && composition_.payload != PayloadKind::outer_gradient) {
      problem("payload", "must be 'outer-gradient' with group 'expert': that is what islands send that train one expert together");
    }
    if (composition_.group == Group::nobody && composition_.payload == PayloadKind::gradient) {
      problem("payload", "'gradient' needs a group to average with; with group 'nobody' use 'parameters' or 'outer-gradient'");
    }
    const bool by_itself = composition_.group == Group::nobody;
    if (by_itself && (composition_.codec.kind != CodecKind::f32 || composition_.reduce_codec.kind != CodecKind::f32)) {
      problem(composition_.codec.kind != CodecKind::f32 ? "codec" : "reduce_codec",
              "must be f32 with group " + in_quotes(name_of(settings_.group)) + ", which sends no contributions");
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
      problem("outer_optimizer",
              "'adopt' takes parameters, not an outer gradient; use 'nesterov', 'heavy-ball' or 'sgd', or payload 'parameters'");
    }
    if (composition_.payload != PayloadKind::outer_gradient && !adopts) {
      problem("outer_optimizer", "must be 'adopt' with payload " + in_quotes(name_of(settings_.payload)) + "; " +
                                     in_quotes(name_of(settings_.outer_optimizer)) + " needs payload 'outer-gradient'");
    }
    if (settings_.merge_alpha > 0.0 && (composition_.payload == PayloadKind::gradient || by_itself) && adopts) {
      problem("merge_alpha", "must be 0 where the outer parameters are the trainer's own: there is nothing to merge");
    }
  }

  const StrategySpec& settings_;
  Composition composition_;
  std::vector<SettingProblem> problems_;
};

}  // namespace

Result<StrategySpec> named_strategy(std::string_view name) {
  std::string known;
  for (const StrategySpec& named : named_strategies()) {
    if (named.name == name) {
      return named;
    }
    known += (known.empty() ? "" : ", ") + named.name;
  }
  return Error{Code::invalid_argument, "no strategy is named '" + std::string(name) + "'; there are " + known};
}

Result<std::optional<Duration>> grace_of(const StrategySpec& settings) {
  if (settings.grace == "auto") {
    return std::optional<Duration>();
  }
  ATOLL_ASSIGN(const Duration grace, parse_duration(settings.grace));
  return std::optional(grace);
}

std::span<const std::string_view> strategy_names() {
  static const std::vector<std::string_view> kNames = [] {
    std::vector<std::string_view> names;
    for (const StrategySpec& named : named_strategies()) {
      names.push_back(named.name);
    }
    return names;
  }();
  return kNames;
}

std::vector<SettingProblem> strategy_problems(const StrategySpec& settings) { return Composer(settings).take_problems(); }

Result<Composition> compose(const StrategySpec& settings) {
  Composer composer(settings);
  if (const auto problems = composer.take_problems(); !problems.empty()) {
    return Error{Code::invalid_argument, problems.front().field + ": " + problems.front().why};
  }
  return composer.composition();
}

Result<Schedule> schedule_of(const Composition& composition, std::uint64_t total_steps, std::uint32_t fragments) {
  return Schedule::make(total_steps, composition.inner_steps, fragments, composition.overlap_steps, composition.offset,
                        composition.whole_period());
}

}  // namespace atl
