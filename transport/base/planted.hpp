// Planted bugs: one check at a time left out, in a build of its own, so that the simulator proves that it finds what that check is for.
//
// In the product ATOLL_PLANTED(bug) is false and costs nothing. With ATOLL_PLANTED_BUGS (tests/sim/planted) it is true for the bug that the
// test has chosen; with the build option ATOLL_PLANTED_BUG for the first.
#pragma once

namespace atl::planted {

enum class Bug {
  none,
  stale_attempt,       // the coordinator counts what was said of an earlier epoch or attempt
  samples_left_out,    // an agent trains on from where its trainer was, not from where the ledger is
  silent_wait,         // the coordinator waits for contributions without saying so
  no_resend,           // it says everything once
  commits_again,       // after a rollback it commits rounds once more in the lineage that has them
  digest_unchecked,    // a result that differs from the majority's is committed and applied all the same
  no_promise,          // the decider of a pair does not wait for the other's promise
  others_unasked,      // whose decider left goes alone, and does not ask the others of its group
  runs_ahead,          // an agent's trainer goes on without the results that it should wait for
  arena_in_use,        // in lockstep a trainer writes its next gradient where the engine has yet to read its parameters
  drops_unnamed,       // an agent drops what its assignment does not name, whether the coordinator knows of it or not
  other_round,         // an agent goes on with an expert from the newest round of its group that its trainer saved, whichever that is
  packs_twice,         // the coordinator gives an island that has packed its images another part of the data set
  wakes_for_ever,      // the coordinator wants to be woken for an island that has done already what it was asked to do
  weights_forgotten,   // where two islands read each other's contribution, both count alike
  results_unverified,  // who catches up applies what was fetched without asking where it leads
  named_unsynced,      // a checkpoint takes its name before what the trainer saved in it is on the disk
  cancel_unwritten,    // the coordinator answers that a run is cancelled, and its ledger does not know
  islands_taken,       // a run that is resumed takes islands from another one
  older_anchor,        // with a quorum the coordinator counts what was formed against older outer parameters than the newest
  mean_of_groups,      // on two levels each group's mean counts alike, whatever the group's weight
  snapshot_unkept,     // outer state that changes while a checkpoint of it is written gets into it
  age_unnoticed,       // an older ledger goes on as if nobody knew better
};

#ifdef ATOLL_PLANTED_BUGS
extern Bug chosen;
#define ATOLL_PLANTED(bug) (::atl::planted::chosen == ::atl::planted::Bug::bug)
#elif defined(ATOLL_PLANTED_BUG)
#define ATOLL_PLANTED(bug) (::atl::planted::Bug::bug == ::atl::planted::Bug::stale_attempt)
#else
#define ATOLL_PLANTED(bug) false
#endif

}  // namespace atl::planted
