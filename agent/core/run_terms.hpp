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

  [[nodiscard]] Round last() const { return rounds.last(); }
  [[nodiscard]] Round last_trained() const { return rounds.last_trained(); }
};

}  // namespace atl::agent
