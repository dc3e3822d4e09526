#include "tests/sim/scenario.hpp"

#include <algorithm>
#include <array>

#include "strategies/composition.hpp"
#include "strategies/specification/run_rules.hpp"

namespace atl::sim {

Schedule schedule_of_spec(const RunSpec& spec) {
  return schedule_of(compose(spec.strategy).value(), spec.training.steps, std::max<std::uint32_t>(1, spec.strategy.fragments)).value();
}

namespace {

// What the first draws choose from. Neither list grows: with one more value most seeds would be other worlds, and those that once found a
// bug would not find it again. A value that is new is drawn after them, from a stream of its own, as take_whole_periods() does it.
constexpr std::array kDrawnAggregators = {Aggregator::weighted_mean, Aggregator::trimmed_mean, Aggregator::radial_directional};
constexpr std::array kDrawnWeightings = {Weighting::tokens, Weighting::uniform, Weighting::tokens_squared_per_step};
static_assert(kAggregators.size() == kDrawnAggregators.size() && kWeightings.size() == kDrawnWeightings.size(),
              "a new value is to be simulated, too: draw it apart, and count it here");

// In some worlds the momentum is kept in bf16.
void take_outer_state(StrategySpec& strategy, std::uint64_t seed) {
  if (has_momentum(strategy.outer_optimizer) && Rng(seed, stream_of("outer state")).chance(0.4)) {
    strategy.outer_state = OuterStateFormat::bf16;
  }
}

// In some worlds an exchange takes the whole period, drawn apart: the rest of the world stays what it was.
void take_whole_periods(RunSpec& spec, std::uint64_t seed) {
  Rng rng(seed, stream_of("whole period"));
  StrategySpec& strategy = spec.strategy;
  if (strategy.group != Group::all || strategy.payload != PayloadKind::outer_gradient || !rng.chance(0.25)) {
    return;
  }
  strategy.overlap_steps = strategy.inner_steps;
  strategy.merge_alpha = 0.0;
  strategy.pace = Pace::fixed;
  spec.islands.overlap_steps.clear();
  const double method = rng.uniform();
  if (method < 0.5) {
    strategy.eager = true;
    strategy.aggregator = Aggregator::weighted_mean;
  } else if (method < 0.75) {
    strategy.outer_optimizer = OuterOptimizerKind::clipped_momentum;
    strategy.outer_clip = 0.5;
    strategy.gap_penalty = true;
  }
}

}  // namespace

Scenario draw_scenario(std::uint64_t seed) {
  Rng rng(seed, stream_of("scenario"));
  Scenario scenario;
  scenario.seed = seed;
  scenario.islands = static_cast<std::uint32_t>(2 + rng.below(7));
  RunSpec& spec = scenario.spec;
  spec.name = "run";
  spec.seed = seed;
  spec.islands.min = static_cast<std::uint32_t>(1 + rng.below(scenario.islands));
  spec.islands.max = static_cast<std::uint32_t>(spec.islands.min + rng.below(scenario.islands - spec.islands.min + 1));
  if (rng.chance(0.6)) {
    spec.islands.max = scenario.islands;
  }
  spec.islands.deadline = std::chrono::seconds(10 + rng.below(40));
  spec.strategy.inner_steps = 1 + rng.below(4);
  spec.strategy.overlap_steps = rng.chance(0.3) ? rng.below(spec.strategy.inner_steps) : 0;
  spec.strategy.merge_alpha = rng.chance(0.2) ? 0.5 : 0.0;
  const double method = rng.uniform();
  if (method < 0.45) {
    // Several fragments, up to as many rounds in flight together.
    const std::uint32_t fragments[] = {2, 3, 4, 6};
    spec.strategy.grouping = FragmentKind::balanced;
    spec.strategy.fragments = fragments[rng.below(4)];
    spec.strategy.inner_steps = spec.strategy.fragments + rng.below(5);
    spec.strategy.overlap_steps = rng.chance(0.8) ? rng.below(spec.strategy.inner_steps) : 0;
    spec.strategy.merge_alpha = rng.chance(0.5) ? 0.5 : 0.0;
    for (std::uint32_t i = 0; i < scenario.islands && spec.strategy.overlap_steps > 0; ++i) {
      if (rng.chance(0.2)) {
        spec.islands.overlap_steps.push_back("i" + std::to_string(i) + "=" + std::to_string(rng.below(spec.strategy.inner_steps)));
      }
    }
  } else if (method < 0.6) {
    spec.strategy.inner_steps = 1;
    spec.strategy.payload = PayloadKind::gradient;
    spec.strategy.outer_optimizer = OuterOptimizerKind::adopt;
    spec.strategy.overlap_steps = 0;
    spec.strategy.merge_alpha = 0;
  } else if (rng.chance(0.15)) {
    spec.strategy.group = Group::nobody;
    spec.strategy.outer_optimizer = OuterOptimizerKind::adopt;
    spec.strategy.payload = PayloadKind::parameters;
    spec.strategy.overlap_steps = 0;
    spec.strategy.merge_alpha = 0;
  }
  Rng aggregators(seed, stream_of("aggregator"));  // of its own: the rest of the world stays what it was
  const auto aggregator = kDrawnAggregators.at(aggregators.below(kDrawnAggregators.size()));
  const bool suits = aggregator != Aggregator::radial_directional || spec.strategy.payload == PayloadKind::outer_gradient;
  if (spec.strategy.group == Group::all && spec.islands.max >= least_contributions(aggregator) && suits) {
    spec.strategy.aggregator = aggregator;
  }
  Rng weightings(seed, stream_of("weighting"));
  if (spec.strategy.group == Group::all) {
    spec.strategy.weighting = kDrawnWeightings.at(weightings.below(kDrawnWeightings.size()));
  }
  spec.strategy.pace = spec.strategy.group == Group::all && rng.chance(0.3) ? Pace::adaptive : Pace::fixed;
  take_whole_periods(spec, seed);
  take_outer_state(spec.strategy, seed);
  spec.islands.straggler_factor = rng.chance(0.2) ? 3 : 0;
  spec.training.steps = spec.strategy.inner_steps * (4 + rng.below(10)) + rng.below(2);
  spec.checkpoint.every_rounds = static_cast<std::uint32_t>(1 + rng.below(5));
  spec.checkpoint.keep = static_cast<std::uint32_t>(1 + rng.below(3));
  const Result<Composition> composition = compose(spec.strategy);
  ATOLL_CHECK(composition.has_value(), composition.error().why);
  spec.rounds = schedule_of_spec(spec).rounds();
  spec.model_rounds = schedule_of_spec(spec).fragments();
  scenario.loss = rng.chance(0.5) ? rng.uniform() * 0.2 : 0;
  scenario.duplication = rng.chance(0.5) ? rng.uniform() * 0.2 : 0;
  scenario.replay = rng.chance(0.5) ? rng.uniform() * 0.1 : 0;
  scenario.latency = std::chrono::milliseconds(1 + rng.below(150));
  scenario.jitter = std::chrono::milliseconds(rng.below(rng.chance(0.3) ? 2000 : 100));
  scenario.between_faults = std::chrono::milliseconds(1000 + rng.below(8000));
  scenario.trouble = std::chrono::seconds(15 + rng.below(45));
  scenario.nonfinite = rng.chance(0.2) ? 0.1 : 0;
  scenario.broken_disk = rng.chance(0.2) ? 0.2 : 0;
  scenario.coordinator_faults = rng.chance(0.7);
  scenario.agent_faults = rng.chance(0.8);
  scenario.partitions = rng.chance(0.7);
  Rng saves(seed, stream_of("saves"));
  scenario.saving = std::chrono::milliseconds(saves.chance(0.5) ? 1 + saves.below(3000) : 0);
  return scenario;
}

namespace {

void make_pairs(Scenario& scenario, std::uint64_t seed) {
  Rng rng(seed, stream_of("pair scenario"));
  RunSpec& spec = scenario.spec;
  StrategySpec strategy = named_strategy("noloco").value();
  strategy.max_skew = rng.below(4);
  strategy.pace = rng.chance(0.5) ? Pace::adaptive : Pace::fixed;
  strategy.inner_steps = 1 + rng.below(6);
  if (rng.chance(0.4)) {
    strategy.grouping = FragmentKind::balanced;
    strategy.fragments = rng.chance(0.5) ? 2 : 3;
    strategy.inner_steps += strategy.fragments;
  }
  strategy.overlap_steps = rng.chance(0.4) ? rng.below(strategy.inner_steps) : 0;
  strategy.merge_alpha = strategy.overlap_steps > 0 ? 0.5 : 0.0;
  take_outer_state(strategy, seed);
  spec.strategy = strategy;
  spec.islands.overlap_steps.clear();
  spec.islands.straggler_factor = 0;
  spec.training.steps = strategy.inner_steps * (4 + rng.below(10));
  const Composition composition = compose(spec.strategy).value();
  spec.merge_rounds = composition.merge_rounds(std::max<std::uint32_t>(1, strategy.fragments));
  spec.rounds = schedule_of_spec(spec).rounds() + spec.merge_rounds;
  scenario.exploding = rng.chance(0.2) ? 0.05 : 0;
  if (rng.chance(0.35)) {
    spec.strategy.group_size = rng.chance(0.6) ? 3 : 4;
    scenario.islands = std::max(scenario.islands, spec.strategy.group_size);
    spec.islands.max = std::max(spec.islands.max, spec.strategy.group_size);
  }
}

void make_experts(Scenario& scenario, Rng& rng, std::uint64_t most = 6) {
  RunSpec& spec = scenario.spec;
  spec.strategy = StrategySpec{};
  spec.strategy.name = "decentralized-diffusion";
  spec.strategy.group = Group::expert;
  take_outer_state(spec.strategy, scenario.seed);
  spec.islands.overlap_steps.clear();
  spec.islands.straggler_factor = 0;
  spec.diffusion.experts = static_cast<std::uint32_t>(1 + rng.below(most));
  spec.diffusion.save_every = rng.below(6);
  spec.diffusion.router_steps = 5 + rng.below(30);
  spec.diffusion.distill_steps = spec.diffusion.experts > 1 && rng.chance(0.3) ? 5 + rng.below(30) : 0;
  spec.training.steps = 5 + rng.below(40);
  spec.rounds = spec.diffusion.experts + (spec.diffusion.experts > 1 ? 1 : 0);
  spec.merge_rounds = 0;
}

}  // namespace

Scenario draw_pair_scenario(std::uint64_t seed) {
  Scenario scenario = draw_scenario(seed);
  make_pairs(scenario, seed);
  return scenario;
}

Scenario draw_free_scenario(std::uint64_t seed) {
  Scenario scenario = draw_scenario(seed);
  Rng rng(seed, stream_of("free composition"));
  RunSpec& spec = scenario.spec;
  StrategySpec strategy;
  strategy.inner_steps = 1 + rng.below(6);
  strategy.offset = rng.below(strategy.inner_steps + 1);
  if (rng.chance(0.7)) {
    strategy.grouping = FragmentKind::balanced;
    strategy.fragments = static_cast<std::uint32_t>(1 + rng.below(9));  // often more than inner_steps
  }
  strategy.overlap_steps = rng.chance(0.5) ? strategy.inner_steps : rng.below(strategy.inner_steps + 1);
  strategy.merge_alpha = strategy.overlap_steps > 0 ? 0.5 : 0.0;
  if (rng.chance(0.4)) {
    strategy.payload = PayloadKind::parameters;
    strategy.outer_optimizer = OuterOptimizerKind::adopt;
  } else if (rng.chance(0.4)) {
    strategy.group = Group::nobody;
  }
  strategy.pace = strategy.group == Group::all && rng.chance(0.2) ? Pace::adaptive : Pace::fixed;
  strategy.packing = seed % 2 == 0 ? Packing::zstd : Packing::none;
  take_outer_state(strategy, seed);
  spec.strategy = strategy;
  spec.islands.overlap_steps.clear();
  for (std::uint32_t i = 0; i < scenario.islands && strategy.overlap_steps > 0; ++i) {
    if (rng.chance(0.2)) {
      spec.islands.overlap_steps.push_back("i" + std::to_string(i) + "=" + std::to_string(rng.below(strategy.inner_steps + 1)));
    }
  }
  spec.training.steps = strategy.inner_steps * (4 + rng.below(10)) + rng.below(2);
  spec.rounds = schedule_of_spec(spec).rounds();
  spec.model_rounds = schedule_of_spec(spec).fragments();
  return scenario;
}

Scenario draw_quorum_scenario(std::uint64_t seed) {
  Scenario scenario = draw_scenario(seed);
  Rng rng(seed, stream_of("quorum"));
  RunSpec& spec = scenario.spec;
  StrategySpec strategy;
  strategy.aggregator = spec.strategy.aggregator;
  strategy.inner_steps = 2 + rng.below(6);
  if (rng.chance(0.6)) {
    strategy.grouping = FragmentKind::balanced;
    strategy.fragments = static_cast<std::uint32_t>(2 + rng.below(5));
  }
  strategy.overlap_steps = rng.chance(0.7) ? rng.below(strategy.inner_steps) : 0;
  strategy.merge_alpha = rng.chance(0.2) ? 0.5 : 0.0;
  strategy.quorum = static_cast<std::uint32_t>(1 + rng.below(rng.chance(0.5) ? 2 : spec.islands.max));
  strategy.quorum = std::min(strategy.quorum, spec.islands.max);
  const char* graces[] = {"auto", "100ms", "1s"};
  strategy.grace = strategy.overlap_steps > 0 ? graces[rng.below(3)] : "auto";
  strategy.max_staleness = static_cast<std::uint32_t>(rng.below(4));
  strategy.anchor = rng.chance(0.5) ? Anchor::newest : Anchor::own;
  strategy.pace = rng.chance(0.7) ? Pace::adaptive : Pace::fixed;
  take_outer_state(strategy, seed);
  spec.strategy = strategy;
  spec.islands.min = std::min(spec.islands.min, strategy.quorum);
  spec.islands.overlap_steps.clear();
  spec.islands.straggler_factor = 0;
  spec.training.steps = strategy.inner_steps * (4 + rng.below(10)) + rng.below(2);
  spec.rounds = schedule_of_spec(spec).rounds();
  spec.model_rounds = schedule_of_spec(spec).fragments();
  scenario.step_lag = std::chrono::milliseconds(rng.below(rng.chance(0.5) ? 40 : 400));
  return scenario;
}

Scenario draw_buffer_scenario(std::uint64_t seed) {
  Scenario scenario = draw_quorum_scenario(seed);
  Rng rng(seed, stream_of("buffer"));
  StrategySpec& strategy = scenario.spec.strategy;
  strategy.quorum_of = QuorumOf::any_age;
  strategy.grace = rng.chance(0.7) ? "0s" : strategy.grace;
  strategy.max_staleness = rng.chance(0.7) ? 1'000'000 : strategy.max_staleness;
  strategy.weighting = rng.chance(0.5) ? Weighting::uniform : strategy.weighting;
  return scenario;
}

Scenario draw_phase_scenario(std::uint64_t seed) {
  Scenario scenario = draw_scenario(seed);
  Rng rng(seed, stream_of("phases"));
  make_experts(scenario, rng);
  return scenario;
}

Scenario draw_group_scenario(std::uint64_t seed) {
  Scenario scenario = draw_scenario(seed);
  Rng rng(seed, stream_of("groups"));
  make_experts(scenario, rng, 3);
  RunSpec& spec = scenario.spec;
  const std::uint32_t alone = islands_without_groups(spec);
  scenario.islands = static_cast<std::uint32_t>(alone + 1 + rng.below(4));
  spec.islands.max = rng.chance(0.7) ? scenario.islands : static_cast<std::uint32_t>(alone + 1 + rng.below(scenario.islands - alone));
  spec.islands.min = static_cast<std::uint32_t>(1 + rng.below(rng.chance(0.5) ? spec.islands.max : alone));
  spec.training.batch = static_cast<std::uint32_t>(1 + rng.below(12));  // of 40 images and fewer in a cluster
  StrategySpec& strategy = spec.strategy;
  strategy.inner_steps = 1 + rng.below(5);
  if (rng.chance(0.5)) {
    const std::uint32_t fragments[] = {2, 3, 4, 6};
    strategy.grouping = FragmentKind::balanced;
    strategy.fragments = fragments[rng.below(4)];
    strategy.inner_steps = strategy.fragments + rng.below(4);
  }
  strategy.overlap_steps = rng.chance(strategy.fragments > 0 ? 0.8 : 0.3) ? rng.below(strategy.inner_steps) : 0;
  strategy.merge_alpha = rng.chance(0.3) ? 0.5 : 0.0;
  for (std::uint32_t i = 0; i < scenario.islands && strategy.overlap_steps > 0; ++i) {
    if (rng.chance(0.2)) {
      spec.islands.overlap_steps.push_back("i" + std::to_string(i) + "=" + std::to_string(rng.below(strategy.inner_steps)));
    }
  }
  strategy.pace = rng.chance(0.3) ? Pace::adaptive : Pace::fixed;
  spec.islands.straggler_factor = rng.chance(0.2) ? 3 : 0;
  spec.training.steps = strategy.inner_steps * (2 + rng.below(6)) + rng.below(2);
  spec.group_rounds = schedule_of_spec(spec).rounds();
  scenario.lost_disks = rng.chance(0.25) ? 0.3 : 0;
  scenario.full_disks = rng.chance(0.3);
  scenario.clogs = rng.chance(0.2);
  scenario.at_least = scenario.full_disks || scenario.clogs ? scenario.trouble : Duration(0);
  scenario.skewed_clocks = rng.chance(0.2);
  scenario.flipped_bits = rng.chance(0.1) ? 0.02 : 0;
  scenario.exploding = rng.chance(0.1) ? 0.05 : 0;
  scenario.step_time = std::chrono::milliseconds(20 + rng.below(150));
  scenario.step_lag = std::chrono::milliseconds(rng.below(40));
  return scenario;
}

Scenario draw_spread_scenario(std::uint64_t seed) {
  Rng rng(seed, stream_of("spread"));
  Scenario scenario = rng.chance(0.6) ? draw_phase_scenario(seed) : draw_group_scenario(seed);
  DataSpec& data = scenario.spec.data;
  data.spread = static_cast<std::uint32_t>(1 + rng.below(std::min(scenario.islands, scenario.spec.islands.max)));
  // With fewer places than islands the ones that are taken have to have images.
  if (scenario.spec.islands.max >= scenario.islands && rng.chance(0.4)) {
    scenario.without_images = static_cast<std::uint32_t>(rng.below(scenario.islands - data.spread + 1));
  }
  if (rng.chance(0.3)) {
    scenario.lost_disks = 0.7;  // so that nobody has some of the packed images any more
  }
  return scenario;
}

// No flipped bits: with so few members a group is a majority, and what one of its members got wrong is all of theirs.
Scenario draw_two_level_scenario(std::uint64_t seed) {
  Rng rng(seed, stream_of("two levels"));
  Scenario scenario = rng.chance(0.25) ? draw_quorum_scenario(seed) : draw_scenario(seed);
  scenario.islands = static_cast<std::uint32_t>(4 + rng.below(9));
  scenario.spec.islands.min = static_cast<std::uint32_t>(1 + rng.below(scenario.islands / 2));
  scenario.spec.islands.max = scenario.islands;
  if (scenario.spec.strategy.quorum > 0) {
    scenario.spec.islands.min = std::min(scenario.spec.islands.min, scenario.spec.strategy.quorum);
  }
  scenario.one_level_members = 3;
  return scenario;
}

Scenario draw_own_trainer_scenario(std::uint64_t seed) {
  Rng rng(seed, stream_of("own trainer"));
  Scenario (*const kinds[])(std::uint64_t) = {draw_scenario, draw_free_scenario, draw_quorum_scenario, draw_buffer_scenario};
  Scenario scenario = kinds[rng.below(4)](seed);
  scenario.spec.trainer.name = "own";
  scenario.nonfinite = rng.chance(0.7) ? 0.1 : 0.3;
  return scenario;
}

Scenario draw_many_pairs_scenario(std::uint64_t seed) {
  Rng rng(seed, stream_of("many pairs"));
  Scenario scenario = draw_pair_scenario(seed);
  scenario.islands = std::max(scenario.islands, static_cast<std::uint32_t>(5 + rng.below(6)));
  scenario.spec.islands.max = scenario.islands;
  scenario.one_level_members = 1;
  return scenario;
}

Scenario draw_long_scenario(std::uint64_t seed) {
  Rng rng(seed, stream_of("long scenario"));
  Scenario scenario = draw_scenario(seed);
  if (rng.chance(0.15)) {
    make_pairs(scenario, seed);
  }
  RunSpec& spec = scenario.spec;
  scenario.islands = static_cast<std::uint32_t>(2 + rng.below(15));
  spec.islands.min = static_cast<std::uint32_t>(1 + rng.below(rng.chance(0.5) ? (scenario.islands + 1) / 2 : scenario.islands));
  spec.islands.max = rng.chance(0.7) ? scenario.islands
                                     : static_cast<std::uint32_t>(spec.islands.min + rng.below(scenario.islands - spec.islands.min + 1));
  Rng phases(seed, stream_of("phases"));
  if (phases.chance(0.08)) {
    make_experts(scenario, phases);
  } else {
    spec.training.steps *= 1 + rng.below(3);
    spec.rounds = schedule_of_spec(spec).rounds() + spec.merge_rounds;
  }
  // Steps so long that the fastest island needs the time for them.
  scenario.at_least = std::chrono::minutes(10);
  const std::uint64_t steps =
      spec.training.steps + (spec.strategy.group == Group::expert ? spec.diffusion.router_steps + spec.diffusion.distill_steps : 0);
  scenario.step_time = scenario.at_least / static_cast<Duration::rep>(steps) + std::chrono::milliseconds(rng.below(500));
  scenario.step_lag = scenario.step_time * static_cast<Duration::rep>(rng.below(5)) / 100;
  scenario.trouble = std::chrono::seconds(60 + rng.below(480));
  scenario.between_faults = std::chrono::milliseconds(3000 + rng.below(27000));
  const Duration surplus =
      scenario.step_lag * static_cast<Duration::rep>(scenario.islands * spec.strategy.inner_steps);  // of the slowest island in a round
  spec.islands.deadline = std::chrono::seconds(20 + rng.below(100)) + (rng.chance(0.8) ? surplus : Duration(0));
  scenario.patience = std::chrono::hours(1);
  scenario.pair_poll = std::chrono::milliseconds(250);
  scenario.clogs = rng.chance(0.5);
  scenario.full_disks = rng.chance(0.5);
  scenario.skewed_clocks = rng.chance(0.5);
  scenario.flipped_bits = rng.chance(0.2) ? 0.02 : 0;
  scenario.wan = Rng(seed, stream_of("network")).chance(0.5);
  return scenario;
}

}  // namespace atl::sim
