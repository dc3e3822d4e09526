// What a round is, as far as the run decides it: with whom, who decides that it counts, and what its result becomes.
//
// A round is {fragment, group, base, quorum, commit rule}. The fragment follows from the schedule; the rest is here. `all`, `pairs`,
// `nobody`, the merge that ends a gossip run and gradients in lockstep are values of these, not paths of their own:
//
//   group   commit rule   quorum            outer state   what
//   all     coordinator   every active one  shared        DiLoCo, Streaming DiLoCo, data-parallel (in lockstep)
//   pairs   members       the group         its own       NoLoCo
//   nobody  self          the island        its own       local training
//   all     coordinator   every active one  shared after  the last rounds of a gossip run: all outer parameters are merged
//   all     coordinator   some              shared        a round that does not wait: who is late receives its result, and its contribution
//                                                         goes into a later round of the fragment, formed against its own base
//
// Threads: plain values and pure functions.
#pragma once

#include <cstdint>

#include "strategies/composition.hpp"
#include "transport/base/ids.hpp"

namespace atl {

// By which rule the work of a run goes on. Each core has one class for each, and asks a run for its rule where it makes that class.
enum class RunRule : std::uint8_t {
  shared,  // all members exchange, the coordinator commits, and there is one outer state
  gossip,  // members meet in groups and commit among themselves; every island has an outer state of its own
  own,     // an island goes its own way: nothing is sent
  tasks,   // no rounds: tasks that islands are given (decentralised diffusion)
};
[[nodiscard]] constexpr RunRule rule_of(Group group) {
  return group == Group::all      ? RunRule::shared
         : group == Group::pairs  ? RunRule::gossip
         : group == Group::nobody ? RunRule::own
                                  : RunRule::tasks;
}

// Who decides that a round counts.
enum class CommitRule : std::uint8_t {
  coordinator,  // once a quorum of the epoch's members holds the same result
  members,      // those who exchanged, among themselves; the coordinator hears of it afterwards
  self,         // the island alone
};

// What a contribution is formed against.
enum class BaseRule : std::uint8_t {
  shared,  // the outer state that every member of the epoch has
  own,     // the island's own outer state
};

struct RoundTerms {
  Group group = Group::all;
  CommitRule commit = CommitRule::coordinator;
  BaseRule base = BaseRule::shared;
  std::uint32_t quorum = 0;    // contributions with which the round closes; 0: those of every active member of the group
  bool merges = false;         // the contribution is the outer parameters of `fragment`, the result their mean
  bool lockstep = false;       // the trainer waits for the result and its own optimiser takes the step
  std::uint32_t fragment = 0;  // of a round that merges
  friend bool operator==(const RoundTerms&, const RoundTerms&) = default;
};

// The terms of each round of a run.
class RunRounds {
 public:
  // Of a run of no rounds.
  RunRounds() = default;
  // rounds: of the run, those that merge included; merge_rounds: how many of the last ones merge all islands' outer parameters.
  RunRounds(const StrategySpec& strategy, std::uint64_t rounds, std::uint64_t merge_rounds);

  [[nodiscard]] RunRule rule() const { return rule_of(trained_.group); }
  // Every island has an outer state of its own.
  [[nodiscard]] bool has_own_outer_state() const { return trained_.base == BaseRule::own; }
  // The coordinator has no part in the round's commit.
  [[nodiscard]] bool islands_commit(Round round) const { return terms(round).commit != CommitRule::coordinator; }
  // Rounds close with so many contributions (`quorum`), and nobody waits for the others.
  [[nodiscard]] bool closes_with_quorum() const { return trained_.commit == CommitRule::coordinator && trained_.quorum > 0; }
  // The trainer waits for each result and takes the step itself.
  [[nodiscard]] bool lockstep() const { return trained_.lockstep; }

  [[nodiscard]] RoundTerms terms(Round round) const;
  [[nodiscard]] Round last() const { return last_; }
  // The last round that is not a merge; last() where there are none.
  [[nodiscard]] Round last_trained() const { return last_trained_; }

 private:
  RoundTerms trained_;
  Round last_;
  Round last_trained_;
};

}  // namespace atl
