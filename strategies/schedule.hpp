// The schedule: which round synchronises which fragment, from which inner step on, and when its result is applied.
//
// A fragment is synchronised every H inner steps (the period). With F fragments, fragment p is shifted by floor(p·H/F), so that they take
// turns: fragment p's k-th round starts at step (k−1)·H + o + floor(p·H/F), where o is the offset, the step of the first round of all. The
// usual offset is H: then every fragment's first round comes only once it has a full period behind it (Streaming DiLoCo,
// arXiv:2501.18512, Algorithm 2; its example H = 100, F = 2 gives 100, 200, … and 150, 250, …). o = H/F − τ publishes τ steps before every
// H/F steps, so that the results are applied there: torchft's schedule. Fragments may be more than H: then several start at one step.
// The result of a round is applied τ steps after its start (the overlap), τ ≤ H. With τ = H a fragment's result is applied at the step at
// which its next round starts. Whether that round's contribution is made of what the merge left or of what was there before is a choice:
// with `publish_first` (Composition::whole_period) it is the latter. F = 1 and τ = 0 is DiLoCo; H = 1 besides is data-parallel.
// The end: at the run's last step every fragment is synchronised one last time, however long its last period is, and the
// trainer waits for it, so that the outer parameters hold all training. A round whose result would be applied at the
// last step or later is left out: the last synchronisation takes its place. With `publish_first` none is left out, as a trainer drops what
// it has published: such a round is applied at the last step, before the last synchronisation.
// τ may differ between islands (ibid., §3.3: τ of 1 here and up to 5 there costs nothing): `merged_after`.
// Rounds are numbered 1, 2, 3… by start step, then by fragment.
// Threads: a plain value. Cost: every query is O(1), or O(F) where it returns several rounds.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "transport/base/ids.hpp"
#include "transport/base/result.hpp"

namespace atl {

struct RoundPlan {
  Round round;
  std::uint32_t fragment = 0;
  Step start;           // the contribution is made of the parameters after this many inner steps
  Step apply;           // the result is merged after this many; start + τ, or start for the last synchronisation
  Step previous_start;  // of the same fragment's round before, 0 if none: the period is start − previous_start
  friend bool operator==(const RoundPlan&, const RoundPlan&) = default;
};

class Schedule {
 public:
  // total_steps: inner steps of the run; inner_steps: H; fragments: F; overlap_steps: τ; offset: o, 0 for H.
  // Errors: invalid_argument unless 1 ≤ total_steps ≤ 2^48, 1 ≤ H ≤ 2^48, 1 ≤ F, τ ≤ H, o ≤ H, and τ = H with publish_first.
  static Result<Schedule> make(std::uint64_t total_steps, std::uint64_t inner_steps, std::uint32_t fragments = 1,
                               std::uint64_t overlap_steps = 0, std::uint64_t offset = 0, bool publish_first = false);

  // The same rounds for an island whose links are slower or quicker than the others': it merges them its own τ after their start, at the
  // latest one step before the end, where the last synchronisations begin. Which rounds there are does not change.
  // Errors: invalid_argument unless overlap_steps ≤ H, and = H with publish_first.
  [[nodiscard]] Result<Schedule> merged_after(std::uint64_t overlap_steps) const;

  // Rounds of the whole run.
  [[nodiscard]] std::uint64_t rounds() const { return regular_ + fragments_; }
  [[nodiscard]] std::uint32_t fragments() const { return fragments_; }
  // Errors: invalid_argument unless 1 ≤ round ≤ rounds().
  [[nodiscard]] Result<RoundPlan> round_at(Round round) const;
  // The first round after `round` that synchronises this fragment. Nothing: there is none.
  [[nodiscard]] std::optional<RoundPlan> next_of(std::uint32_t fragment, Round round) const;
  // How many rounds synchronise this fragment after `from` and before `to`.
  [[nodiscard]] std::uint64_t rounds_between(std::uint32_t fragment, Round from, Round to) const;
  // Of this round's fragment the round before it: nothing for the first one. O(1).
  [[nodiscard]] std::optional<Round> round_before(const RoundPlan& plan) const;
  // In order of round; empty at most steps. Where a fragment's round is applied at the step at which its next one starts, apply comes
  // first, but with publish_first.
  [[nodiscard]] std::vector<RoundPlan> rounds_starting_at(Step step) const;
  [[nodiscard]] std::vector<RoundPlan> rounds_applying_at(Step step) const;

 private:
  Schedule(std::uint64_t total_steps, std::uint64_t inner_steps, std::uint32_t fragments, std::uint64_t overlap_steps, std::uint64_t offset,
           bool publish_first);
  [[nodiscard]] std::uint64_t shift(std::uint32_t fragment) const;
  [[nodiscard]] RoundPlan plan(std::uint64_t index) const;  // index = round − 1 < rounds()

  std::uint64_t total_steps_;
  std::uint64_t inner_steps_;
  std::uint64_t first_;        // step of the first round, o
  std::uint64_t merge_steps_;  // τ of this island
  std::uint64_t regular_;      // rounds before the last synchronisations; the run's own τ decided how many
  std::uint32_t fragments_;
  bool publish_first_;
};

}  // namespace atl
