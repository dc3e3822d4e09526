// What islands with an outer state of their own have in common, alone or in pairs; and islands alone.
#include "coordinator/core/rules/own_state_rule.hpp"

#include <algorithm>
#include <limits>

#include "coordinator/core/core_state.hpp"

namespace atl::coordinator {

void OwnStateRule::enlist(Run& run, const IslandId& island) { admit_with_own_state(run, island, MembershipState::active); }

void OwnStateRule::begin(Run& run) {
  run.lineage.begin();
  run.lineage.trust_ledger();
}

void OwnStateRule::compare_held(Run& run, Membership& membership, const HeldRun* held) {
  membership.entry.is_ahead(core_.is_ahead(run, held));
  if (run.lineage.number() > 0 ? !run.lineage.restored() : run.lineage.initialised()) {
    core_.follow_epoch(run, membership.record.island, held);
  }
}

void OwnStateRule::greet_active(Run& run, Membership& membership, bool new_boot, const HeldRun* held) {
  if (new_boot || held == nullptr || !held->live) {
    core_.membership_lost(run, membership, "its agent was restarted");
  }
}

bool OwnStateRule::is_done(const Run& run, const RunEnded& message) const {
  return run.spec.merge_rounds == 0 ? message.round >= Round(run.spec.rounds) : run.at_end() && message.digest == run.lineage.digest();
}

// After those that are furthest.
Round OwnStateRule::next_stand(const Run& run) const { return std::min(run.terms().last_trained(), run.furthest().next()); }

// An island that has no access any more may have claimed any round.
void OwnStateRule::on_revoked(Run& run) {
  if (run.life.pausing() && next_stand(run) < *run.life.pauses_after()) {
    core_.pause_after(run, next_stand(run));
  }
}

// Elsewhere the round's commit says so.
void OwnStateRule::tell_pause(Run& run) {
  for (const IslandId& id : run.members) {
    const Progress& progress = run.memberships.at(id).progress;
    if (const Round own = std::max(progress.merged, progress.contributed); own.next() >= *run.life.pauses_after()) {
      told(run.about.id, id, "info", "pause_awaited",
           "island " + islands_.name_of(id) + " has come to round " + std::to_string(own.value) + " of run " + run.about.name +
               ": the others stand where it can");
    }
  }
  for (const IslandId& id : run.members) {
    send(id, core_.new_epoch_of(run, id));
    restart(run.memberships.at(id).source.offer_resend);
  }
}

Round OwnStateRule::present_round(const Run& run) const {
  return run.lineage.initialised() ? std::max(run.furthest(), run.lineage.committed()).next() : Round(0);
}

bool OwnStateRule::exports(const Run& run, const HeldCheckpoint& held, bool alone) const {
  return islands_commit(run, held.round) || (!alone && run.lineage.confirms(held.round, held.digest));
}

StartFrom OwnStateRule::recovered_start(MembershipState state) const {
  return state == MembershipState::active ? StartFrom::memory : Rule::recovered_start(state);
}

// Nothing is taken over: each island goes on from what it has.
void OwnStateRule::settle_backup(Run& run) {
  RoundRule::settle_backup(run);
  run.lineage.trust_ledger();
  record(run.to_record());
}

void OwnStateRule::describe(const Run& run, RunView& view) const {
  RoundRule::describe(run, view);
  view.last_own = run.terms().last_trained();
}

void OwnStateRule::hear_own(Run& run, Membership& membership, const atl::Ready& message) {
  if (message.round > membership.progress.contributed) {
    forgive(run, membership);
  }
  membership.progress.contribute(message.round, message.facts);
  look_for_alike(run, membership, message);
  if (misplaced(run, message.round, message.facts).empty() && message.facts.data.part == membership.record.part) {
    run.data.count_in(message.facts.data, message.facts.sequences, out_);
  }
  membership.progress.settled =
      current(run, membership, message.epoch) || membership.progress.settled;  // one that missed a membership is told
}

void OwnStateRule::on_merged_newer(Run& run, Membership& /*membership*/, const Merged& message) { note_own_round(run, message.round); }

bool OwnStateRule::takes_checkpoint(Run& run, Membership& membership, const Checkpointed& message) {
  if (message.round > Round(run.spec.rounds)) {
    return false;
  }
  membership.progress.settled = true;
  note_own_round(run, message.round);
  return true;
}

// Of its own checkpoint.
Digest OwnStateRule::digest_at(const Run& run, const Membership& membership, Round round) const {
  Digest digest = RoundRule::digest_at(run, membership, round);
  if (membership.entry.from_checkpoint()) {
    for (const HeldCheckpoint& held : islands_.held(membership.record.island, run.about.id).checkpoints) {
      digest = held.round == membership.entry.assigned() ? held.digest : digest;
    }
  }
  return digest;
}

// An island had come further before it heard that the run is being paused: all stand after that round.
void OwnStateRule::note_own_round(Run& run, Round round) {
  if (run.life.pausing() && round > *run.life.pauses_after() && islands_commit(run, round)) {
    core_.pause_after(run, round);
  }
}

// It goes on from what it has: in memory, on its disk, or nothing.
void OwnStateRule::admit_with_own_state(Run& run, const IslandId& id, MembershipState state) {
  const HeldRun held = islands_.held(id, run.about.id);
  core_.add_membership(run, id, state,
                       held.live                  ? StartFrom::memory
                       : held.checkpoints.empty() ? StartFrom::scratch
                                                  : StartFrom::checkpoint);
  Round newest;
  for (const HeldCheckpoint& checkpoint : held.checkpoints) {
    newest = islands_commit(run, checkpoint.round) ? std::max(newest, checkpoint.round) : newest;
  }
  run.memberships.at(id).entry.assign(newest);
}

// How far each is, and whether all are through.
void OwnStateRule::advance_alone(Run& run, bool readmits) {
  std::vector<std::string> training;
  std::vector<std::string> away;
  bool anybody_ended = false;
  Round slowest(std::numeric_limits<std::uint64_t>::max());
  for (auto& [id, membership] : run.memberships) {
    if (readmits && !run.life.pausing() && run.members.size() < run.spec.islands.max &&
        membership.record.state == MembershipState::absent && core_.may_come_back(run, id)) {
      admit_with_own_state(run, id, MembershipState::absent);
      core_.activate(run, membership);
      invite(run, membership);
    }
    if (membership.record.state == MembershipState::active) {
      training.push_back(islands_.name_of(id));
      slowest = std::min(slowest, membership.progress.merged);
      const Island* island = islands_.find(id);
      const bool heard = island != nullptr && island->reports.contains(run.about.id) && membership.progress.settled;
      if (!heard && membership.entry.due(out_)) {
        invite(run, membership);
      }
      if (!heard) {
        wake_at(membership.entry.next_repeat());
      }
    } else if (membership.record.state == MembershipState::joining) {
      away.push_back(islands_.name_of(id) + " (copies the state of another)");
    } else if (membership.record.state == MembershipState::absent) {
      away.push_back(islands_.name_of(id) + " (" + core_.why_away(run, id, membership) + ")");
      slowest = std::min(slowest, membership.progress.merged);
    } else if (membership.record.state == MembershipState::ended) {
      anybody_ended = true;
      slowest = std::min(slowest, Round(run.spec.rounds));
    }
  }
  if (slowest.value != std::numeric_limits<std::uint64_t>::max() && slowest > run.lineage.committed()) {
    run.lineage.reach(slowest);
  }
  const AloneDecision decision = decide_alone({now(), run.nobody_since + run.spec.islands.deadline, training, away, anybody_ended});
  run.wait = decision.wait;
  if (decision.wait.until) {
    wake_at(*decision.wait.until);
  }
  if (decision.kind == AloneDecision::Kind::end) {
    core_.advance_end(run);
  } else if (decision.kind == AloneDecision::Kind::hopeless) {
    const Error error = run.life.first_error().value_or(Error{Code::unavailable, "no island can take part any more"});
    core_.end_run(run, RunState::failed, error.why, error);
  }
}

// Every island has a round of its own in hand, and it is taken when its checkpoint is there.
void OwnStateRule::advance_pause(Run& run) {
  const Round last = *run.life.pauses_after();
  const bool safe = std::ranges::any_of(run.members, [&](const IslandId& id) {
    const std::optional<Checkpointed>& told = run.memberships.at(id).source.checkpointed;
    return told && told->round >= last;
  });
  std::vector<std::string> writing;
  for (const IslandId& id : run.members) {
    Membership& membership = run.memberships.at(id);
    const bool settled = safe && membership.source.checkpoint_settled && *membership.source.checkpoint_settled >= last;
    if (settled || membership.record.state != MembershipState::active || !islands_.alive(id)) {
      continue;  // through with its rounds, or lost: nobody waits for it
    }
    writing.push_back(islands_.name_of(id));
    if (due(membership.source.offer_resend)) {
      send(id, core_.new_epoch_of(run, id));
    }
    wake_at(membership.source.offer_resend.next);
  }
  finish_pause(run, last, writing);
}

void OwnRule::advance(Run& run) {
  advance_alone(run, true);
  if (run.life.pausing() && !run.life.over()) {
    advance_pause(run);
  }
}

}  // namespace atl::coordinator
