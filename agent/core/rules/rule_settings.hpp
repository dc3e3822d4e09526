// What the nouns of a run are set to under its rule.
// Threads: plain values and pure functions.
#pragma once

#include "agent/core/committed_state.hpp"
#include "agent/core/rounds.hpp"
#include "agent/core/trainer.hpp"

namespace atl::agent {

struct RuleSettings {
  StateOf state = StateOf::everybody;
  ContributionSettings contributions;
  bool copy_own_checkpoints = false;
  OrderSettings orders;
};
[[nodiscard]] RuleSettings settings_of_rule(const RunTerms& terms);

}  // namespace atl::agent
