// Who takes part in a run: seats, epochs, leaving.
#include <algorithm>

#include "coordinator/core_state.hpp"

namespace atl::coordinator {

bool Core::State::admits_name(const Run& run, const Island& island) const {
  if (run.of_group()) {
    return is_lent(run, island.record.id);
  }
  const std::vector<std::string>& names = run.spec.islands.names;
  return names.empty() || std::find(names.begin(), names.end(), island.record.name) != names.end();
}

bool Core::State::has_set(const Run& run, const Island& island) {
  const std::vector<std::string>& sets = island.record.data_sets;
  return run.spec.data.set.empty() || std::find(sets.begin(), sets.end(), run.spec.data.set) != sets.end();
}

std::string Core::State::obstacle_of(const Run& run, const Island& island) const {
  if (island.leaving) {
    return "is leaving";
  }
  if (run.spec.data.spread == 0 && run.spec.work.images.empty() && !has_set(run, island)) {
    return "has no data set '" + run.spec.data.set + "'";
  }
  if (const auto own = run.seats.find(island.record.id); own != run.seats.end() && own->second.record.state == SeatState::refused) {
    return "cannot take part: " + own->second.record.cause;
  }
  for (const auto& [id, other] : runs) {
    // A run of phases and its groups: in which of these it has a place is told by its task.
    const std::string& whole = run.of_group() ? run.spec.work.run : run.record.id.text;
    const bool same_work = (other.of_group() ? other.spec.work.run : id.text) == whole;
    if (id == run.record.id || is_idle(other.record.state) || same_work) {
      continue;
    }
    const auto seat = other.seats.find(island.record.id);
    if (seat != other.seats.end() && seat->second.record.state != SeatState::refused) {
      return "serves run " + other.record.name;
    }
  }
  return "";
}

void Core::State::start_run(Run& run, const std::vector<IslandId>& chosen) {
  run.record.started = run.record.started ? run.record.started : now;
  run.last_commit = now;
  run.members.clear();
  std::vector<std::string> names;
  for (const IslandId& id : chosen) {
    take_seat(run, id, run.private_states() || run.phased() ? SeatState::active : SeatState::starting, StartFrom::scratch);
    run.members.push_back(id);
    names.push_back(name_of(id));
  }
  run.record.initialised = run.private_states() || run.phased();
  set_state(run, run.record.initialised ? RunState::running : RunState::starting, "starting on " + list_of(names));
  new_epoch(run, "started with " + list_of(names));
  for (const IslandId& id : chosen) {
    send_assign(run, run.seats.at(id));
  }
  event(run.record.id, {}, "info", "run_started", "run " + run.record.name + " starts on " + list_of(names));
}

void Core::State::take_seat(Run& run, const IslandId& island, SeatState state, StartFrom from) {
  SeatRecord value;
  if (const auto old = run.seats.find(island); old != run.seats.end()) {
    value = old->second.record;
  }
  value.run = run.record.id;
  value.island = island;
  give_part(run, value);
  value.state = state;
  value.cause.clear();
  Seat& seat = run.seats[island];
  Seat fresh;
  fresh.record = std::move(value);
  fresh.from = from;
  fresh.assigned = run.record.committed;
  fresh.failures = seat.failures;
  fresh.merged = seat.merged;
  fresh.waits = seat.waits;
  fresh.checkpointed = seat.checkpointed;
  fresh.checkpoint_settled = seat.checkpoint_settled;
  fresh.good_rounds = seat.good_rounds;
  fresh.share = seat.share;
  seat = std::move(fresh);
  restart(seat.resend);
  if (const auto known = islands.find(island); known != islands.end()) {
    known->second.unreported_since.reset();
    known->second.lent_to = run.of_group() ? run.record.id : known->second.lent_to;
  }
  save(seat);
  changed = true;
}

void Core::State::send_assign(Run& run, Seat& seat) {
  if (run.phased()) {
    return;  // its Duty says all
  }
  Assign assign;
  assign.run = run.record.id;
  assign.spec = run.record.spec;
  assign.epoch = run.record.epoch;
  assign.part = seat.record.part;
  assign.parts = parts_of(run);
  assign.from = seat.from;
  assign.committed = seat.from == StartFrom::checkpoint ? seat.assigned : run.record.committed;
  const auto chain = run.chains.find(assign.committed);
  assign.chain = assign.committed == run.record.committed ? run.record.chain : chain == run.chains.end() ? Digest{} : chain->second;
  if (run.private_states() && seat.from == StartFrom::checkpoint) {
    const auto island = islands.find(seat.record.island);
    for (const HeldCheckpoint& held : island->second.held[run.record.id].checkpoints) {
      assign.chain = held.round == seat.assigned ? held.chain : assign.chain;
    }
  }
  assign.members = members_of(run);
  assign.position = run.spec.strategy.group == "nobody" ? 0 : position_at(run, assign.part, assign.committed);
  seat.assigned_epoch = run.record.epoch;
  send(seat.record.island, std::move(assign));
}

// Its memory is that of a committed round that it can go on from: the newest, or the one before if it holds the newest's result.
bool Core::State::verified(const Run& run, const IslandId& island, const HeldRun& held) const {
  if (!held.live || !run.record.initialised) {
    return false;
  }
  if (held.committed == run.record.committed) {
    return held.chain == run.record.chain;
  }
  const auto before = run.chains.find(held.committed);
  return held.committed.next() == run.record.committed && before != run.chains.end() && before->second == held.chain && !run.recent.empty() &&
         std::find(run.recent.back().members.begin(), run.recent.back().members.end(), island) != run.recent.back().members.end();
}

void Core::State::greet_seat(Run& run, Seat& seat, bool new_boot, const HeldRun* held) {
  const IslandId island = seat.record.island;
  run.nobody_since = now;
  changed = true;
  if (held != nullptr && held->epoch > run.record.epoch && run.record.lineage > 0 && !run.record.restored) {
    // It comes late to a run that goes on from a backup of the ledger: epochs go on after all that anybody knows.
    run.record.epoch = held->epoch;
    new_epoch(run, name_of(island) + " knows a newer epoch than the ledger");
  }
  if (held != nullptr && !run.private_states() && verified(run, island, *held)) {
    adopt_data(run, *held);
  }
  switch (seat.record.state) {
    case SeatState::starting:
      if (new_boot) {
        seat.initial.reset();
      }
      restart(seat.resend);
      send_assign(run, seat);
      break;
    case SeatState::active:
      if (run.phased()) {
        if (new_boot) {
          seat_lost(run, seat, "its agent was restarted");
        }
      } else if (run.private_states()) {
        if (new_boot || held == nullptr || !held->live) {
          seat_lost(run, seat, "its agent was restarted");
        }
      } else if (held == nullptr || !verified(run, island, *held)) {
        leave_epoch(run, island, new_boot ? "its agent was restarted" : "its state is not that of round " + std::to_string(run.record.committed.value), false);
      }
      break;
    case SeatState::joining:
      if (new_boot) {
        vacate(run, seat, SeatState::absent, "its agent was restarted");
      } else {
        seat.resend.next = now;
      }
      break;
    case SeatState::absent:
      break;
    case SeatState::refused:
      if (new_boot && (run.spec.guards.quarantine_after == 0 || seat.record.offences < run.spec.guards.quarantine_after)) {
        // Its owner may have allowed the data meanwhile, or repaired what failed.
        vacate(run, seat, SeatState::absent, "its agent was restarted");
      }
      break;
    case SeatState::ended:
      break;
  }
  if (seat.record.state == SeatState::absent) {
    seat.memory_offered = held != nullptr && held->live;
    seat.retry_at = seat.failures > 0 ? seat.retry_at : now;
  }
}

void Core::State::vacate(Run& run, Seat& seat, SeatState state, const std::string& cause) {
  const bool was_active = seat.record.state == SeatState::active || seat.record.state == SeatState::starting;
  seat.record.state = state;
  seat.record.cause = cause;
  if (was_active) {
    std::vector<Absence>& absences = seat.record.absences;
    absences.push_back(Absence{run.record.initialised ? run.record.committed.next() : Round(0), std::nullopt, cause, now, std::nullopt});
    if (absences.size() > kMaxAbsences) {
      absences.erase(absences.begin());
    }
  }
  seat.initial.reset();
  seat.catch_up.reset();
  seat.caught_up.reset();
  seat.offering = false;
  seat.offered.reset();
  seat.memory_offered = false;
  run.duties.erase(seat.record.island);
  if (const auto island = islands.find(seat.record.island); island != islands.end() && island->second.lent_to == run.record.id) {
    island->second.lent_to = RunId();
  }
  save(seat);
  changed = true;
}

void Core::State::new_epoch(Run& run, const std::string& why) {
  run.record.epoch = run.record.epoch.next();
  record(MembershipRecord{run.record.id, run.record.epoch, now, run.record.committed, run.members, why});
  event(run.record.id, {}, "debug", "membership", "epoch " + std::to_string(run.record.epoch.value) + " of run " + run.record.name + ": " + why,
        {Field{"epoch", static_cast<std::int64_t>(run.record.epoch.value)}, Field{"committed", static_cast<std::int64_t>(run.record.committed.value)},
         Field{"members", names_of(run.members)}});
  record(run.record);
  const Membership membership = membership_of(run);
  for (const IslandId& id : run.members) {
    send(id, membership);
  }
  run.nobody_since = now;
  changed = true;
}

void Core::State::leave_epoch(Run& run, const IslandId& island, const std::string& cause, bool expelled) {
  const auto member = std::find(run.members.begin(), run.members.end(), island);
  if (member == run.members.end()) {
    return;
  }
  run.members.erase(member);
  Seat& seat = run.seats.at(island);
  seat.record.left = run.record.epoch.next();
  vacate(run, seat, SeatState::absent, cause);
  seat.retry_at = now;
  if (expelled) {
    const unsigned doublings = std::min(seat.failures++, 8U);
    seat.retry_at = now + std::min(settings.rejoin_delay * (1U << doublings), settings.rejoin_delay_max);
  }
  event(run.record.id, island, "warning", "island_left", "island " + name_of(island) + " left run " + run.record.name + " after round " +
        std::to_string(run.record.committed.value) + ": " + cause, {Field{"round", static_cast<std::int64_t>(run.record.committed.value)}});
  new_epoch(run, name_of(island) + " left: " + cause);
  send(island, membership_of(run));
  for (auto& [round, flight] : run.rounds) {
    flight.contributions.erase(island);
    if (flight.exchanging && std::find(flight.members.begin(), flight.members.end(), island) != flight.members.end()) {
      abort(run, round, name_of(island) + " left: " + cause);
    }
  }
}

void Core::State::seat_lost(Run& run, Seat& seat, const std::string& cause) {
  run.nobody_since = now;
  switch (seat.record.state) {
    case SeatState::active:
    case SeatState::starting:
      leave_epoch(run, seat.record.island, cause, false);
      break;
    case SeatState::joining:
      vacate(run, seat, SeatState::absent, cause);
      break;
    case SeatState::absent:
      seat.memory_offered = false;
      break;
    case SeatState::refused:
    case SeatState::ended:
      break;
  }
}

void Core::State::activate(Run& run, Seat& seat) { activate(run, std::vector<IslandId>{seat.record.island}); }

// All of them in one epoch.
void Core::State::activate(Run& run, const std::vector<IslandId>& ids) {
  for (const IslandId& id : ids) {
    take_in(run, run.seats.at(id));
  }
  new_epoch(run, list_of(names_of(ids)) + " joined");
  for (const IslandId& id : ids) {
    Seat& seat = run.seats.at(id);
    if (seat.from == StartFrom::memory) {
      send_assign(run, seat);
    }
    event(run.record.id, id, "info", "island_joined", "island " + name_of(id) + " takes part in run " + run.record.name + " from round " +
          std::to_string(run.record.committed.value + 1), {Field{"round", static_cast<std::int64_t>(run.record.committed.value + 1)}});
  }
}

void Core::State::take_in(Run& run, Seat& seat) {
  const IslandId island = seat.record.island;
  seat.record.state = SeatState::active;
  if (const auto known = islands.find(island); known != islands.end()) {
    known->second.unreported_since.reset();
    known->second.lent_to = run.of_group() ? run.record.id : known->second.lent_to;
  }
  seat.record.cause.clear();
  if (!seat.record.absences.empty() && !seat.record.absences.back().to) {
    seat.record.absences.back().to = run.record.committed.next();
    seat.record.absences.back().until = now;
  }
  seat.catch_up.reset();
  seat.caught_up.reset();
  seat.boundaries_missed = 0;
  seat.memory_offered = false;
  run.hold_since.reset();
  seat.leaves_after.reset();
  seat.last = LastContribution{};
  save(seat);
  // In order of their parts, whoever came first.
  const auto place = std::find_if(run.members.begin(), run.members.end(),
                                  [&](const IslandId& other) { return run.seats.at(other).record.part > seat.record.part; });
  run.members.insert(place, island);
  if (run.members.size() == 1) {
    run.last_commit = now;
  }
}

// Tells an island that it has no business in a run.
void Core::State::release(const IslandId& island, const Run& run) {
  const bool completed = run.record.state == RunState::completed;
  const auto seat = run.seats.find(island);
  std::string why = run.record.reason.text;
  if (!has_ended(run.record.state)) {
    why = seat == run.seats.end() ? "this island has no place in the run" : seat->second.record.cause;
  }
  send(island, Release{run.record.id, completed ? Code::cancelled : run.record.state == RunState::failed ? Code::internal : Code::cancelled, completed, why, run.record.epoch});
}

// Islands that want to go: at once, unless they have contributed to rounds that are in flight; then after the newest of those.
void Core::State::advance_leaving(Run& run) {
  for (auto& [id, seat] : run.seats) {
    const auto island = islands.find(id);
    if (island == islands.end() || !island->second.leaving || !island->second.greeted || seat.record.state == SeatState::refused) {
      continue;
    }
    if (run.phased() && !island->second.lent_to.empty()) {
      continue;  // first it leaves its group
    }
    if (!seat.leaves_after) {
      seat.leaves_after = run.record.committed;
      for (const auto& [number, flight] : run.rounds) {
        seat.leaves_after = flight.contributions.count(id) > 0 ? number : *seat.leaves_after;
      }
    }
    const bool in_rounds = !run.private_states() && !run.phased() && run.members.size() >= run.spec.islands.min;
    const bool in_hand = in_rounds && *seat.leaves_after > run.record.committed;
    const bool coming = in_rounds && island->second.contributes;
    if (seat.record.state == SeatState::active && (in_hand || coming)) {
      continue;
    }
    const std::string cause = "it was asked to leave: " + island->second.leaving_why;
    if (seat.record.state != SeatState::ended) {
      seat_lost(run, seat, cause);
    }
    release(id, run);
    island->second.greeted = false;
  }
}

// A contribution or a state was rejected. Whoever does that again and again is kept out until an operator resumes the run.
void Core::State::offend(Run& run, const IslandId& island, const std::string& what) {
  Seat& seat = run.seats.at(island);
  seat.good_rounds = 0;
  ++seat.record.offences;
  save(seat);
  const std::uint32_t limit = run.spec.guards.quarantine_after;
  if (limit == 0 || seat.record.offences < limit || seat.record.state == SeatState::refused) {
    return;
  }
  const std::string cause = "quarantined after " + std::to_string(seat.record.offences) + " rejections, the last one: " + what;
  event(run.record.id, island, "error", "island_quarantined", "island " + name_of(island) + " is " + cause + "; `atoll resume` of the run lets it in again",
        {Field{"offences", static_cast<std::int64_t>(seat.record.offences)}});
  leave_epoch(run, island, cause, false);
  vacate(run, seat, SeatState::refused, cause);
  release(island, run);
}

void Core::State::on_run_ended(Run& run, Seat& seat, const RunEnded& message) {
  const IslandId island = seat.record.island;
  if (seat.record.state == SeatState::ended) {
    return;
  }
  if (message.error) {
    const Error error{message.error->code, bounded(message.error->why)};
    if (!run.first_error) {
      run.first_error = with_context(error, "island " + name_of(island));
    }
    event(run.record.id, island, "error", "island_failed", "island " + name_of(island) + " cannot take part in run " + run.record.name + ": " + error.why);
    if (run.is_member(island)) {
      leave_epoch(run, island, error.why, false);
    }
    vacate(run, seat, SeatState::refused, error.why);
    seat.refusal = error;
    release(island, run);
    return;
  }
  const bool lost = seat.record.state == SeatState::joining || seat.record.state == SeatState::absent;
  if (lost && !run.private_states() && run.at_end() && message.chain == run.record.chain) {
    activate(run, seat);  // it took part to the end, and was lost before it was heard
  }
  if (seat.record.state == SeatState::active && ((run.private_states() && run.spec.merge_rounds == 0) || (run.at_end() && message.chain == run.record.chain))) {
    seat.record.state = SeatState::ended;
    save(seat);
    event(run.record.id, island, "info", "island_ended", "island " + name_of(island) + " is done with run " + run.record.name);
    changed = true;
  }
}

}  // namespace atl::coordinator
