// How a run begins, waits and ends, and what operators ask of it.
#include <algorithm>
#include <limits>

#include "coordinator/core/core_state.hpp"

namespace atl::coordinator {
namespace {

// The rounds in hand are given up; their attempts go on counting when they are taken up again.
void give_up_rounds(Run& run) {
  for (auto& [number, flight] : run.rounds) {
    const Attempt attempt = flight.attempt;
    flight = RoundInFlight{};
    flight.attempt = attempt;
  }
}

}  // namespace

Result<RunId> Core::submit(TimePoint now, const RunId& fresh, const RunSpec& spec, const std::string& name, const std::string& file) {
  State& state = *state_;
  state.out.advance_to(now);
  if (spec.islands.min < 1 || spec.islands.max < spec.islands.min || spec.rounds < 1) {
    return Error{Code::invalid_argument,
                 "the run file is impossible: it needs at least one island and one round, and islands.max not below islands.min"};
  }
  const auto named = [&](const std::string& wanted) {
    return std::find_if(state.runs.begin(), state.runs.end(), [&](const auto& run) { return run.second.record.name == wanted; });
  };
  std::string chosen = name.empty() ? spec.name : name;
  if (const auto same = named(chosen); same != state.runs.end()) {
    if (!name.empty()) {
      if (same->second.record.file == file) {
        return same->first;
      }
      return Error{Code::conflict, "run " + same->first.text + " is named '" + name + "' and has another run file; choose another name"};
    }
    unsigned number = 2;
    while (named(spec.name + "-" + std::to_string(number)) != state.runs.end()) {
      ++number;
    }
    chosen = spec.name + "-" + std::to_string(number);
  }
  if (state.runs.count(fresh) > 0) {
    return Error{Code::conflict, "a run " + fresh.text + " exists already"};
  }
  Run& run = state.runs[fresh];
  run.record.id = fresh;
  run.adopt_spec(spec);
  run.record.name = chosen;
  run.record.file = file;
  run.record.spec = to_json(spec);
  run.record.submitted = state.time_of_submission(now);
  run.last_commit = now;
  run.nobody_since = now;
  state.set_state(run, RunState::queued, "submitted");
  state.event(fresh, {}, "info", "run_submitted", "run " + chosen + " was submitted", {Field{"spec", run.record.spec}});
  state.advance_all();
  return fresh;
}

Status Core::cancel(TimePoint now, const RunId& id, const std::string& why) {
  State& state = *state_;
  state.out.advance_to(now);
  const auto run = state.runs.find(id);
  if (run == state.runs.end()) {
    return Error{Code::not_found, "there is no run " + id.text};
  }
  if (has_ended(run->second.record.state)) {
    return Error{Code::conflict, "run " + run->second.record.name + " has ended already: " + run->second.record.reason.text};
  }
  state.end_run(run->second, RunState::cancelled, why.empty() ? "cancelled" : "cancelled: " + why, std::nullopt);
  state.advance_all();
  return {};
}

Status Core::pause(TimePoint now, const RunId& id) {
  State& state = *state_;
  state.out.advance_to(now);
  const auto found = state.runs.find(id);
  if (found == state.runs.end()) {
    return Error{Code::not_found, "there is no run " + id.text};
  }
  Run& run = found->second;
  if (has_ended(run.record.state)) {
    return Error{Code::conflict, "run " + run.record.name + " has ended already: " + run.record.reason.text};
  }
  if (run.record.state == RunState::paused || run.record.pause_after) {
    return {};
  }
  if (run.pairs() && run.merging()) {
    return Error{Code::conflict, "run " + run.record.name +
                                     " has taken its last round, and its islands are merged into one model: it is complete in a moment"};
  }
  if (run.phased() && !state.groups_stand(run)) {
    // Its groups end their rounds in hand first.
    for (const auto& [name, task] : run.tasks) {
      if (const auto group = state.runs.find(task.record.group); group != state.runs.end() && !is_idle(group->second.record.state)) {
        ATOLL_TRY(pause(now, group->first));
      }
    }
    run.record.pause_after = Round(0);
    state.record(run.to_record());
  } else if (!run.lineage.initialised() || run.members.empty() || run.phased()) {
    state.pause_now(run);
  } else {
    state.pause_after(run, run.private_states() ? std::min(run.last_own(), run.furthest().next()) : run.lineage.next());
  }
  state.advance_all();
  return {};
}

void Core::State::pause_after(Run& run, Round round) {
  run.record.pause_after = round;
  record(run.to_record());
  event(run.record.id, {}, "info", "run_pausing", "run " + run.record.name + " is paused after round " + std::to_string(round.value),
        {Field{"round", static_cast<std::int64_t>(round.value)}});
  if (run.private_states()) {
    for (const IslandId& id : run.members) {
      send(id, new_epoch_of(run));  // elsewhere the round's commit says so
      restart(run.memberships.at(id).offer_resend);
    }
  }
  changed = true;
}

// An island had come further before it heard that the run is being paused: all stand after that round.
void Core::State::note_own_round(Run& run, Round round) {
  if (run.record.pause_after && round > *run.record.pause_after && run.own(round)) {
    pause_after(run, round);
  }
}

// Every member's checkpoint of the round after which the run is paused, then nobody trains. Nobody is freed before at least one island has
// it on its disk: what is in memory would be lost.
void Core::State::advance_pause(Run& run) {
  const bool own = run.private_states();  // then every island has its own, and the round is taken when the checkpoint is there
  const Round last = own ? *run.record.pause_after : run.lineage.committed();
  std::vector<std::string> writing;
  bool safe = false;
  for (const IslandId& id : run.members) {
    const std::optional<Checkpointed>& told = run.memberships.at(id).checkpointed;
    safe = safe || (told && (own ? told->round >= last : told->round == last && told->digest == run.lineage.digest()));
  }
  for (const IslandId& id : run.members) {
    Membership& membership = run.memberships.at(id);
    if (safe && membership.checkpoint_settled && *membership.checkpoint_settled >= last) {
      continue;
    }
    if (own) {
      if (membership.record.state != MembershipState::active || !islands.alive(id)) {
        continue;  // through with its rounds, or lost: nobody waits for it
      }
      writing.push_back(islands.name_of(id));
      if (due(membership.offer_resend)) {
        send(id, new_epoch_of(run));
      }
      wake_at(membership.offer_resend.next);
      continue;
    }
    writing.push_back(islands.name_of(id));
    // One that came in meanwhile was not told with the commit; one that failed may try again.
    const TimePoint patience = run.last_commit + settings.resend;
    if (now() >= patience && due(membership.offer_resend)) {
      send(id, Offer{run.record.id, true});
    }
    wake_at(std::max(patience, membership.offer_resend.next));
  }
  if (writing.empty()) {
    pause_now(run);
  } else {
    run.wait = Wait{"is being paused after round " + std::to_string(last.value) + "; waits for the checkpoint of " + list_of(writing),
                    std::nullopt};
  }
}

void Core::State::pause_now(Run& run) {
  run.record.pause_after.reset();
  std::vector<IslandId> freed;
  for (auto& [id, membership] : run.memberships) {
    if (membership.record.state != MembershipState::absent && membership.record.state != MembershipState::refused) {
      // No absence: it goes on where everybody does.
      const MembershipRecord before = membership.record;
      membership.record.left = run.is_member(id) ? run.record.epoch.next() : before.left;
      vacate(run, membership, MembershipState::absent, "the run is paused");
      membership.record.absences = before.absences;
      save(run, membership);
      islands.not_live(id, run.record.id);  // it goes on from its disk
      freed.push_back(id);
    }
  }
  run.members.clear();
  give_up_rounds(run);
  give_up_tasks(run);
  const std::string when =
      run.phased() ? "paused, tasks go on from what they saved" : "paused after round " + std::to_string(run.lineage.committed().value);
  set_state(run, RunState::paused, when + "; `atoll resume " + run.record.name + "` lets it go on");
  new_epoch(run, "paused");
  event(run.record.id, {}, "info", "run_paused", "run " + run.record.name + " is " + run.record.reason.text,
        {Field{"round", static_cast<std::int64_t>(run.lineage.committed().value)}, Field{"digest", to_hex(run.lineage.digest())}});
  for (const IslandId& id : freed) {
    release(id, run);
  }
}

Status Core::resume(TimePoint now, const RunId& id) {
  State& state = *state_;
  state.out.advance_to(now);
  const auto found = state.runs.find(id);
  if (found == state.runs.end()) {
    return Error{Code::not_found, "there is no run " + id.text};
  }
  Run& run = found->second;
  if (run.record.state == RunState::completed) {
    return Error{Code::conflict, "run " + run.record.name + " is complete; submit a new run to train on"};
  }
  const bool ended = is_idle(run.record.state);
  const bool refused = std::any_of(run.memberships.begin(), run.memberships.end(),
                                   [](const auto& membership) { return membership.second.record.state == MembershipState::refused; });
  if (!ended && !refused && run.record.state != RunState::interrupted) {
    return Error{Code::conflict, "run " + run.record.name + " is " + std::string(to_string(run.record.state)) + " already"};
  }
  run.first_error.reset();
  if (ended) {
    state.give_up_tasks(run);
  }
  for (const auto& [name, task] : run.tasks) {
    const auto group = state.runs.find(task.record.group);
    if (ended && task.record.state != TaskState::done && group != state.runs.end() && is_idle(group->second.record.state) &&
        group->second.record.state != RunState::completed) {
      ATOLL_TRY(resume(now, group->first));
    }
  }
  for (auto& [island, membership] : run.memberships) {
    if (ended || membership.record.state == MembershipState::refused) {
      const bool stayed = membership.record.state == MembershipState::active || membership.record.state == MembershipState::ended;
      membership.record.left = ended && stayed ? run.record.epoch.next() : membership.record.left;
      membership.record.state = MembershipState::absent;
      membership.record.cause = "resumed";
      membership.memory_offered = false;
      state.save(run, membership);
    }
    membership.failures = 0;
    membership.retry_at = now;
    if (run.guards.pardon(island)) {
      state.save(run, membership);
    }
  }
  if (ended) {
    run.record.pause_after.reset();
    run.record.error.reset();
    run.record.ended.reset();
    run.members.clear();
    run.assignments.clear();
    give_up_rounds(run);
    run.last_commit = now;
    run.nobody_since = now;
    state.set_state(run, run.lineage.initialised() ? RunState::interrupted : RunState::queued, "resumed");
    state.new_epoch(run, "resumed");
    state.event(id, {}, "info", "run_resumed", "run " + run.record.name + " was resumed");
  }
  state.advance_all();
  return {};
}

Result<ExportSource> Core::serve(TimePoint now, const RunId& id, const std::string& reader_key, const std::optional<IslandId>& wanted) {
  State& state = *state_;
  state.out.advance_to(now);
  const auto found = state.runs.find(id);
  if (found == state.runs.end()) {
    return Error{Code::not_found, "there is no run " + id.text};
  }
  const Run& run = found->second;
  if (run.phased()) {
    return Error{Code::invalid_argument,
                 "run " + run.record.name + " makes an ensemble of images' experts, not one model; see `atoll sample` and `atoll export`"};
  }
  const Island* best = nullptr;
  HeldCheckpoint newest;
  for (const auto& [island_id, membership] : run.memberships) {
    if (!state.islands.alive(island_id) || (wanted && *wanted != island_id)) {
      continue;
    }
    for (const HeldCheckpoint& held : state.islands.held(island_id, id).checkpoints) {
      const bool committed = run.lineage.confirms(held.round, held.digest);
      const bool genuine = run.own(held.round) ? true : committed && !(wanted && run.private_states());
      if (genuine && (best == nullptr || held.round > newest.round)) {
        best = &state.islands.at(island_id);
        newest = held;
      }
    }
  }
  if (best == nullptr && wanted) {
    return Error{Code::unavailable,
                 "island " + state.islands.name_of(*wanted) + " is not connected, or has no checkpoint of run " + run.record.name};
  }
  if (best == nullptr) {
    return Error{Code::unavailable, "no connected island has a checkpoint of run " + run.record.name +
                                        "; wait for one, or connect an island that took part in it"};
  }
  ExportSource source{state.islands.member_of(best->record.id), newest.round, newest.digest, {}, 0};
  const std::optional<Checkpointed>& told = run.memberships.at(best->record.id).checkpointed;
  if (told && told->round == newest.round && told->digest == newest.digest) {
    source.file = told->file;
    source.file_bytes = told->file_bytes;
  }
  state.send(best->record.id, Serve{id, reader_key, newest.round, true});
  return source;
}

void Core::State::set_reason(Run& run, const std::string& reason, std::optional<TimePoint> until) {
  if (run.record.reason.text != reason) {
    run.record.reason.text = reason;
    run.record.reason.since = now();
  }
  run.record.reason.until = until;
}

// A reason that has stood for a while becomes an event, once; shorter waits are of no interest to anybody.
void Core::State::tell_wait(Run& run) {
  const Reason& reason = run.record.reason;
  if (reason.text.empty() || reason.text == run.told_reason) {
    return;
  }
  const TimePoint due = reason.since + settings.told_wait;
  if (now() < due) {
    wake_at(due);
    return;
  }
  run.told_reason = reason.text;
  std::vector<Field> fields = {Field{"state", std::string(to_string(run.record.state))}, Field{"since_unix_ms", unix_ms(reason.since)}};
  if (reason.until) {
    fields.push_back(Field{"until_unix_ms", unix_ms(*reason.until)});
  }
  event(run.record.id, {}, "debug", "waits", reason.text, std::move(fields));
}

void Core::State::set_state(Run& run, RunState value, const std::string& reason, std::optional<TimePoint> until) {
  run.record.state = value;
  set_reason(run, reason, until);
  record(run.to_record());
  changed = true;
}

void Core::State::end_run(Run& run, RunState value, const std::string& reason, std::optional<Error> error) {
  run.record.error = std::move(error);
  run.record.ended = now();
  run.record.pause_after.reset();
  set_state(run, value, reason);
  event(run.record.id, {}, value == RunState::failed ? "error" : "info", "run_" + std::string(to_string(value)),
        "run " + run.record.name + ": " + reason);
  for (const auto& [id, membership] : run.memberships) {
    release(id, run);
    islands.take_back(id, run.record.id);
  }
  give_up_rounds(run);
  run.members.clear();
  for (const auto& [name, task] : run.tasks) {
    if (const auto group = runs.find(task.record.group); group != runs.end() && !has_ended(group->second.record.state)) {
      end_run(group->second, value, "run " + run.record.name + ": " + reason, group->second.record.error);
    }
  }
  if (run.of_group()) {
    wake_at(now());  // the run that it works for goes on
  }
}

void Core::State::advance(Run& run) {
  constexpr int kPasses = 16;
  for (int pass = 0; pass < kPasses; ++pass) {
    changed = false;
    run.wait = Wait{};
    if (run.record.state == RunState::queued) {
      advance_queued(run);
    } else {
      advance_leaving(run);
      if (run.phased()) {
        advance_phases(run);
      } else if (run.pairs()) {
        advance_pairs(run);
      } else if (run.private_states()) {
        advance_alone(run);
        if (run.record.pause_after && !has_ended(run.record.state)) {
          advance_pause(run);
        }
      } else if (!run.lineage.initialised()) {
        advance_initial(run);
      } else {
        advance_joins(run);
        if (run.members.empty() && run.record.pause_after) {
          pause_now(run);
        } else if (run.members.empty()) {
          advance_restore(run);
        } else if (run.at_end()) {
          advance_end(run);
        } else if (run.record.pause_after && run.lineage.committed() >= *run.record.pause_after) {
          advance_pause(run);
        } else {
          advance_rounds(run);
        }
      }
    }
    if (!is_idle(run.record.state)) {
      check_hopeless(run);
    }
    if (is_idle(run.record.state)) {
      return;
    }
    if (!changed) {
      break;
    }
  }
  if (changed) {
    wake_at(now());
  }
  if (run.record.state == RunState::queued || !run.lineage.initialised()) {
    if (!run.wait.text.empty()) {
      set_reason(run, run.wait.text, run.wait.until);
      tell_wait(run);
    }
    return;
  }
  const bool enough = run.members.size() >= run.spec.islands.min || (run.at_end() && !run.members.empty()) || run.private_states();
  std::string text = run.wait.text;
  if (!enough) {
    std::vector<std::string> away;
    for (const auto& [id, membership] : run.memberships) {
      if (!run.is_member(id)) {
        away.push_back(islands.name_of(id) +
                       (membership.record.state == MembershipState::joining ? " (catching up)" : " (" + membership.record.cause + ")"));
      }
    }
    text += away.empty() ? "" : ": " + list_of(away);
  }
  const RunState wanted = enough ? RunState::running : RunState::interrupted;
  if (run.record.state != wanted) {
    const bool first = run.record.state == RunState::starting;
    set_state(run, wanted, text, run.wait.until);
    if (!first || !enough) {
      event(run.record.id, {}, enough ? "info" : "warning", enough ? "run_continues" : "run_interrupted",
            "run " + run.record.name + (enough ? " goes on" : " is interrupted: " + text));
    }
  } else {
    set_reason(run, text, run.wait.until);
  }
  tell_wait(run);
}

void Core::State::advance_queued(Run& run) {
  StartInput input;
  input.now = now();
  input.submitted = run.record.submitted;
  input.expected = run.spec.islands.names;
  input.min = run.spec.islands.min;
  input.max = run.spec.islands.max;
  input.settle = settings.settle;
  for (const auto& [id, island] : islands.all()) {
    if (admits_name(run, island)) {
      input.candidates.push_back(
          StartCandidate{id, island.record.name, island.greeted, obstacle_of(run, island), island.record.last_hello});
    }
  }
  std::sort(input.candidates.begin(), input.candidates.end(),
            [](const StartCandidate& a, const StartCandidate& b) { return a.name < b.name; });
  const StartDecision decision = decide_start(input);
  if (decision.start) {
    start_run(run, decision.islands);
    return;
  }
  run.wait = decision.wait;
  if (decision.wait.until) {
    wake_at(*decision.wait.until);
  }
}

// It goes on from what it has: in memory, on its disk, or nothing.
void Core::State::admit_with_own_state(Run& run, const IslandId& id) {
  const HeldRun held = islands.held(id, run.record.id);
  add_membership(run, id, MembershipState::absent,
                 held.live                  ? StartFrom::memory
                 : held.checkpoints.empty() ? StartFrom::scratch
                                            : StartFrom::checkpoint);
  Round newest;
  for (const HeldCheckpoint& checkpoint : held.checkpoints) {
    newest = run.own(checkpoint.round) ? std::max(newest, checkpoint.round) : newest;
  }
  run.memberships.at(id).assigned = newest;
}

// A group of nobody: every island goes its own way; whoever was away goes on from its own checkpoint.
void Core::State::advance_alone(Run& run) {
  std::vector<std::string> training;
  std::vector<std::string> away;
  bool anybody_ended = false;
  Round slowest(std::numeric_limits<std::uint64_t>::max());
  const bool own_states = !run.pairs() && !run.record.pause_after;
  for (auto& [id, membership] : run.memberships) {
    if (own_states && run.members.size() < run.spec.islands.max && membership.record.state == MembershipState::absent &&
        islands.alive(id) && !islands.leaving(id)) {
      admit_with_own_state(run, id);
      activate(run, membership);
      send_invite(run, membership);
    }
    if (membership.record.state == MembershipState::active) {
      training.push_back(islands.name_of(id));
      slowest = std::min(slowest, membership.merged);
      const Island* island = islands.find(id);
      const bool heard = island != nullptr && island->reports.contains(run.record.id) && membership.settled;
      if (!heard && due(membership.resend)) {
        send_invite(run, membership);
      }
      if (!heard) {
        wake_at(membership.resend.next);
      }
    } else if (membership.record.state == MembershipState::joining) {
      away.push_back(islands.name_of(id) + " (copies the state of another)");
    } else if (membership.record.state == MembershipState::absent) {
      away.push_back(islands.name_of(id) + " (" + membership.record.cause + ")");
      slowest = std::min(slowest, membership.merged);
    } else if (membership.record.state == MembershipState::ended) {
      anybody_ended = true;
      slowest = std::min(slowest, Round(run.spec.rounds));
    }
  }
  if (slowest.value != std::numeric_limits<std::uint64_t>::max() && slowest > run.lineage.committed()) {
    run.lineage.reach(slowest);
  }
  if (!training.empty()) {
    run.wait.text = list_of(training) + (training.size() == 1 ? " is" : " are") + " training";
    return;
  }
  const TimePoint until = run.nobody_since + run.spec.islands.deadline;
  if (anybody_ended && (away.empty() || now() >= until)) {
    advance_end(run);
  } else if (!away.empty()) {
    run.wait = Wait{"waits for " + list_of(away), anybody_ended ? std::optional<TimePoint>(until) : std::nullopt};
    if (anybody_ended) {
      wake_at(until);
    }
  } else if (!anybody_ended) {
    const Error error = run.first_error.value_or(Error{Code::unavailable, "no island can take part any more"});
    end_run(run, RunState::failed, error.why, error);
  }
}

void Core::State::advance_end(Run& run) {
  std::vector<std::string> pending;
  std::size_t ended = 0;
  for (const auto& [id, membership] : run.memberships) {
    if (membership.record.state == MembershipState::active) {
      pending.push_back(islands.name_of(id));
    }
    ended += membership.record.state == MembershipState::ended ? 1U : 0U;
  }
  if (!pending.empty() || ended == 0) {
    run.wait = Wait{"all rounds are done; waits for the last checkpoint of " + list_of(pending), std::nullopt};
    return;
  }
  std::string text = "completed with " + std::to_string(ended) + " of " + std::to_string(run.memberships.size()) + " islands";
  for (const auto& [id, membership] : run.memberships) {
    for (const Absence& absence : membership.record.absences) {
      text += "; " + islands.name_of(id) + " was away from round " + std::to_string(absence.from.value) +
              (absence.to ? " to " + std::to_string(absence.to->value) : " on") + " (" + absence.cause + ")";
    }
  }
  end_run(run, RunState::completed, bounded(text), std::nullopt);
}

// Fails a run that can never have enough islands again, with the first cause.
void Core::State::check_hopeless(Run& run) {
  std::size_t refused = 0;
  std::size_t possible = 0;
  std::string cause;
  for (const auto& [id, membership] : run.memberships) {
    const bool refuses = membership.record.state == MembershipState::refused;
    refused += refuses ? 1U : 0U;
    possible += refuses ? 0U : 1U;
    cause = refuses && cause.empty() ? "island " + islands.name_of(id) + ": " + membership.record.cause : cause;
  }
  for (const auto& [id, island] : islands.all()) {
    possible += run.memberships.count(id) == 0 && island.greeted && admits_name(run, island) && !island.leaving() ? 1U : 0U;
  }
  if (refused > 0 && possible < run.spec.islands.min) {
    const Error error = run.first_error ? *run.first_error : Error{Code::unavailable, cause};
    end_run(run, RunState::failed, error.why, error);
  }
}

}  // namespace atl::coordinator
