// What a strategy's name settles for [strategy]: the defaults of strategies/composition.hpp, and nothing else. A run file may override any
// part; what goes together is decided by the parts. Beside it the keys that have no effect.
// Threads: pure.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "strategies/specification/run_rules.hpp"
#include "strategies/specification/run_spec.hpp"

namespace atl {

// Fills in the named strategy's defaults for the keys that the run file does not set (`is_set`). Returns what
// has no effect, and every impossible combination of parts.
std::vector<RunProblem> apply_strategy_name(StrategySpec& strategy, const std::function<bool(std::string_view key)>& is_set);

}  // namespace atl
