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
  expert,  // those who train the same expert of an ensemble; experts send each other nothing (a run of phases)
};

enum class PayloadKind : std::uint8_t {
  outer_gradient,  // outer parameters − local parameters; the mean goes to the outer optimiser
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
  std::string group = "all";                 // all | nobody | expert
  std::string payload = "outer-gradient";    // outer-gradient | gradient | parameters
  std::string codec = "f32";                 // f32 | bf16 | int8 | fp4; of contributions
  std::string reduce_codec = "f32";          // of reduced shards, where three or more members exchange
  std::uint32_t codec_block = 256;           // values per scale of int8 and fp4
  std::string rounding = "nearest";          // nearest | stochastic; of contributions
  std::string weighting = "tokens";          // tokens | uniform
  std::string outer_optimizer = "nesterov";  // nesterov | heavy-ball | sgd | adopt
  double outer_learning_rate = 0.7;
  double outer_momentum = 0.9;
  double merge_alpha = 0.0;
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
  Weighting weighting = Weighting::tokens;
  OuterOptimizer outer;
  double merge_alpha = 0.0;
  friend bool operator==(const Composition&, const Composition&) = default;
};

// The defaults of a named strategy. Errors: invalid_argument naming those there are.
Result<StrategySettings> named_strategy(std::string_view name);
// "diloco", "streaming-diloco", "data-parallel", "local", "decentralized-diffusion".
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
