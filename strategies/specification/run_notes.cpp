#include "strategies/specification/run_notes.hpp"

#include <array>
#include <cstdio>
#include <utility>

#include "strategies/specification/model_kind.hpp"
#include "transport/base/exchange_grid.hpp"

namespace atl {
namespace {

constexpr std::uint32_t kContributionsToTrim = 4;  // aggregate.hpp: of fewer trimmed_mean leaves out none

}  // namespace

std::vector<std::string> notes_on(const RunSpec& spec) {
  std::vector<std::string> notes;
  const StrategySpec& strategy = spec.strategy;
  const bool momentum =
      strategy.outer_optimizer == OuterOptimizerKind::nesterov || strategy.outer_optimizer == OuterOptimizerKind::heavy_ball;
  if (strategy.group == Group::all && momentum && strategy.outer_momentum > 0.5 && strategy.inner_steps > 0) {
    const std::uint64_t rounds = spec.training.steps / strategy.inner_steps + (spec.training.steps % strategy.inner_steps == 0 ? 0 : 1);
    if (rounds < kRoundsForMomentum) {
      std::array<char, 32> value{};
      std::snprintf(value.data(), value.size(), "%.4g", strategy.outer_momentum);
      notes.push_back(std::string("outer_momentum = ") + value.data() + " pays in long runs, from some " +
                      std::to_string(kRoundsForMomentum) + " rounds on, and this one synchronises " +
                      (rounds == 1 ? "once" : std::to_string(rounds) + " times") +
                      ": with outer_learning_rate = 1.0 and outer_momentum = 0 short runs ended at a lower loss");
    }
  }
  if (strategy.group == Group::all && !sums_by_groups(strategy.aggregator) && spec.islands.min > kOneLevelMembers) {
    notes.push_back(std::string(name_of(strategy.aggregator)) + " needs every island's value of each parameter at once: beyond " +
                    std::to_string(kOneLevelMembers) +
                    " islands its rounds do not go in two levels, and each island connects to all others");
  }
  if (strategy.aggregator == Aggregator::trimmed_mean) {
    const bool quorum = strategy.quorum > 0;
    const std::uint32_t fewest = quorum ? strategy.quorum : spec.islands.min;
    if (fewest < kContributionsToTrim) {
      notes.push_back("trimmed-mean leaves nothing out where a round has fewer than " + std::to_string(kContributionsToTrim) +
                      " contributions, and " + (quorum ? "quorum" : "islands.min") + " = " + std::to_string(fewest) +
                      " allows such rounds: in these a single island can pull the result anywhere");
    }
  }
  return notes;
}

}  // namespace atl
