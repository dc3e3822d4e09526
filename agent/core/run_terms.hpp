// What a run is, fixed from the first invitation on: its id, its settings, and the terms of each of its rounds.
// Threads: plain values.
#pragma once

#include "strategies/composition.hpp"
#include "strategies/round.hpp"
#include "strategies/specification/run_spec.hpp"
#include "transport/base/ids.hpp"

namespace atl::agent {

struct RunTerms {
  RunTerms(RunId run, RunSpec settings, const Composition& parts)
      : id(std::move(run)), spec(std::move(settings)), composition(parts), rounds(spec.strategy, spec.rounds, spec.merge_rounds) {}

  RunId id;
  RunSpec spec;
  Composition composition;
  RunRounds rounds;

  [[nodiscard]] bool has_own_outer_state() const { return rounds.has_own_outer_state(); }
  [[nodiscard]] bool islands_commit(Round round) const { return rounds.islands_commit(round); }
  [[nodiscard]] bool gossips() const { return rounds.rule() == RunRule::gossip; }
  [[nodiscard]] bool closes_with_quorum() const { return rounds.closes_with_quorum(); }
  [[nodiscard]] bool alone() const { return rounds.rule() == RunRule::own; }
  [[nodiscard]] bool lockstep() const { return rounds.lockstep(); }
  [[nodiscard]] Round last() const { return rounds.last(); }
  [[nodiscard]] Round last_trained() const { return rounds.last_trained(); }
};

}  // namespace atl::agent
