// How a run begins, waits and ends. What operators ask of it is in operations.cpp.
#include <algorithm>

#include "coordinator/core/core_state.hpp"

namespace atl::coordinator {

// A trainer says that the model is good enough.
void Core::State::note_enough(Run& run, const Membership& membership, const std::string& why) {
  const bool member = membership.record.state == MembershipState::active && run.is_member(membership.record.island);
  if (!member || run.of_group() || !run.lineage.initialised() || !run.life.enough().empty() || run.at_end() ||
      !run.rule->may_end_early(run)) {
    return;
  }
  complete_soon(run, membership.record.island,
                bounded("island " + islands.name_of(membership.record.island) + " says that the model is good enough: " + why));
}

// [training].tokens are committed.
void Core::State::end_by_tokens(Run& run) {
  const std::uint64_t tokens = run.spec.training.tokens;
  if (tokens > 0 && run.lineage.tokens() >= tokens && run.life.enough().empty() && !run.at_end()) {
    complete_soon(run, {}, std::to_string(run.lineage.tokens()) + " tokens are committed, training.tokens is " + std::to_string(tokens));
  }
}

// All stand after the next round, as for a pause, and the run is complete there.
void Core::State::complete_soon(Run& run, const IslandId& said_by, const std::string& why) {
  run.life.complete_there(why);
  event(run.about.id, said_by, "info", "run_enough", why);
  if (!run.life.pausing()) {
    pause_after(run, run.rule->next_stand(run));
  }
  record(run.to_record());
}

void Core::State::pause_after(Run& run, Round round) {
  run.life.pause_after(round);
  record(run.to_record());
  event(run.about.id, {}, "info", "run_pausing",
        "run " + run.about.name + (run.life.enough().empty() ? " is paused after round " : " ends after round ") +
            std::to_string(round.value),
        {Field{"round", static_cast<std::int64_t>(round.value)}});
  run.rule->tell_pause(run);
  touch(run);
}

// All stand after the round, and at least one island has it on its disk.
void Core::State::complete_early(Run& run) {
  std::size_t ended = 0;
  for (const IslandId& id : run.members) {
    Membership& membership = run.memberships.at(id);
    membership.record.state = MembershipState::ended;
    save(run, membership);
    ended += 1;
  }
  end_run(run, RunState::completed,
          bounded("completed after round " + std::to_string(run.lineage.committed().value) + " with " + std::to_string(ended) + " of " +
                  std::to_string(run.memberships.size()) + " islands; " + run.life.enough() +
                  (run.alike.islands().empty() ? "" : "; " + text_of_alike(run))),
          std::nullopt);
}

void Core::State::pause_now(Run& run) {
  std::vector<IslandId> freed;
  for (auto& [id, membership] : run.memberships) {
    if (membership.record.state != MembershipState::absent && membership.record.state != MembershipState::refused) {
      // No absence: it goes on where everybody does.
      const MembershipRecord before = membership.record;
      membership.record.left = run.is_member(id) ? run.epoch.next() : before.left;
      vacate(run, membership, MembershipState::absent, "the run is paused");
      membership.record.absences = before.absences;
      save(run, membership);
      islands.not_live(id, run.about.id);  // it goes on from its disk
      freed.push_back(id);
    }
  }
  run.members.clear();
  run.rule->give_up(run);
  const std::string when = run.rule->where_paused(run);
  run.life.pause(when + "; `atoll resume " + run.about.name + "` lets it go on", now());
  record(run.to_record());
  touch(run);
  new_epoch(run, "paused");
  event(run.about.id, {}, "info", "run_paused", "run " + run.about.name + " is " + run.life.reason().text,
        {Field{"round", static_cast<std::int64_t>(run.lineage.committed().value)}, Field{"digest", to_hex(run.lineage.digest())}});
  for (const IslandId& id : freed) {
    release(id, run);
  }
}

// A reason that has stood for a while becomes an event, once.
void Core::State::tell_wait(Run& run) {
  if (run.life.tells(now(), settings.told_wait)) {
    const Reason& reason = run.life.reason();
    std::vector<Field> fields = {Field{"state", std::string(to_string(run.life.state()))}, Field{"since_unix_ms", unix_ms(reason.since)}};
    if (reason.until) {
      fields.push_back(Field{"until_unix_ms", unix_ms(*reason.until)});
    }
    event(run.about.id, {}, "debug", "waits", reason.text, std::move(fields));
  } else if (const std::optional<TimePoint> due = run.life.tells_at(settings.told_wait)) {
    wake_at(*due);
  }
}

void Core::State::set_state(Run& run, RunState value, const std::string& reason, std::optional<TimePoint> until) {
  run.life.become(value, reason, now(), until);
  record(run.to_record());
  touch(run);
}

void Core::State::end_run(Run& run, RunState value, const std::string& reason, std::optional<Error> error) {
  run.life.end(value, reason, std::move(error), now());
  record(run.to_record());
  touch(run);
  event(run.about.id, {}, value == RunState::failed ? "error" : "info", "run_" + std::string(to_string(value)),
        "run " + run.about.name + ": " + reason);
  for (const auto& [id, membership] : run.memberships) {
    release(id, run);
    islands.take_back(id, run.about.id);
  }
  run.rule->give_up_rounds(run);
  run.members.clear();
  for (const RunId& id : run.rule->groups(run, false)) {
    if (const auto group = runs.find(id); group != runs.end() && !group->second.life.over()) {
      end_run(group->second, value, "run " + run.about.name + ": " + reason, group->second.life.error());
    }
  }
  if (run.of_group()) {
    wake_at(now());  // the run that it works for goes on
  }
}

// One look at a run. What changes by it has the run looked at again.
void Core::State::advance(Run& run) {
  run.wait = Wait{};
  if (run.life.is(RunState::queued)) {
    advance_queued(run);
  } else {
    advance_leaving(run);
    run.rule->advance(run);
  }
  if (!run.life.idle()) {
    check_hopeless(run);
  }
}

std::string Core::State::why_away(const Run& run, const IslandId& id, const Membership& membership) const {
  const std::string busy = membership.record.state == MembershipState::absent ? serves_another(run, id) : "";
  return busy.empty() ? membership.record.cause : "serves run " + busy;
}

// Nothing changes any more: what the run waits for is its reason.
void Core::State::settle(Run& run) {
  const std::string stands = run.life.is(RunState::queued) ? "" : run.rule->why_it_stands(run);
  if (run.life.is(RunState::queued) || (!run.lineage.initialised() && stands.empty() && !run.life.is(RunState::interrupted))) {
    if (!run.wait.text.empty()) {
      run.life.wait(run.wait.text, now(), run.wait.until);
      tell_wait(run);
    }
    return;
  }
  StandingInput input{run.wait, true, {}, {}, stands};
  if (run.life.pausing()) {
    input.stops = run.rule->pauses_after(run);
  }
  input.enough = !run.rule->lacks_members(run);
  const bool all_here = run.memberships.size() == run.members.size();  // every member has a membership
  for (const auto& [id, membership] : run.memberships) {
    if (!all_here && !run.is_member(id)) {
      input.away.push_back(islands.name_of(id) + (membership.record.state == MembershipState::joining
                                                      ? " (catching up)"
                                                      : " (" + why_away(run, id, membership) + ")"));
    }
  }
  const bool goes_on = input.enough && stands.empty();
  const Wait wait = decide_standing(input);
  const RunState wanted = !goes_on ? RunState::interrupted : run.lineage.initialised() ? RunState::running : RunState::starting;
  const RunState before = run.life.state();
  run.life.become(wanted, wait.text, now(), wait.until);
  if (before != wanted) {
    record(run.to_record());
    if (before != RunState::starting || !goes_on) {
      event(run.about.id, {}, goes_on ? "info" : "warning", goes_on ? "run_continues" : "run_interrupted",
            "run " + run.about.name + (goes_on ? " goes on" : " is interrupted: " + wait.text));
    }
  }
  tell_wait(run);
}

StartInput Core::State::start_input(const Run& run) const {
  StartInput input;
  input.now = now();
  input.submitted = run.life.submitted();
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
  return input;
}

void Core::State::advance_queued(Run& run) {
  const StartDecision decision = decide_start(start_input(run));
  if (decision.start) {
    if (!run.rule->take_over_beginning(run)) {
      start_run(run, decision.islands);
    }
    return;
  }
  run.wait = decision.wait;
  if (decision.wait.until) {
    wake_at(*decision.wait.until);
  }
}

// "islands a and b train on the same data in the same order"; empty: nobody does.
std::string Core::State::text_of_alike(const Run& run) const {
  std::vector<std::string> names = islands.names_of(run.alike.islands());
  std::ranges::sort(names);
  return names.empty() ? "" : bounded("islands " + list_of(names)) + " train on the same data in the same order";
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
  if (const std::optional<Wait> wait = decide_end({ended, pending})) {
    run.wait = *wait;
    return;
  }
  std::string text = "completed with " + std::to_string(ended) + " of " + std::to_string(run.memberships.size()) + " islands";
  for (const auto& [id, membership] : run.memberships) {
    for (const Absence& absence : membership.record.absences) {
      text += "; " + islands.name_of(id) + " was away from round " + std::to_string(absence.from.value) +
              (absence.to ? " to " + std::to_string(absence.to->value) : " on") + " (" + absence.cause + ")";
    }
  }
  text += run.alike.islands().empty() ? "" : "; " + text_of_alike(run);
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
    const Error error = run.life.first_error() ? *run.life.first_error() : Error{Code::unavailable, cause};
    end_run(run, RunState::failed, error.why, error);
  }
}

}  // namespace atl::coordinator
