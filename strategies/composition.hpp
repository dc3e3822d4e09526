// A strategy is a composition of parts: fragments × schedule × group × payload × codec × aggregator × outer optimiser × merge.
//
// A run file names a strategy and may override its parts (StrategySpec). `compose` turns them into parts, or says what is impossible. The
// engine acts on the parts only and never asks for a strategy's name. To add a named strategy: add a row to named_strategies() in
// composition.cpp. To add a part: add its enum value here, its arithmetic in its own file, and the text that chooses it. Threads: pure
// functions.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strategies/aggregate.hpp"
#include "strategies/choices.hpp"
#include "strategies/codec.hpp"
#include "strategies/fragments.hpp"
#include "strategies/outer_optimizer.hpp"
#include "strategies/rounded_momentum.hpp"
#include "strategies/schedule.hpp"
#include "transport/base/result.hpp"
#include "transport/base/time.hpp"

namespace atl {

enum class Group : std::uint8_t {
  all,     // every active member of the epoch
  pairs,   // one other member (or group_size − 1 others), drawn anew in every round (pairing.hpp); every island has an outer state of its
           // own
  nobody,  // the island alone: nothing is sent
  expert,  // the islands that train the same expert, where there are more than experts; else nobody: a run of phases
           // (coordinator/core/phases.hpp)
};

enum class PayloadKind : std::uint8_t {
  outer_gradient,  // outer parameters − local parameters; the mean goes to the outer optimiser. In pairs the outer parameters too
  gradient,        // the trainer's gradient; the mean goes back to the trainer, whose own optimiser takes the step
  parameters,      // the local parameters themselves; their mean becomes the outer parameters
};

enum class Pace : std::uint8_t {
  fixed,     // every island does inner_steps for a round
  adaptive,  // slower islands do fewer, so that all come to the synchronisation together
};

// Of rounds that close with a quorum: against which outer state a contribution is formed.
enum class Anchor : std::uint8_t {
  newest,  // the newest one of the fragment when the contribution is merged: its own base matters no more (Decoupled DiLoCo)
  own,     // the one that the trainer went on from
};
inline constexpr std::array<std::string_view, 2> kAnchors = {"newest", "own"};
constexpr std::span<const std::string_view> names_of(Anchor) { return kAnchors; }

// Of rounds that close with a quorum: which contributions are of it.
enum class QuorumOf : std::uint8_t {
  on_time,  // those that missed no round; late ones count beside them
  any_age,  // all: the round is a buffer that is merged when it is full (fedbuff.hpp)
};
inline constexpr std::array<std::string_view, 2> kQuorumsOf = {"on-time", "any-age"};
constexpr std::span<const std::string_view> names_of(QuorumOf) { return kQuorumsOf; }

inline constexpr std::array<std::string_view, 4> kGroups = {"all", "pairs", "nobody", "expert"};
inline constexpr std::array<std::string_view, 3> kPayloads = {"outer-gradient", "gradient", "parameters"};
inline constexpr std::array<std::string_view, 2> kPaces = {"fixed", "adaptive"};
constexpr std::span<const std::string_view> names_of(Group) { return kGroups; }
constexpr std::span<const std::string_view> names_of(PayloadKind) { return kPayloads; }
constexpr std::span<const std::string_view> names_of(Pace) { return kPaces; }

// [strategy] of a run file: a name for a set of parts, and the parts themselves. Every field has a value: named_strategy gives the
// defaults, the run file overrides them. The fields are the keys, the enums' texts are what the keys take (choices.hpp).
struct StrategySpec {
  std::string name = "diloco";  // one of strategy_names()
  FragmentKind grouping = FragmentKind::whole;
  std::uint32_t fragments = 0;            // of layers or, balanced, of all parameters; 0: by layers_per_fragment
  std::uint32_t layers_per_fragment = 3;  // of sequential and strided
  std::uint64_t inner_steps = 100;        // H, inner steps between two synchronisations of a fragment
  std::uint64_t offset = 0;               // o, inner steps before the first synchronisation; 0: inner_steps
  Pace pace = Pace::fixed;
  std::uint64_t min_inner_steps = 1;  // that a slow island does at least, with adaptive pace
  Group group = Group::all;
  PayloadKind payload = PayloadKind::outer_gradient;
  CodecKind codec = CodecKind::f32;         // of contributions
  CodecKind reduce_codec = CodecKind::f32;  // of reduced shards, where three or more members exchange
  std::uint32_t codec_block = 256;          // values that share a scale; of int8 and fp4
  Rounding rounding = Rounding::nearest;    // of contributions
  Packing packing = Packing::none;          // of all that islands exchange in a round
  bool error_feedback = false;              // what rounding took is added to the fragment's next contribution
  OuterOptimizerKind outer_optimizer = OuterOptimizerKind::nesterov;
  double outer_learning_rate = 0.7;
  double outer_momentum = 0.9;
  double outer_clip = 0.0;   // φ of clipped-momentum; 0: none
  bool gap_penalty = false;  // of clipped-momentum: Λ
  OuterStateFormat outer_state = OuterStateFormat::f32;
  double merge_alpha = 0.0;         // weight of the local parameters; 0 takes the global ones
  std::uint64_t overlap_steps = 0;  // τ, inner steps between a contribution and its merge
  bool eager = false;               // of an overlap of a whole period: an island takes its own part of the mean at once (eager.hpp)
  Weighting weighting = Weighting::tokens;
  Aggregator aggregator = Aggregator::weighted_mean;
  std::uint32_t group_size = 2;                 // of group pairs: islands that meet in a round
  double outer_pull = 0.0;                      // of group pairs: γ
  bool allow_unstable = false;                  // outer_pull may lie outside its proven interval
  CodecKind parameters_codec = CodecKind::f32;  // of the outer parameters that pairs send
  std::uint64_t max_skew = 2;                   // of group pairs: rounds that a partner may be behind and still be waited for
  bool final_merge = false;                     // of group pairs: the run ends with the mean of all outer parameters
  std::uint32_t quorum = 0;                     // contributions with which a round closes; 0: those of all members, and everybody waits
  QuorumOf quorum_of = QuorumOf::on_time;       // with a quorum
  std::string grace = "auto";                   // with a quorum: how much longer a round waits for others; "auto" or a duration
  std::uint32_t max_staleness = 2;              // with a quorum: newer rounds of its fragment that a contribution may have missed
  Anchor anchor = Anchor::newest;               // with a quorum
  friend bool operator==(const StrategySpec&, const StrategySpec&) = default;
};

struct Composition {
  FragmentPlan fragments;
  std::uint64_t inner_steps = 100;
  std::uint64_t offset = 0;
  std::uint64_t overlap_steps = 0;
  Group group = Group::all;
  PayloadKind payload = PayloadKind::outer_gradient;
  CodecSettings codec;
  CodecSettings reduce_codec;
  Packing packing = Packing::none;
  bool error_feedback = false;
  Weighting weighting = Weighting::tokens;
  Aggregator aggregator = Aggregator::weighted_mean;
  OuterOptimizer outer;
  OuterStateFormat outer_state = OuterStateFormat::f32;
  double merge_alpha = 0.0;
  bool eager = false;
  CodecSettings parameters_codec;
  std::uint32_t group_size = 2;
  std::uint64_t max_skew = 2;
  bool final_merge = false;
  bool adaptive_pace = false;
  std::uint32_t quorum = 0;
  QuorumOf quorum_of = QuorumOf::on_time;
  std::uint32_t max_staleness = 2;
  Anchor anchor = Anchor::newest;

