// Who comes, or comes back, while others have the state: from memory, or from peers.
#include <algorithm>

#include "coordinator/core/core_state.hpp"

namespace atl::coordinator {
namespace {

constexpr std::size_t kSources = 3;                           // that a joiner copies from
constexpr Duration kOfferPatience = std::chrono::seconds(2);  // for the other sources, once one has a checkpoint
constexpr unsigned kMisfits = 3;                              // since it last held a result, whatever else failed between them

// Whether it came to what it was told, which took so long that the round is no longer known: it would be told of that for ever.
bool forget_order(Membership& membership, const CaughtUp& message, TimePoint now) {
  const std::optional<CatchUp>& order = membership.entry.catch_up;
  if (!order || order->committed != message.round || order->digest != message.digest) {
    return false;
  }
  membership.entry.catch_up.reset();
  membership.entry.caught_up.reset();
  membership.entry.resend.next = now;
  return true;
}

}  // namespace

void Core::State::advance_joins(Run& run) {
  if (run.life.pausing() && run.members.size() >= run.spec.islands.min) {
    return;  // nobody comes in any more: the run is about to be paused
  }
  readmit(run);
  if (!run.members.empty()) {
    invite(run);
    offer(run);
    for (auto& [id, membership] : run.memberships) {
      if (membership.record.state == MembershipState::joining) {
        order_catch_up(run, membership);
      }
    }
    admit_joiners(run);
  }
}

// An island that was away and still has the state of the newest round: it goes on where it was.
void Core::State::readmit(Run& run) {
  if (run.lineage.restored()) {
    return;  // of a backup: first it is found out how far the run is
  }
  const bool exchanging = run.rounds().any_exchanging();
  for (auto& [id, membership] : run.memberships) {
    if (!membership.entry.memory_offered || membership.record.state != MembershipState::absent || !may_come_back(run, id) ||
        now() < membership.entry.retry_at) {
      continue;
    }
    if (run.of_group() && !is_lent(run, id)) {
      continue;  // it may have another task by now
    }
    const HeldRun& held = islands.held(id, run.about.id);
    if (held.committed != run.lineage.committed() || held.digest != run.lineage.digest() || run.members.size() >= run.spec.islands.max) {
      membership.entry.memory_offered = false;
    } else if (!exchanging && reaches(id, run) && islands.trains(id, run.about.id).value_or(true)) {
      membership.entry.from = StartFrom::memory;
      activate(run, membership);
    }
  }
}

void Core::State::invite(Run& run) {
  if (run.at_end()) {
    return;
  }
  std::size_t taking_part = run.members.size();
  for (const auto& [id, membership] : run.memberships) {
    taking_part += membership.record.state == MembershipState::joining ? 1U : 0U;
  }
  for (const auto& [id, island] : islands.all()) {
    if (taking_part >= run.spec.islands.max) {
      break;
    }
    const auto membership = run.memberships.find(id);
    if (!island.greeted || !admits_name(run, island) || !obstacle_of(run, island).empty()) {
      continue;
    }
    if (membership != run.memberships.end()) {
      Membership& old = membership->second;
      if (old.record.state != MembershipState::absent || old.entry.memory_offered) {
        continue;
      }
      if (now() < old.entry.retry_at) {
        wake_at(old.entry.retry_at);
        continue;
      }
      if (waits_for_steadiness(run, old)) {
        continue;
      }
    }
    add_membership(run, id, MembershipState::joining, StartFrom::peers);
    send_invite(run, run.memberships.at(id));
    event(run.about.id, id, "info", "island_joining",
          "island " + island.record.name + " copies the state of run " + run.about.name + " from its peers");
    ++taking_part;
  }
}

// Where gradients are exchanged a joiner copies the state while the others stand: not before it can train.
bool Core::State::takes_state(const Run& run, const IslandId& joiner) const {
  return !run.lockstep() || islands.trains(joiner, run.about.id).value_or(false);
}

// Sources keep what joiners need, as long as there are joiners. An offer is a lease: it is renewed.
void Core::State::offer(Run& run) {
  const bool needed = std::any_of(run.memberships.begin(), run.memberships.end(), [&](const auto& membership) {
    return membership.second.record.state == MembershipState::joining && takes_state(run, membership.first);
  });
  std::size_t sources = 0;
  for (const IslandId& id : run.members) {
    Membership& membership = run.memberships.at(id);
    if (needed && islands.alive(id) && sources < kSources && membership.record.state == MembershipState::active) {
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

// Sends a joiner what it should come to next, if that has changed, or again if it has not answered.
void Core::State::order_catch_up(Run& run, Membership& membership) {
  const IslandId island = membership.record.island;
  const bool stale = membership.entry.catch_up && membership.entry.caught_up && *membership.entry.caught_up < run.lineage.committed() &&
                     membership.entry.catch_up->committed < run.lineage.committed();
  bool again = due(membership.entry.resend);
  wake_at(membership.entry.resend.next);
  if (again && (!membership.entry.caught_up || *membership.entry.caught_up < run.lineage.committed())) {
    send_invite(run, membership);
  }
  if ((membership.entry.from == StartFrom::checkpoint && !membership.entry.caught_up) || !takes_state(run, island)) {
    return;
  }
  if (!membership.entry.catch_up || stale) {
    std::optional<Checkpointed> best;
    bool all_told = true;
    for (const IslandId& id : run.members) {
      const Membership& source = run.memberships.at(id);
      all_told = all_told && (!source.source.offering || source.source.offered);
      if (source.source.offering && source.source.offered && (!best || source.source.offered->round > best->round)) {
        best = source.source.offered;
      }
    }
    if (!best || (!all_told && run.in_rounds().offers_since && now() < *run.in_rounds().offers_since + kOfferPatience)) {
      if (best) {
        wake_at(*run.in_rounds().offers_since + kOfferPatience);
      }
      return;
    }
    CatchUp order{run.about.id,         run.epoch, best->round, best->file, best->file_bytes, run.lineage.committed(),
                  run.lineage.digest(), {},        0,           0};
    for (const IslandId& id : run.members) {
      const Membership& source = run.memberships.at(id);
      if (source.source.offering && source.source.offered && source.source.offered->round == best->round &&
          source.source.offered->file == best->file) {
        order.sources.push_back(islands.member_of(id));
      }
    }
    membership.entry.catch_up = std::move(order);
    restart(membership.entry.resend);
    again = true;
  }
  if (again && (!membership.entry.caught_up || *membership.entry.caught_up < membership.entry.catch_up->committed)) {
    membership.entry.catch_up->epoch = run.epoch;
    membership.entry.catch_up->part = membership.record.part;
    membership.entry.catch_up->position =
        run.data.position(membership.record.part, run.lineage.parts_after(membership.entry.catch_up->committed));
    const Member joiner = islands.member_of(island);
    for (const Member& source : membership.entry.catch_up->sources) {
      send(source.island, Serve{run.about.id, joiner.public_key, membership.entry.catch_up->checkpoint_round, true, joiner.bulk_address});
    }
    send(island, *membership.entry.catch_up);
  }
}

Duration Core::State::hold_limit(const Run& run) const { return run.lockstep() ? run.spec.islands.deadline : settings.join_hold; }

AdmitInput Core::State::admission_input(const Run& run) {
  AdmitInput input;
  input.now = now();
  input.committed = run.lineage.committed();
  for (const auto& [id, membership] : run.memberships) {
    if (membership.record.state == MembershipState::joining && islands.alive(id) && reaches(id, run)) {
      input.joiners.push_back(Joiner{id, islands.name_of(id), membership.entry.catch_up.has_value(), membership.entry.caught_up,
                                     membership.entry.boundaries_missed, membership.entry.holds,
                                     islands.trains(id, run.about.id).value_or(false)});
    }
  }
  input.lockstep = run.lockstep();
  input.enough = run.members.size() >= run.spec.islands.min;
  input.stuck = wait_for_paths(run).has_value();
  input.exchanging = run.rounds().any_exchanging();
  input.anybody_ready = run.rounds().anybody_ready();
  input.last_commit = run.last_commit;
  input.last_round = run.in_rounds().last_round;
  input.hold_limit = hold_limit(run);
  return input;
}

void Core::State::admit_joiners(Run& run) {
  for (const IslandId& id : decide_admission(admission_input(run)).admit) {
    activate(run, run.memberships.at(id));
  }
}

// With overlap the rounds that are under way end meanwhile, one after the other, until none is.
std::optional<Wait> Core::State::hold_for_joiners(Run& run) {
  AdmitInput input = admission_input(run);
  input.hold_since = run.in_rounds().hold_since;
  const AdmitDecision decision = decide_admission(input);
  if (decision.hold && !run.in_rounds().hold_since) {
    run.in_rounds().hold_since = now();
    for (const IslandId& id : decision.held_for) {
      ++run.memberships.at(id).entry.holds;
    }
  }
  return decision.hold;
}

// Whether a checkpoint is of the run's present history, and the same as its peers'. An island whose checkpoint differs leaves the epoch.
bool Core::State::takes_checkpoint(Run& run, Membership& membership, const Checkpointed& message) {
  const IslandId island = membership.record.island;
  if (run.has_own_outer_state()) {
    membership.progress.settled = true;
    note_own_round(run, message.round);
    return true;
  }
  if (!run.lineage.confirms(message.round, message.digest)) {
    return false;  // of rounds that were given up
  }
  if (!run.lineage.agrees_on_file(message.round, message.file) && !run.lockstep() && run.is_member(island)) {
    const std::string what = "outer state of round " + std::to_string(message.round.value);
    event(run.about.id, island, "error", "state_differs",
          "island " + islands.name_of(island) + "'s " + what +
              " differs from its peers' although all its rounds agree: its memory or disk is faulty");
    leave_epoch(run, island, "its " + what + " differs from its peers'", true);
    release(island, run);
    offend(run, island, "its " + what + " differs from its peers'");
    return false;
  }
  run.lineage.has_checkpoint(message.round);
  return true;
}

void Core::State::on_checkpointed(Run& run, Membership& membership, const Checkpointed& message) {
  const IslandId island = membership.record.island;
  Source& source = membership.source;
  source.checkpoint_settled = std::max(source.checkpoint_settled.value_or(message.round), message.round);
  if (run.life.pausing()) {
    touch(run);
  }
  if (message.error) {
    event(run.about.id, island, "warning", "checkpoint_failed",
          "island " + islands.name_of(island) + " could not write its checkpoint of round " + std::to_string(message.round.value) + ": " +
              bounded(message.error->why) + "; its older checkpoints are still good");
    return;
  }
  const bool fresh = !source.checkpointed || source.checkpointed->round < message.round || source.checkpointed->digest != message.digest;
  if (source.checkpointed == message && membership.record.state == MembershipState::active && run.is_member(island) &&
      now() - source.answered >= settings.resend) {
    // Said again: it may not have heard of the epoch, or that the run is not being paused any more. It says nothing else that tells.
    source.answered = now();
    send(island, new_epoch_of(run, island));
  }
  if (!takes_checkpoint(run, membership, message)) {
    return;
  }
  if (fresh) {
    event(run.about.id, island, "info", "checkpoint_written",
          "island " + islands.name_of(island) + " has a checkpoint of round " + std::to_string(message.round.value),
          {Field{"round", static_cast<std::int64_t>(message.round.value)}, Field{"digest", to_hex(message.digest)},
           Field{"file", to_hex(message.file)}, Field{"bytes", static_cast<std::int64_t>(message.file_bytes)}});
  }
  source.checkpointed = message;
  if (source.offering && (!source.offered || source.offered->round < message.round)) {
    // The results after its first answer are kept; a later checkpoint only shortens the way.
    source.offered = message;
    touch(run);
  }
  islands.keeps(island, run.about.id, HeldCheckpoint{message.round, message.digest});
}

// The attempt to let it in has failed; the next one comes later each time. Whose trainer has another model than the run is asked a few
// times, since it has the run's state from an island that may have spoilt it, and then no more.
void Core::State::end_entry(Run& run, Membership& membership, const Error& error) {
  const IslandId island = membership.record.island;
  const std::string why = bounded(error.why);
  const bool misfit = error.code == Code::invalid_argument;
  membership.entry.misfits += misfit ? 1 : 0;
  if (misfit && membership.entry.misfits >= kMisfits) {
    refuse(run, membership, Error{error.code, why});
    return;
  }
  if (!misfit || membership.entry.misfits == 1) {
    event(run.about.id, island, "warning", "catch_up_failed",
          "island " + islands.name_of(island) + " could not take over the state of run " + run.about.name + ": " + why);
  }
  if (membership.entry.from == StartFrom::checkpoint) {
    islands.keeps_not(island, run.about.id, membership.entry.assigned);
  }
  vacate(run, membership, MembershipState::absent, "could not take over the state: " + why);
  const unsigned doublings = std::min(membership.entry.failures++, 8U);
  membership.entry.retry_at = now() + std::min(settings.resend * (1U << doublings), settings.rejoin_delay_max);
}

void Core::State::on_caught_up(Run& run, Membership& membership, const CaughtUp& message) {
  const IslandId island = membership.record.island;
  if (run.is_member(island) && membership.record.state == MembershipState::active) {
    if (message.error && message.epoch == run.epoch) {
      islands.not_live(island, run.about.id);
      leave_epoch(run, island, bounded(message.error->why), true);
    } else {
      membership.progress.settled = membership.progress.settled || !message.error;
      send(island, new_epoch_of(run, island));
    }
    return;
  }
  const bool newest =
      !message.error && !run.has_own_outer_state() && message.round == run.lineage.committed() && message.digest == run.lineage.digest();
  if (membership.record.state == MembershipState::absent && run.members.empty() && newest) {
    // It held the result of the round whose commit it had not heard, and nobody else is left: no round is lost.
    islands.live(island, run.about.id, HeldCheckpoint{message.round, message.digest});
    membership.entry.memory_offered = true;
    touch(run);
    return;
  }
  if (membership.record.state != MembershipState::joining || message.epoch < membership.entry.assigned_epoch) {
    return;
  }
  if (message.error) {
    const bool of_earlier = message.entry != 0 && membership.entry.number != 0 && message.entry != membership.entry.number;
    if (!of_earlier) {  // those are repeated until the invitation is there
      end_entry(run, membership, *message.error);
    }
    return;
  }
  if (membership.entry.from == StartFrom::checkpoint && !run.has_own_outer_state() && message.round != membership.entry.assigned) {
    return;  // of an earlier order, or of what it had in memory: neither is the checkpoint that it was asked for since
  }
  if (run.gossips()) {
    if (!run.at_end() && membership.entry.catch_up && membership.entry.catch_up->committed == message.round &&
        membership.entry.catch_up->digest == message.digest) {
      membership.progress.merged = message.round;
      activate(run, membership);
    }
    return;
  }
  if (!run.lineage.confirms(message.round, message.digest)) {
    if (forget_order(membership, message, now())) {
      touch(run);
    }
    return;  // else of an older lineage
  }
  if (membership.entry.caught_up && *membership.entry.caught_up >= message.round) {
    return;
  }
  membership.entry.caught_up = message.round;
  membership.entry.resend.next = now();
  touch(run);
  if (run.members.empty() && membership.entry.from == StartFrom::checkpoint) {
    run.in_rounds().loaded_since = run.in_rounds().loaded_since.value_or(now());  // all that load begin together
    return;
  }
  membership.entry.from = StartFrom::peers;
}

}  // namespace atl::coordinator
