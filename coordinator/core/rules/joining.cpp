// Joiners of a run of rounds: invitations, sources, checkpoints.
#include <algorithm>

#include "coordinator/core/core_state.hpp"
#include "coordinator/core/rules/round_rule.hpp"

namespace atl::coordinator {
namespace {

constexpr std::size_t kSources = 3;  // that a joiner copies from
constexpr unsigned kMisfits = 3;     // since it last held a result, whatever else failed between them

}  // namespace

void RoundRule::invite_joiners(Run& run) {
  if (run.at_end()) {
    return;
  }
  std::size_t taking_part = run.members.size();
  for (const auto& [id, membership] : run.memberships) {
    taking_part += membership.record.state == MembershipState::joining ? 1U : 0U;
  }
  for (const auto& [id, island] : islands_.all()) {
    if (taking_part >= run.spec.islands.max) {
      break;
    }
    const auto membership = run.memberships.find(id);
    if (!island.greeted || !core_.admits_name(run, island) || !core_.obstacle_of(run, island).empty()) {
      continue;
    }
    if (membership != run.memberships.end()) {
      Membership& old = membership->second;
      if (old.record.state != MembershipState::absent || old.entry.memory_offered()) {
        continue;
      }
      if (now() < old.entry.retry_at()) {
        wake_at(old.entry.retry_at());
        continue;
      }
      if (core_.data_paths.waits_for_steadiness(run, old)) {
        continue;
      }
    }
    core_.add_membership(run, id, MembershipState::joining, StartFrom::peers);
    invite(run, run.memberships.at(id));
    event(run.about.id, id, "info", "island_joining",
          "island " + island.record.name + " copies the state of run " + run.about.name + " from its peers");
    ++taking_part;
  }
}

// Sources keep what joiners need, as long as there are joiners. An offer is a lease: it is renewed.
void RoundRule::offer(Run& run) {
  const bool needed = std::any_of(run.memberships.begin(), run.memberships.end(), [&](const auto& membership) {
    return membership.second.record.state == MembershipState::joining && takes_state(run, membership.first);
  });
  std::size_t sources = 0;
  for (const IslandId& id : run.members) {
    Membership& membership = run.memberships.at(id);
    if (needed && islands_.alive(id) && sources < kSources && membership.record.state == MembershipState::active) {
      ++sources;
      if (!membership.source.offering) {
        membership.source.offering = true;
        membership.source.offered.reset();
        restart(membership.source.offer_resend);
        run.in_rounds().offers_since = now();
        send(id, Offer{run.about.id, true});
      } else if (due(membership.source.offer_resend)) {
        send(id, Offer{run.about.id, true});
      }
      wake_at(membership.source.offer_resend.next);
    } else if (membership.source.offering) {
      membership.source.offering = false;
      membership.source.offered.reset();
      send(id, Offer{run.about.id, false});
    }
  }
}

AdmitInput RoundRule::admission_input(const Run& run) {
  AdmitInput input;
  input.now = now();
  input.committed = run.lineage.committed();
  for (const auto& [id, membership] : run.memberships) {
    if (membership.record.state == MembershipState::joining && islands_.alive(id) && core_.data_paths.reaches(id, run)) {
      input.joiners.push_back(Joiner{id, islands_.name_of(id), membership.entry.catch_up().has_value(), membership.entry.caught_up(),
                                     membership.entry.boundaries_missed(), membership.entry.holds(),
                                     islands_.trains(id, run.about.id).value_or(false)});
    }
  }
  input.lockstep = stands_for_joiners();
  input.enough = run.members.size() >= run.spec.islands.min;
  input.stuck = core_.data_paths.wait_for(run).has_value();
  input.exchanging = run.rounds().any_exchanging();
  input.anybody_ready = run.rounds().anybody_ready();
  input.last_commit = run.last_commit;
  input.last_round = run.in_rounds().last_round;
  input.hold_limit = hold_limit(run);
  return input;
}

// With overlap the rounds that are under way end meanwhile, one after the other, until none is.
std::optional<Wait> RoundRule::hold_for_joiners(Run& run) {
  AdmitInput input = admission_input(run);
  input.hold_since = run.in_rounds().hold_since;
  const AdmitDecision decision = decide_admission(input);
  if (decision.hold && !run.in_rounds().hold_since) {
    run.in_rounds().hold_since = now();
    for (const IslandId& id : decision.held_for) {
      run.memberships.at(id).entry.held();
    }
  }
  return decision.hold;
}

void RoundRule::hear(Run& run, Membership& membership, const Checkpointed& message) {
  const IslandId island = membership.record.island;
  Source& source = membership.source;
  source.checkpoint_settled = std::max(source.checkpoint_settled.value_or(message.round), message.round);
  if (run.life.pausing()) {
    touch(run);
  }
  if (message.error) {
    told(run.about.id, island, "warning", "checkpoint_failed",
         "island " + islands_.name_of(island) + " could not write its checkpoint of round " + std::to_string(message.round.value) + ": " +
             bounded(message.error->why) + "; its older checkpoints are still good");
    return;
  }
  const bool fresh = !source.checkpointed || source.checkpointed->round < message.round || source.checkpointed->digest != message.digest;
  if (source.checkpointed == message && membership.record.state == MembershipState::active && run.is_member(island) &&
      now() - source.answered >= settings_.resend) {
    // Said again: it may not have heard of the epoch, or that the run is not being paused any more. It says nothing else that tells.
    source.answered = now();
    send(island, core_.new_epoch_of(run, island));
  }
  if (!takes_checkpoint(run, membership, message)) {
    return;
  }
  if (fresh) {
    event(run.about.id, island, "info", "checkpoint_written",
          "island " + islands_.name_of(island) + " has a checkpoint of round " + std::to_string(message.round.value),
          {Field{"round", static_cast<std::int64_t>(message.round.value)}, Field{"digest", to_hex(message.digest)},
           Field{"file", to_hex(message.file)}, Field{"bytes", static_cast<std::int64_t>(message.file_bytes)}});
  }
  source.checkpointed = message;
  if (source.offering && (!source.offered || source.offered->round < message.round)) {
    // The results after its first answer are kept; a later checkpoint only shortens the way.
    source.offered = message;
    touch(run);
  }
  islands_.keeps(island, run.about.id, HeldCheckpoint{message.round, message.digest});
}

// The attempt to let it in has failed; the next one comes later each time. Whose trainer has another model than the run is asked a few
// times, since it has the run's state from an island that may have spoilt it, and then no more.
void RoundRule::end_entry(Run& run, Membership& membership, const Error& error) {
  const IslandId island = membership.record.island;
  const std::string why = bounded(error.why);
  const bool misfit = error.code == Code::invalid_argument;
  if (misfit) {
    membership.entry.misfit();
  }
  if (misfit && membership.entry.misfits() >= kMisfits) {
    core_.refuse(run, membership, Error{error.code, why});
    return;
  }
  if (!misfit || membership.entry.misfits() == 1) {
    event(run.about.id, island, "warning", "catch_up_failed",
          "island " + islands_.name_of(island) + " could not take over the state of run " + run.about.name + ": " + why);
  }
  if (membership.entry.from_checkpoint()) {
    islands_.keeps_not(island, run.about.id, membership.entry.assigned());
  }
  core_.vacate(run, membership, MembershipState::absent, "could not take over the state: " + why);
  membership.entry.fail(now(), settings_.resend, settings_.rejoin_delay_max);
}

Duration RoundRule::hold_limit(const Run& /*run*/) const { return settings_.join_hold; }

void RoundRule::hear(Run& run, Membership& membership, const CaughtUp& message) {
  const IslandId island = membership.record.island;
  if (run.is_member(island) && membership.record.state == MembershipState::active) {
    if (message.error && message.epoch == run.epoch) {
      islands_.not_live(island, run.about.id);
      core_.leave_epoch(run, island, bounded(message.error->why), true);
    } else {
      membership.progress.settled = membership.progress.settled || !message.error;
      send(island, core_.new_epoch_of(run, island));
    }
    return;
  }
  if (membership.record.state == MembershipState::absent && run.members.empty() && has_newest(run, message)) {
    // It held the result of the round whose commit it had not heard, and nobody else is left: no round is lost.
    islands_.live(island, run.about.id, HeldCheckpoint{message.round, message.digest});
    membership.entry.offer_memory(true);
    touch(run);
    return;
  }
  if (membership.record.state != MembershipState::joining || message.epoch < membership.entry.assigned_epoch()) {
    return;
  }
  if (message.error) {
    const bool of_earlier = message.entry != 0 && membership.entry.number() != 0 && message.entry != membership.entry.number();
    if (!of_earlier) {  // those are repeated until the invitation is there
      end_entry(run, membership, *message.error);
    }
    return;
  }
  come_to(run, membership, message);
}

}  // namespace atl::coordinator
