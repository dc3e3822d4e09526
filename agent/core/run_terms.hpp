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
      : id(std::move(run)), spec(std::move(settings)), composition(parts), rounds(parts, spec.rounds, spec.merge_rounds) {}

  RunId id;
  RunSpec spec;
  Composition composition;
  RunRounds rounds;

  // Of the rounds that are trained for.
  [[nodiscard]] RoundTerms trained() const { return rounds.terms(Round(1)); }
  // Every island has an outer state of its own.
  [[nodiscard]] bool own_states() const { return trained().base == BaseRule::own; }
  // The coordinator has no part in the round's commit.
  [[nodiscard]] bool commits_itself(Round round) const { return rounds.terms(round).commit != CommitRule::coordinator; }
  // Members of a group commit the rounds that are trained for among themselves.
  [[nodiscard]] bool in_groups() const { return trained().commit == CommitRule::members; }
  // Rounds close without the contributions of members that are late.
  [[nodiscard]] bool passes_over() const { return trained().commit == CommitRule::coordinator && trained().quorum > 0; }
  // Nobody else takes part in the rounds of this island.
  [[nodiscard]] bool alone() const { return trained().commit == CommitRule::self; }
  [[nodiscard]] bool lockstep() const { return trained().lockstep; }
  [[nodiscard]] Round last() const { return rounds.last(); }
  [[nodiscard]] Round last_trained() const { return rounds.last_trained(); }
};

}  // namespace atl::agent