  // Every island has an outer state of its own and takes its rounds without the others' consent.
  [[nodiscard]] bool has_own_outer_state() const { return group != Group::all; }
  // The exchange of a fragment takes its whole period: the next contribution is published before the result of the last one is merged, and
  // is formed against what the island went on from.
  [[nodiscard]] bool whole_period() const { return overlap_steps == inner_steps && overlap_steps > 0 && merge_alpha == 0.0 && quorum == 0; }
  // Rounds beyond the schedule's that merge all islands' outer parameters into one model, one for each fragment.
  [[nodiscard]] std::uint64_t merge_rounds(std::uint32_t arena_fragments) const {
    return group == Group::pairs && final_merge ? arena_fragments : 0;
  }
  friend bool operator==(const Composition&, const Composition&) = default;
};

// How much longer a round waits for others once its quorum is there: [strategy].grace. Nothing: "auto", from what the overlap hides.
// Errors: invalid_argument for another text.
Result<std::optional<Duration>> grace_of(const StrategySpec& settings);

// The defaults of a named strategy. Errors: invalid_argument naming those there are.
Result<StrategySpec> named_strategy(std::string_view name);
// The names of all there are, "diloco" first.
std::span<const std::string_view> strategy_names();

// What is wrong with a setting, by the name of its field.
struct SettingProblem {
  std::string field;
  std::string why;
};

// Everything that is impossible, in the order of the fields; empty: compose succeeds.
std::vector<SettingProblem> strategy_problems(const StrategySpec& settings);

// Errors: invalid_argument with the first of strategy_problems, as "field: why".
Result<Composition> compose(const StrategySpec& settings);

// The schedule of a run of total_steps inner steps whose arena has `fragments` fragments. Errors: as Schedule::make.
Result<Schedule> schedule_of(const Composition& composition, std::uint64_t total_steps, std::uint32_t fragments);

}  // namespace atl
