// A strategy is a composition of parts: fragments × schedule × group × payload × codec × aggregator × outer optimiser × merge.
//
// A run file names a strategy and may override its parts; both are texts and numbers (StrategySettings). `compose` turns
// them into parts, or says what is impossible. The engine acts on the parts only and never asks for a strategy's name.
// To add a named strategy: add a row to named_strategies() in composition.cpp. To add a part: add its enum value here, its
// arithmetic in its own file, and the text that chooses it.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strategies/aggregate.hpp"
#include "strategies/codec.hpp"
#include "strategies/fragments.hpp"
#include "strategies/outer_optimizer.hpp"
#include "strategies/schedule.hpp"
#include "transport/base/result.hpp"

namespace atl {

enum class Group : std::uint8_t {
  all,     // every active member of the epoch
  nobody,  // the island alone: nothing is sent
  pairs,   // one other member (or group_size − 1 others), drawn anew in every round (pairing.hpp); every island has an outer state of its own
  expert,  // the islands that train the same expert, where there are more than experts; else nobody: a run of phases (coordinator/phases.hpp)
};

enum class PayloadKind : std::uint8_t {
  outer_gradient,  // outer parameters − local parameters; the mean goes to the outer optimiser. In pairs the outer parameters too
  gradient,        // the trainer's gradient; the mean goes back to the trainer, whose own optimiser takes the step
  parameters,      // the local parameters themselves; their mean becomes the outer parameters
};

// The parts as a run file says them; every field has a value (named_strategy gives the defaults).
struct StrategySettings {
  std::string grouping = "whole";            // whole | sequential | strided | balanced
  std::uint32_t fragments = 0;               // as FragmentPlan::fragments
  std::uint32_t layers_per_fragment = 3;     // of sequential and strided
  std::uint64_t inner_steps = 100;           // H
  std::uint64_t overlap_steps = 0;           // τ
  std::string group = "all";                 // all | pairs | nobody | expert
  std::string payload = "outer-gradient";    // outer-gradient | gradient | parameters
  std::string codec = "f32";                 // f32 | bf16 | int8 | fp4; of contributions
  std::string reduce_codec = "f32";          // of reduced shards, where three or more members exchange
  std::uint32_t codec_block = 256;           // values per scale of int8 and fp4
  std::string rounding = "nearest";          // nearest | stochastic; of contributions
  bool error_feedback = false;               // what rounding took is added to the fragment's next contribution
  std::string weighting = "tokens";          // tokens | uniform
  std::string outer_optimizer = "nesterov";  // nesterov | heavy-ball | sgd | adopt
  double outer_learning_rate = 0.7;
  double outer_momentum = 0.9;
  double merge_alpha = 0.0;
  std::string pace = "fixed";                // fixed | adaptive: slower islands do fewer than H inner steps
  std::uint32_t group_size = 2;              // of group pairs: islands that meet in a round
  double outer_pull = 0.0;                   // γ, of group pairs
  bool allow_unstable = false;               // γ may lie outside its proven interval
  std::string parameters_codec = "f32";      // of the outer parameters that pairs send
  std::uint64_t max_skew = 2;                // of group pairs: rounds that a partner may be behind and still be waited for
  bool final_merge = false;                  // of group pairs: the run ends with the mean of all outer parameters
  friend bool operator==(const StrategySettings&, const StrategySettings&) = default;
};

struct Composition {
  FragmentPlan fragments;
  std::uint64_t inner_steps = 100;
  std::uint64_t overlap_steps = 0;
  Group group = Group::all;
  PayloadKind payload = PayloadKind::outer_gradient;
  CodecSettings codec;
  CodecSettings reduce_codec;
  bool error_feedback = false;
  Weighting weighting = Weighting::tokens;
  OuterOptimizer outer;
  double merge_alpha = 0.0;
  CodecSettings parameters_codec;
  std::uint32_t group_size = 2;
  std::uint64_t max_skew = 2;
  bool final_merge = false;
  bool adaptive_pace = false;

  // Every island has an outer state of its own and takes its rounds without the others' consent.
  [[nodiscard]] bool private_states() const { return group != Group::all; }
  // Rounds beyond the schedule's that merge all islands' outer parameters into one model, one for each fragment.
  [[nodiscard]] std::uint64_t merge_rounds(std::uint32_t arena_fragments) const { return group == Group::pairs && final_merge ? arena_fragments : 0; }
  friend bool operator==(const Composition&, const Composition&) = default;
};

// The defaults of a named strategy. Errors: invalid_argument naming those there are.
Result<StrategySettings> named_strategy(std::string_view name);
// "diloco", "streaming-diloco", "noloco", "data-parallel", "local", "decentralized-diffusion".
std::span<const std::string_view> strategy_names();

// What is wrong with a setting, by the name of its field.
struct SettingProblem {
  std::string field;
  std::string why;
};

// Everything that is impossible, in the order of the fields; empty: compose succeeds.
std::vector<SettingProblem> strategy_problems(const StrategySettings& settings);

// Errors: invalid_argument with the first of strategy_problems, as "field: why".
Result<Composition> compose(const StrategySettings& settings);

// The schedule of a run of total_steps inner steps whose arena has `fragments` fragments. Errors: as Schedule::make.
Result<Schedule> schedule_of(const Composition& composition, std::uint64_t total_steps, std::uint32_t fragments);

}  // namespace atl
