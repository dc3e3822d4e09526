// Who comes, or comes back, and with what state: from memory, from peers, or from the newest checkpoint when nobody has it in memory.
#include <algorithm>

#include "coordinator/core/core_state.hpp"
#include "transport/base/planted.hpp"

namespace atl::coordinator {
namespace {

constexpr std::size_t kSources = 3;                           // that a joiner copies from
constexpr Duration kOfferPatience = std::chrono::seconds(2);  // for the other sources, once one has a checkpoint

}  // namespace

void Core::State::advance_joins(Run& run) {
  if (run.record.pause_after && run.members.size() >= run.spec.islands.min) {
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
  if (run.record.restored) {
    return;  // of a backup: first it is found out how far the run is
  }
  const bool exchanging = std::any_of(run.rounds.begin(), run.rounds.end(), [](const auto& flight) { return flight.second.exchanging; });
  for (auto& [id, membership] : run.memberships) {
    if (!membership.memory_offered || membership.record.state != MembershipState::absent || !islands.stays(id) ||
        now() < membership.retry_at) {
      continue;
    }
    if (run.of_group() && !is_lent(run, id)) {
      continue;  // it may have another task by now
    }
    const HeldRun& held = islands.held(id, run.record.id);
    if (held.committed != run.lineage.committed() || held.digest != run.lineage.digest() || run.members.size() >= run.spec.islands.max) {
      membership.memory_offered = false;
    } else if (!exchanging) {
      membership.from = StartFrom::memory;
      give_part(run, membership.record);
      claim_part(run, membership);
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
      const Membership& old = membership->second;
      if (old.record.state != MembershipState::absent || old.memory_offered) {
        continue;
      }
      if (now() < old.retry_at) {
        wake_at(old.retry_at);
        continue;
      }
    }
    add_membership(run, id, MembershipState::joining, StartFrom::peers);
    send_invite(run, run.memberships.at(id));
    event(run.record.id, id, "info", "island_joining",
          "island " + island.record.name + " copies the state of run " + run.record.name + " from its peers");
    ++taking_part;
  }
}

// Sources keep what joiners need, as long as there are joiners. An offer is a lease: it is renewed.
void Core::State::offer(Run& run) {
  const bool needed = std::any_of(run.memberships.begin(), run.memberships.end(),
                                  [](const auto& membership) { return membership.second.record.state == MembershipState::joining; });
  std::size_t sources = 0;
  for (const IslandId& id : run.members) {
    Membership& membership = run.memberships.at(id);
    if (needed && islands.alive(id) && sources < kSources && membership.record.state == MembershipState::active) {
      ++sources;
      if (!membership.offering) {
        membership.offering = true;
        membership.offered.reset();
        restart(membership.offer_resend);
        run.offers_since = now();
        send(id, Offer{run.record.id, true});
      } else if (due(membership.offer_resend)) {
        send(id, Offer{run.record.id, true});
      }
      wake_at(membership.offer_resend.next);
    } else if (membership.offering) {
      membership.offering = false;
      membership.offered.reset();
      send(id, Offer{run.record.id, false});
    }
  }
}

// Sends a joiner what it should come to next, if that has changed, or again if it has not answered.
void Core::State::order_catch_up(Run& run, Membership& membership) {
  const IslandId island = membership.record.island;
  const bool stale = membership.catch_up && membership.caught_up && *membership.caught_up < run.lineage.committed() &&
                     membership.catch_up->committed < run.lineage.committed();
  bool again = due(membership.resend);
  wake_at(membership.resend.next);
  if (again && (!membership.caught_up || *membership.caught_up < run.lineage.committed())) {
    send_invite(run, membership);
  }
  if (membership.from == StartFrom::checkpoint && !membership.caught_up) {
    return;
  }
  if (!membership.catch_up || stale) {
    std::optional<Checkpointed> best;
    bool all_told = true;
    for (const IslandId& id : run.members) {
      const Membership& source = run.memberships.at(id);
      all_told = all_told && (!source.offering || source.offered);
      if (source.offering && source.offered && (!best || source.offered->round > best->round)) {
        best = source.offered;
      }
    }
    if (!best || (!all_told && run.offers_since && now() < *run.offers_since + kOfferPatience)) {
      if (best) {
        wake_at(*run.offers_since + kOfferPatience);
      }
      return;
    }
    CatchUp order{run.record.id,           run.record.epoch,     best->round, best->file, best->file_bytes,
                  run.lineage.committed(), run.lineage.digest(), {},          0,          0};
    for (const IslandId& id : run.members) {
      const Membership& source = run.memberships.at(id);
      if (source.offering && source.offered && source.offered->round == best->round && source.offered->file == best->file) {
        order.sources.push_back(islands.member_of(id));
      }
    }
    membership.catch_up = std::move(order);
    restart(membership.resend);
    again = true;
  }
  if (again && (!membership.caught_up || *membership.caught_up < membership.catch_up->committed)) {
    membership.catch_up->epoch = run.record.epoch;
    membership.catch_up->part = membership.record.part;
    membership.catch_up->position = run.data.position(membership.record.part, run.lineage.parts_after(membership.catch_up->committed));
    for (const Member& source : membership.catch_up->sources) {
      send(source.island, Serve{run.record.id, islands.member_of(island).public_key, membership.catch_up->checkpoint_round, true});
    }
    send(island, *membership.catch_up);
  }
}

Duration Core::State::hold_limit(const Run& run) const { return run.lockstep() ? run.spec.islands.deadline : settings.join_hold; }

AdmitInput Core::State::admission_input(const Run& run) const {
  AdmitInput input;
  input.now = now();
  input.committed = run.lineage.committed();
  for (const auto& [id, membership] : run.memberships) {
    if (membership.record.state == MembershipState::joining && islands.alive(id)) {
      input.joiners.push_back(Joiner{id, islands.name_of(id), membership.catch_up.has_value(), membership.caught_up,
                                     membership.boundaries_missed, membership.holds});
    }
  }
  input.lockstep = run.lockstep();
  input.enough = run.members.size() >= run.spec.islands.min;
  for (const auto& [number, flight] : run.rounds) {
    input.exchanging = input.exchanging || flight.exchanging;
    input.anybody_ready = input.anybody_ready || !flight.contributions.empty();
  }
  input.last_commit = run.last_commit;
  input.last_round = run.last_round;
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
  input.hold_since = run.hold_since;
  const AdmitDecision decision = decide_admission(input);
  if (decision.hold && !run.hold_since) {
    run.hold_since = now();
    for (const IslandId& id : decision.held_for) {
      ++run.memberships.at(id).holds;
    }
  }
  return decision.hold;
}

void Core::State::on_checkpointed(Run& run, Membership& membership, const Checkpointed& message) {
  const IslandId island = membership.record.island;
  membership.checkpoint_settled = std::max(membership.checkpoint_settled.value_or(message.round), message.round);
  changed = changed || run.record.pause_after.has_value();
  if (message.error) {
    event(run.record.id, island, "warning", "checkpoint_failed",
          "island " + islands.name_of(island) + " could not write its checkpoint of round " + std::to_string(message.round.value) + ": " +
              bounded(message.error->why) + "; its older checkpoints are still good");
    return;
  }
  const bool fresh =
      !membership.checkpointed || membership.checkpointed->round < message.round || membership.checkpointed->digest != message.digest;
  const auto tell = [&] {
    event(run.record.id, island, "info", "checkpoint_written",
          "island " + islands.name_of(island) + " has a checkpoint of round " + std::to_string(message.round.value),
          {Field{"round", static_cast<std::int64_t>(message.round.value)}, Field{"digest", to_hex(message.digest)},
           Field{"file", to_hex(message.file)}, Field{"bytes", static_cast<std::int64_t>(message.file_bytes)}});
  };
  if (membership.checkpointed == message && membership.record.state == MembershipState::active && !run.record.pause_after &&
      run.is_member(island)) {
    // Said again: it may not have heard that the run is not paused any more.
    send(island, new_epoch_of(run));
  }
  if (run.private_states()) {
    membership.settled = true;
    note_own_round(run, message.round);
    if (fresh) {
      tell();
    }
    membership.checkpointed = message;
    if (membership.offering && (!membership.offered || membership.offered->round < message.round)) {
      membership.offered = message;
      changed = true;
    }
  } else {
    if (!run.lineage.confirms(message.round, message.digest)) {
      return;  // of rounds that were given up
    }
    if (!run.lineage.agrees_on_file(message.round, message.file) && !run.lockstep() && run.is_member(island)) {
      event(run.record.id, island, "error", "state_differs",
            "island " + islands.name_of(island) + "'s outer state of round " + std::to_string(message.round.value) +
                " differs from its peers' although all its rounds agree: its memory or disk is faulty");
      leave_epoch(run, island, "its outer state of round " + std::to_string(message.round.value) + " differs from its peers'", true);
      release(island, run);
      offend(run, island, "its outer state of round " + std::to_string(message.round.value) + " differs from its peers'");
      return;
    }
    if (fresh) {
      tell();
    }
    run.lineage.has_checkpoint(message.round);
    membership.checkpointed = message;
    if (membership.offering && (!membership.offered || membership.offered->round < message.round)) {
      // The results after its first answer are kept; a later checkpoint only shortens the way.
      membership.offered = message;
      changed = true;
    }
  }
  islands.keeps(island, run.record.id, HeldCheckpoint{message.round, message.digest});
}

void Core::State::on_caught_up(Run& run, Membership& membership, const CaughtUp& message) {
  const IslandId island = membership.record.island;
  if (run.is_member(island) && membership.record.state == MembershipState::active) {
    if (message.error && message.epoch == run.record.epoch) {
      islands.not_live(island, run.record.id);
      leave_epoch(run, island, bounded(message.error->why), true);
    } else {
      membership.settled = membership.settled || !message.error;
      send(island, new_epoch_of(run));
    }
    return;
  }
  const bool newest =
      !message.error && !run.private_states() && message.round == run.lineage.committed() && message.digest == run.lineage.digest();
  if (membership.record.state == MembershipState::absent && run.members.empty() && newest) {
    // It held the result of the round whose commit it had not heard, and nobody else is left: no round is lost.
    islands.live(island, run.record.id, HeldCheckpoint{message.round, message.digest});
    membership.memory_offered = true;
    changed = true;
    return;
  }
  if (membership.record.state != MembershipState::joining || message.epoch < membership.assigned_epoch) {
    return;
  }
  if (message.error) {
    event(run.record.id, island, "warning", "catch_up_failed",
          "island " + islands.name_of(island) + " could not take over the state of run " + run.record.name + ": " +
              bounded(message.error->why));
    if (membership.from == StartFrom::checkpoint) {
      islands.keeps_not(island, run.record.id, membership.assigned);
    }
    vacate(run, membership, MembershipState::absent, "could not take over the state: " + bounded(message.error->why));
    const unsigned doublings = std::min(membership.failures++, 8U);
    membership.retry_at = now() + std::min(settings.resend * (1U << doublings), settings.rejoin_delay_max);
    return;
  }
  if (run.pairs()) {
    if (!run.at_end() && membership.catch_up && membership.catch_up->committed == message.round &&
        membership.catch_up->digest == message.digest) {
      membership.merged = message.round;
      activate(run, membership);
    }
    return;
  }
  if (!run.lineage.confirms(message.round, message.digest)) {
    return;  // an older lineage, or a round that is long past; it gets another order
  }
  if (membership.caught_up && *membership.caught_up >= message.round) {
    return;
  }
  membership.caught_up = message.round;
  membership.resend.next = now();
  changed = true;
  if (run.members.empty() && membership.from == StartFrom::checkpoint) {
    run.loaded_since = run.loaded_since.value_or(now());  // all that load begin together
    return;
  }
  membership.from = StartFrom::peers;
}

// Lets in whoever has loaded its checkpoint, once all have that try, or the others have had their time. They begin together, so that the
// first round after a pause has the members that it would have had.
bool Core::State::finish_restore(Run& run) {
  std::vector<IslandId> loaded;
  bool loading = false;
  Round newest;
  for (const auto& [id, membership] : run.memberships) {
    if (membership.record.state == MembershipState::joining && membership.from == StartFrom::checkpoint) {
      loading = loading || !membership.caught_up;
      if (membership.caught_up) {
        loaded.push_back(id);
        newest = std::max(newest, *membership.caught_up);
      }
    }
  }
  if (loaded.empty()) {
    run.loaded_since.reset();
    return false;
  }
  const TimePoint until = run.loaded_since.value_or(now()) + settings.restore_grace;
  if (loading && now() < until) {
    wake_at(until);
    return false;
  }
  run.loaded_since.reset();
  if (newest < run.lineage.committed()) {
    roll_back(run, newest);
  }
  for (const IslandId& id : loaded) {
    Membership& membership = run.memberships.at(id);
    if (membership.caught_up == newest) {
      activate(run, membership);
    }
    membership.from = StartFrom::peers;
  }
  return true;
}

// A new lineage begins with the round it starts from, so that the ledger can say what that was.
void Core::State::record_lineage(const Run& run) {
  RoundRecord base;
  base.run = run.record.id;
  base.lineage = run.lineage.number();
  base.round = run.lineage.committed();
  base.epoch = run.record.epoch;
  base.committed = true;
  base.checkpoint = true;
  base.digest = run.lineage.digest();
  base.parts = run.data.snapshot();
  base.planned = now();
  base.committed_at = now();
  record(std::move(base));
}

void Core::State::roll_back(Run& run, Round round) {
  const Round lost = run.lineage.committed();
  const std::string range = round.next() == lost ? "round " + std::to_string(lost.value)
                                                 : "rounds " + std::to_string(round.value + 1) + " to " + std::to_string(lost.value);
  run.data.return_to(run.lineage.roll_back(round), out);
  run.rounds.clear();
  run.hold_since.reset();
  for (auto& [id, membership] : run.memberships) {
    membership.merged = std::min(membership.merged, round);
  }
  record_lineage(run);
  event(run.record.id, {}, "warning", "rolled_back",
        range + " of run " + run.record.name + " lost with every copy in memory; the run goes on from the newest checkpoint, of round " +
            std::to_string(round.value),
        {Field{"from", static_cast<std::int64_t>(lost.value)}, Field{"to", static_cast<std::int64_t>(round.value)},
         Field{"digest", to_hex(run.lineage.digest())}});
}

// Nothing is left of the run's state: it begins anew, from the seed.
void Core::State::start_over(Run& run, const std::string& why) {
  event(run.record.id, {}, "warning", "rolled_back",
        "all rounds up to round " + std::to_string(run.lineage.committed().value) + " of run " + run.record.name + " are lost: " + why +
            "; it starts over",
        {Field{"from", static_cast<std::int64_t>(run.lineage.committed().value)}, Field{"to", std::int64_t{0}}});
  run.lineage.start_over();
  run.data.return_to({}, out);
  run.rounds.clear();
  for (auto& [id, membership] : run.memberships) {
    membership.merged = Round(0);
  }
  set_state(run, RunState::queued, "starts over: " + why);
}

// The ledger came from a backup: rounds that were committed after it are taken over from the islands. True: wait, or look again.
bool Core::State::adopt_newer(Run& run) {
  AdoptionInput input;
  input.now = now();
  input.committed = run.lineage.committed();
  input.min = run.spec.islands.min;
  input.since = run.nobody_since;
  input.grace = settings.restore_grace;
  for (const auto& [id, membership] : run.memberships) {
    AdoptionCandidate candidate{id, islands.name_of(id), islands.alive(id), Epoch(0), {}};
    if (candidate.connected) {
      const HeldRun& held = islands.held(id, run.record.id);
      candidate.epoch = held.epoch;
      if (held.live) {
        candidate.known.push_back(KnownRound{held.committed, held.digest});
      }
      for (const HeldCheckpoint& checkpoint : held.checkpoints) {
        candidate.known.push_back(KnownRound{checkpoint.round, checkpoint.digest});
      }
    }
    input.candidates.push_back(std::move(candidate));
  }
  const AdoptionDecision decision = decide_adoption(input);
  if (decision.kind == AdoptionDecision::Kind::wait) {
    run.wait = decision.wait;
    if (decision.wait.until) {
      wake_at(*decision.wait.until);
    }
    return true;
  }
  const Round before = run.lineage.committed();
  // Islands know epochs that were made after the backup, and drop what is of older ones.
  for (const auto& [id, membership] : run.memberships) {
    if (islands.alive(id)) {
      run.record.epoch = std::max(run.record.epoch, islands.held(id, run.record.id).epoch);
    }
  }
  run.record.restored = false;
  KnownRound onward{run.lineage.committed(), run.lineage.digest()};
  if (decision.kind == AdoptionDecision::Kind::adopt) {
    onward = decision.round;
    for (const auto& [id, membership] : run.memberships) {
      if (!islands.alive(id)) {
        continue;
      }
      const HeldRun& held = islands.held(id, run.record.id);
      const bool live = held.live && held.committed == decision.round.round && held.digest == decision.round.digest;
      const bool stored =
          !held.live && !held.checkpoints.empty() && held.checkpoints.back() == HeldCheckpoint{decision.round.round, decision.round.digest};
      if (live || stored) {
        run.data.adopt(held, out);
      }
    }
  }
  run.rounds.clear();
  run.lineage.adopt(onward, run.data.snapshot());
  record_lineage(run);
  event(run.record.id, {}, "warning", "ledger_restored",
        "run " + run.record.name + " goes on from a backup of the ledger at round " + std::to_string(before.value) +
            (run.lineage.committed() > before
                 ? "; the rounds up to round " + std::to_string(run.lineage.committed().value) + " were taken over from its islands"
                 : ""),
        {Field{"from", static_cast<std::int64_t>(before.value)}, Field{"to", static_cast<std::int64_t>(run.lineage.committed().value)},
         Field{"digest", to_hex(run.lineage.digest())}});
  for (auto& [id, membership] : run.memberships) {
    membership.memory_offered = islands.alive(id) && islands.held(id, run.record.id).live;
    membership.retry_at = now();
  }
  record(run.to_record());
  changed = true;
  return true;
}

void Core::State::advance_restore(Run& run) {
  if (run.record.restored && adopt_newer(run)) {
    return;
  }
  if (finish_restore(run)) {
    return;
  }
  RestoreInput input;
  std::vector<std::string> loading;
  for (auto& [id, membership] : run.memberships) {
    if (membership.record.state == MembershipState::joining && membership.from == StartFrom::checkpoint) {
      loading.push_back(islands.name_of(id));
      if (membership.caught_up && !ATOLL_PLANTED(wakes_for_ever)) {
        continue;  // it waits for the others: nothing is due
      }
      if (!membership.caught_up && due(membership.resend)) {
        send_invite(run, membership);
      }
      wake_at(membership.resend.next);
    } else if (membership.record.state == MembershipState::joining) {
      vacate(run, membership, MembershipState::absent, "the islands that it copied from are gone");
      membership.retry_at = now();
    }
  }
  if (!loading.empty()) {
    run.wait = Wait{list_of(loading) + (loading.size() == 1 ? " loads its checkpoint" : " load their checkpoints"),
                    run.loaded_since ? std::optional<TimePoint>(*run.loaded_since + settings.restore_grace) : std::nullopt};
    return;
  }
  input.now = now();
  input.committed = run.lineage.committed();
  input.min = run.spec.islands.min;
  input.max = run.spec.islands.max;
  input.since = run.nobody_since;
  input.grace = settings.restore_grace;
  for (auto& [id, membership] : run.memberships) {
    if (membership.record.state != MembershipState::absent || (run.of_group() && islands.alive(id) && !is_lent(run, id))) {
      continue;  // here, and busy with something else
    }
    RestoreCandidate candidate{id, islands.name_of(id), islands.stays(id), std::nullopt, {}};
    if (!membership.record.absences.empty()) {
      candidate.away_since = membership.record.absences.back().since;
    }
    if (candidate.connected) {
      for (const HeldCheckpoint& held : islands.held(id, run.record.id).checkpoints) {
        if (run.lineage.confirms(held.round, held.digest) && (!candidate.checkpoint || held.round > *candidate.checkpoint)) {
          candidate.checkpoint = held.round;
        }
      }
    }
    input.candidates.push_back(std::move(candidate));
  }
  for (const auto& [id, island] : islands.all()) {
    input.others +=
        run.memberships.count(id) == 0 && island.greeted && admits_name(run, island) && obstacle_of(run, island).empty() ? 1U : 0U;
  }
  const RestoreDecision decision = decide_restore(input);
  if (decision.start_over) {
    start_over(run, decision.wait.text);
    return;
  }
  if (!decision.restore) {
    run.wait = decision.wait;
    return;
  }
  for (const IslandId& id : decision.islands) {
    add_membership(run, id, MembershipState::joining, StartFrom::checkpoint);
    Membership& membership = run.memberships.at(id);
    membership.assigned = decision.round;
    send_invite(run, membership);
    event(run.record.id, id, "info", "island_restoring",
          "island " + islands.name_of(id) + " restores run " + run.record.name + " from its checkpoint of round " +
              std::to_string(decision.round.value));
  }
}

}  // namespace atl::coordinator
