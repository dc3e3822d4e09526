// Who takes part in a run: memberships, epochs, leaving.
#include <algorithm>

#include "coordinator/core/core_state.hpp"
#include "transport/base/planted.hpp"

namespace atl::coordinator {

bool Core::State::admits_name(const Run& run, const Island& island) const {
  if (run.of_group()) {
    return rules.tasks().is_lent(run, island.record.id);
  }
  const std::vector<std::string>& names = run.spec.islands.names;
  return names.empty() || std::find(names.begin(), names.end(), island.record.name) != names.end();
}

bool Core::State::has_set(const Run& run, const Island& island) {
  const std::vector<std::string>& sets = island.record.data_sets;
  return run.spec.data.set.empty() || std::find(sets.begin(), sets.end(), run.spec.data.set) != sets.end();
}

std::string Core::State::obstacle_of(const Run& run, const Island& island) const {
  if (island.leaving()) {
    return "is leaving";
  }
  const std::string& trainer = run.spec.trainer.name;
  if (!trainer.empty() && std::find(island.trainers.begin(), island.trainers.end(), trainer) == island.trainers.end()) {
    return "has no trainer '" + trainer + "': start its agent with --trainer " + trainer + "='COMMAND'";
  }
  if (run.spec.data.spread == 0 && run.spec.work.images.empty() && !has_set(run, island)) {
    return "has no data set '" + run.spec.data.set + "'";
  }
  if (const auto own = run.memberships.find(island.record.id);
      own != run.memberships.end() && own->second.record.state == MembershipState::refused) {
    return "cannot take part: " + own->second.record.cause;
  }
  if (const IslandId& id = island.record.id; island.greeted && run.rule->claims_alone(run, id)) {
    return "says that it has round " + std::to_string(newest_held(run, islands.held(id, run.about.id)).value) +
           " of the run, which has not begun: that is believed once " + std::to_string(run.spec.islands.min) + " islands say so";
  }
  const std::string busy = serves_another(run, island.record.id);
  return busy.empty() ? "" : "serves run " + busy;
}

std::string Core::State::serves_another(const Run& run, const IslandId& island) const {
  const bool ours = run.memberships.contains(island);
  for (const auto& [id, other] : runs) {
    // A run of phases and its groups: in which of these it has a place is told by its task.
    const bool same_work = other.whole() == run.whole();
    const auto membership = other.memberships.find(island);
    if (id == run.about.id || other.life.idle() || same_work || membership == other.memberships.end() || ATOLL_PLANTED(islands_taken)) {
      continue;
    }
    const MembershipState state = membership->second.record.state;
    if (state != MembershipState::refused && !(state == MembershipState::absent && ours)) {
      return other.about.name;
    }
  }
  return "";
}

bool Core::State::may_come_back(const Run& run, const IslandId& island) const {
  return islands.stays(island) && serves_another(run, island).empty();
}

void Core::State::start_run(Run& run, const std::vector<IslandId>& chosen) {
  run.life.invite(now());
  run.last_commit = now();
  run.members.clear();
  std::vector<std::string> names;
  for (const IslandId& id : chosen) {
    heed_epoch(run, id);
    run.rule->enlist(run, id);
    run.members.push_back(id);
    names.push_back(islands.name_of(id));
  }
  run.rule->begin(run);
  set_state(run, run.lineage.initialised() ? RunState::running : RunState::starting, "starting on " + list_of(names));
  if (std::ranges::any_of(chosen, [&](const IslandId& id) { return islands.held(id, run.about.id).epoch > Epoch(0); })) {
    run.data.deal_anew();  // it had begun by a newer ledger, and what was dealt then is under way
  }
  new_epoch(run, "started with " + list_of(names));
  for (const IslandId& id : chosen) {
    run.rule->invite(run, run.memberships.at(id));
  }
  event(run.about.id, {}, "info", "run_started", "run " + run.about.name + " starts on " + list_of(names));
}

// Epochs go on after all that anybody knows: an island drops what is of older ones. No run makes so many epochs between a copy of its
// ledger and the ledger: an island that claims more is not heeded, or epochs would come to their end.
void Core::State::heed_epoch(Run& run, const IslandId& island) {
  constexpr std::uint64_t kEpochsAhead = std::uint64_t{1} << 32U;
  const Epoch claimed = islands.held(island, run.about.id).epoch;
  if (claimed > run.epoch && claimed.value - run.epoch.value <= kEpochsAhead) {
    run.epoch = claimed;
  }
}

// How far its part of the data is, by an island that holds the run's state.
void Core::State::adopt_position(Run& run, const HeldRun& held) {
  if (held.position <= run.data.position(held.part) + kSequencesAhead) {
    run.data.adopt(held, out);
  }
}

void Core::State::add_membership(Run& run, const IslandId& island, MembershipState state, StartFrom from) {
  MembershipRecord value;
  std::optional<std::uint32_t> had;
  if (const auto old = run.memberships.find(island); old != run.memberships.end()) {
    value = old->second.record;
    had = value.part;
  } else if (const HeldRun& held = islands.held(island, run.about.id); run.rule->remembers(run, held)) {
    adopt_position(run, held);  // it was a member by a newer ledger, and knows how far its part of the data is
    had = held.part;
  }
  value.run = run.about.id;
  value.island = island;
  value.part = run.rule->part_for(run, island, had);
  value.state = state;
  value.cause.clear();
  Membership& membership = run.memberships[island];
  membership.entry.begin(from, run.lineage.committed(), out);
  Source source;
  source.checkpointed = membership.source.checkpointed;
  source.checkpoint_settled = membership.source.checkpoint_settled;
  Progress progress;
  progress.merged = membership.progress.merged;
  progress.waits = membership.progress.waits;
  progress.share = membership.progress.share;
  membership = Membership{std::move(value), std::move(membership.entry), std::move(source), std::move(progress), std::nullopt};
  islands.expect_reports(island);
  lend(run, island);
  save(run, membership);
  touch(run);
}

// A member of a group works for it alone.
void Core::State::lend(const Run& run, const IslandId& island) {
  if (run.of_group()) {
    islands.lend(island, run.about.id);
  }
}

// An island of a group may have another task by now.
bool Core::State::is_free_for(const Run& run, const IslandId& island) const {
  return !run.of_group() || rules.tasks().is_lent(run, island);
}

void Core::State::save(const Run& run, const Membership& membership) {
  MembershipRecord value = membership.record;
  value.offences = run.guards.offences(value.island);
  record(std::move(value));
}

// The newest round that it has, in memory or on its disk, and that may be of the run's history.
Round Core::State::newest_held(const Run& run, const HeldRun& held) {
  Round newest = held.live && !run.lineage.superseded(held.generation) ? held.committed : Round(0);
  for (const HeldCheckpoint& checkpoint : held.checkpoints) {
    newest = run.lineage.lost_before(checkpoint) ? newest : std::max(newest, checkpoint.round);
  }
  return newest;
}

// It has a round that the ledger does not know, and knew no older epoch.
bool Core::State::is_ahead(const Run& run, const HeldRun* held) {
  return held != nullptr && run.lineage.can_be_news(*held) && newest_held(run, *held) > run.lineage.committed();
}

// It comes late to a run that goes on from a backup of the ledger: epochs go on after all that anybody knows.
void Core::State::follow_epoch(Run& run, const IslandId& island, const HeldRun* held) {
  if (held == nullptr || held->epoch <= run.epoch) {
    return;
  }
  const Epoch before = run.epoch;
  heed_epoch(run, island);
  if (run.epoch > before) {
    new_epoch(run, islands.name_of(island) + " knows a newer epoch than the ledger");
  }
}

void Core::State::follow_position(Run& run, const Membership& membership, const HeldRun* held) {
  if (held != nullptr &&
      (run.lineage.verified(membership.record.island, *held) || (membership.entry.unheard() && run.lineage.remembers(*held)))) {
    adopt_position(run, *held);
  }
}

void Core::State::greet_member(Run& run, Membership& membership, bool new_boot, const HeldRun* held) {
  const IslandId island = membership.record.island;
  run.nobody_since = now();
  touch(run);
  run.rule->compare_held(run, membership, held);
  switch (membership.record.state) {
    case MembershipState::starting:
      if (run.rule->began_before(run, island)) {
        break;  // it is not told to begin
      }
      if (new_boot) {
        membership.entry.forget_initial();
      }
      membership.entry.repeat_anew(out);
      run.rule->invite(run, membership);
      break;
    case MembershipState::active:
      run.rule->greet_active(run, membership, new_boot, held);
      break;
    case MembershipState::joining:
      if (new_boot) {
        vacate(run, membership, MembershipState::absent, "its agent was restarted");
      } else {
        membership.entry.repeat_at(now());
      }
      break;
    case MembershipState::absent:
      break;
    case MembershipState::refused:
      membership.entry.fits();
      if (new_boot && !run.guards.quarantined(island)) {
        // Its owner may have allowed the data meanwhile, or repaired what failed.
        vacate(run, membership, MembershipState::absent, "its agent was restarted");
      }
      break;
    case MembershipState::ended:
      break;
  }
  if (membership.record.state == MembershipState::absent) {
    membership.entry.offer_memory(held != nullptr && held->live);
    membership.entry.retry(membership.entry.has_failed() ? membership.entry.retry_at() : now());
  }
}

void Core::State::vacate(Run& run, Membership& membership, MembershipState state, const std::string& cause) {
  const bool was_active = membership.record.state == MembershipState::active || membership.record.state == MembershipState::starting;
  membership.record.state = state;
  membership.record.cause = cause;
  if (was_active) {
    std::vector<Absence>& absences = membership.record.absences;
    absences.push_back(Absence{run.rule->present_round(run), std::nullopt, cause, now(), std::nullopt});
    if (absences.size() > kMaxAbsences) {
      absences.erase(absences.begin());
    }
  }
  membership.entry.vacated();
  membership.source.offering = false;
  membership.source.offered.reset();
  run.rule->on_vacated(run, membership.record.island);
  islands.take_back(membership.record.island, run.about.id);
  save(run, membership);
  touch(run);
}

void Core::State::new_epoch(Run& run, const std::string& why) {
  run.epoch = run.epoch.next();
  run.avoid = run.rule->paths_to_avoid(run);
  record(EpochRecord{run.about.id, run.epoch, now(), run.lineage.committed(), run.members, why, run.avoid});
  event(run.about.id, {}, "debug", "membership", "epoch " + std::to_string(run.epoch.value) + " of run " + run.about.name + ": " + why,
        {Field{"epoch", static_cast<std::int64_t>(run.epoch.value)},
         Field{"committed", static_cast<std::int64_t>(run.lineage.committed().value)}, Field{"members", islands.names_of(run.members)}});
  record(run.to_record());
  run.rule->on_epoch(run);
  for (const IslandId& id : run.members) {
    send(id, new_epoch_of(run, id));
  }
  run.nobody_since = now();
  touch(run);
}

void Core::State::leave_epoch(Run& run, const IslandId& island, const std::string& cause, bool expelled) {
  const auto member = std::find(run.members.begin(), run.members.end(), island);
  if (member == run.members.end()) {
    return;
  }
  run.members.erase(member);
  Membership& membership = run.memberships.at(island);
  membership.record.left = run.epoch.next();
  vacate(run, membership, MembershipState::absent, cause);
  membership.entry.retry(now());
  if (expelled) {
    membership.entry.fail(now(), settings.rejoin_delay, settings.rejoin_delay_max);
  }
  event(run.about.id, island, "warning", "island_left",
        "island " + islands.name_of(island) + " left run " + run.about.name + " after round " +
            std::to_string(run.lineage.committed().value) + ": " + cause,
        {Field{"round", static_cast<std::int64_t>(run.lineage.committed().value)}});
  new_epoch(run, islands.name_of(island) + " left: " + cause);
  send(island, new_epoch_of(run, island));
  run.rule->on_left(run, island, islands.name_of(island) + " left: " + cause);
}

void Core::State::membership_lost(Run& run, Membership& membership, const std::string& cause) {
  run.nobody_since = now();
  switch (membership.record.state) {
    case MembershipState::active:
    case MembershipState::starting:
      leave_epoch(run, membership.record.island, cause, false);
      break;
    case MembershipState::joining:
      vacate(run, membership, MembershipState::absent, cause);
      break;
    case MembershipState::absent:
      membership.entry.offer_memory(false);
      break;
    case MembershipState::refused:
    case MembershipState::ended:
      break;
  }
}

void Core::State::activate(Run& run, Membership& membership) { activate(run, std::vector<IslandId>{membership.record.island}); }

// All of them in one epoch.
void Core::State::activate(Run& run, const std::vector<IslandId>& ids) {
  for (const IslandId& id : ids) {
    take_in(run, run.memberships.at(id));
  }
  new_epoch(run, list_of(islands.names_of(ids)) + " joined");
  for (const IslandId& id : ids) {
    Membership& membership = run.memberships.at(id);
    if (membership.entry.from() == StartFrom::memory) {
      run.rule->invite(run, membership);
    }
    event(run.about.id, id, "info", "island_joined",
          "island " + islands.name_of(id) + " takes part in run " + run.about.name + " from round " +
              std::to_string(run.lineage.committed().value + 1),
          {Field{"round", static_cast<std::int64_t>(run.lineage.committed().value + 1)}});
  }
}

void Core::State::take_in(Run& run, Membership& membership) {
  const IslandId island = membership.record.island;
  membership.record.state = MembershipState::active;
  islands.expect_reports(island);
  lend(run, island);
  membership.record.cause.clear();
  if (!membership.record.absences.empty() && !membership.record.absences.back().to) {
    membership.record.absences.back().to = std::max(run.rule->present_round(run), membership.record.absences.back().from);
    membership.record.absences.back().until = now();
  }
  membership.entry.let_in();
  run.rule->on_admitted(run);
  membership.leaves_after.reset();
  membership.progress.contributed = Round();
  membership.progress.trained = false;
  membership.progress.let_in = now();
  membership.progress.trainer_lost.reset();
  membership.progress.unmerged.clear();
  save(run, membership);
  // In order of their parts, whoever came first.
  const auto place = std::find_if(run.members.begin(), run.members.end(),
                                  [&](const IslandId& other) { return run.memberships.at(other).record.part > membership.record.part; });
  run.members.insert(place, island);
  if (run.members.size() == 1) {
    run.last_commit = now();
  }
}

// Among the islands that have completed the run, in the order of their parts, from 1; 0: it has not.
std::uint32_t Core::State::place_at_end(const Run& run, const IslandId& island) {
  const auto own = run.memberships.find(island);
  if (own == run.memberships.end() || own->second.record.state != MembershipState::ended) {
    return 0;
  }
  const auto rank = [](const auto& membership) { return std::pair(membership.second.record.part, membership.first); };
  return 1 + static_cast<std::uint32_t>(std::ranges::count_if(run.memberships, [&](const auto& other) {
           return other.second.record.state == MembershipState::ended && rank(other) < rank(*own);
         }));
}

// Tells an island that it has no business in a run.
void Core::State::release(const IslandId& island, const Run& run) {
  if (!run.life.over() && run.rule->began_before(run, island)) {
    return;  // the run goes on from what it has
  }
  const bool completed = run.life.is(RunState::completed);
  const auto membership = run.memberships.find(island);
  std::string why = run.life.reason().text;
  if (!run.life.over()) {
    why = membership == run.memberships.end() ? "this island has no place in the run" : membership->second.record.cause;
  }
  send(island, Release{run.about.id,
                       completed                       ? Code::cancelled
                       : run.life.is(RunState::failed) ? Code::internal
                                                       : Code::cancelled,
                       completed, why, run.epoch, completed ? place_at_end(run, island) : 0});
}

// Islands that want to go.
void Core::State::advance_leaving(Run& run) {
  if (std::ranges::none_of(islands.all(), [](const auto& known) { return known.second.leaving(); })) {
    return;
  }
  for (auto& [id, membership] : run.memberships) {
    const Island* island = islands.find(id);
    if (island == nullptr || !island->leaving() || !island->greeted || membership.record.state == MembershipState::refused) {
      continue;
    }
    if (!run.rule->may_leave(run, membership, *island)) {
      continue;
    }
    const std::string cause = "it was asked to leave: " + *island->departure.leaving;
    if (membership.record.state != MembershipState::ended) {
      membership_lost(run, membership, cause);
    }
    release(id, run);
    islands.gone(id);
    data_paths.name_neighbours();
  }
}

// A contribution or a state was rejected. Whoever does that again and again is kept out until an operator resumes the run.
void Core::State::offend(Run& run, const IslandId& island, const std::string& what) {
  Membership& membership = run.memberships.at(island);
  const std::optional<std::string> cause = run.guards.offend(island, what);
  save(run, membership);
  if (!cause || membership.record.state == MembershipState::refused) {
    return;
  }
  event(run.about.id, island, "error", "island_quarantined",
        "island " + islands.name_of(island) + " is " + *cause + "; `atoll resume` of the run lets it in again",
        {Field{"offences", static_cast<std::int64_t>(run.guards.offences(island))}});
  leave_epoch(run, island, *cause, false);
  vacate(run, membership, MembershipState::refused, *cause);
  release(island, run);
}

// It takes part no more, until its agent is started anew or an operator resumes the run.
void Core::State::refuse(Run& run, Membership& membership, const Error& error) {
  const IslandId island = membership.record.island;
  run.life.blame(with_context(error, "island " + islands.name_of(island)));
  event(run.about.id, island, "error", "island_failed",
        "island " + islands.name_of(island) + " cannot take part in run " + run.about.name + ": " + error.why);
  if (run.is_member(island)) {
    leave_epoch(run, island, error.why, false);
  }
  vacate(run, membership, MembershipState::refused, error.why);
  release(island, run);
}

void Core::State::on_run_ended(Run& run, Membership& membership, const RunEnded& message) {
  const IslandId island = membership.record.island;
  if (membership.record.state == MembershipState::ended) {
    return;
  }
  if (message.error) {
    const Error error{message.error->code, bounded(message.error->why)};
    refuse(run, membership, error);
    return;
  }
  const bool lost = membership.record.state == MembershipState::joining || membership.record.state == MembershipState::absent;
  if (lost && run.rule->took_part_to_end(run, message)) {
    activate(run, membership);
  }
  run.rule->account_unmerged(run, membership);
  if (membership.record.state == MembershipState::active && run.rule->is_done(run, message)) {
    membership.record.state = MembershipState::ended;
    save(run, membership);
    event(run.about.id, island, "info", "island_ended", "island " + islands.name_of(island) + " is done with run " + run.about.name);
    touch(run);
  }
}

}  // namespace atl::coordinator
