// What operators ask of runs: submit, cancel, pause, resume, a source for an export, and who would take part.
#include <algorithm>

#include "coordinator/core/core_state.hpp"

namespace atl::coordinator {
namespace {

constexpr std::size_t kMostExportSources = 32;  // each keeps its checkpoint for the reader for a while

Status check_not_over(const Run& run) {
  return run.life.over() ? Error{Code::conflict, "run " + run.about.name + " has ended already: " + run.life.reason().text} : Status();
}

}  // namespace

Result<Run*> Core::State::run_asked_for(const RunId& id) {
  const auto found = runs.find(id);
  return found == runs.end() ? Result<Run*>(Error{Code::not_found, "there is no run " + id.text}) : Result<Run*>(&found->second);
}

Result<RunId> Core::submit(TimePoint now, const RunId& fresh, const RunSpec& spec, const std::string& name, const std::string& file,
                           const std::optional<CopyToGoOnFrom>& copy) {
  State& state = *state_;
  state.out.advance_to(now);
  if (spec.islands.min < 1 || spec.islands.max < spec.islands.min || spec.rounds < 1) {
    return Error{Code::invalid_argument,
                 "the run file is impossible: it needs at least one island and one round, and islands.max not below islands.min"};
  }
  const auto named = [&](const std::string& wanted) {
    return std::find_if(state.runs.begin(), state.runs.end(), [&](const auto& run) { return run.second.about.name == wanted; });
  };
  std::string chosen = name.empty() ? spec.name : name;
  if (const auto same = named(chosen); same != state.runs.end()) {
    if (!name.empty()) {
      if (same->second.about.file == file) {
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
    return Error{Code::conflict, "a run " + fresh.text + " exists already" +
                                     (copy ? ": it goes on by itself from what its islands have or can fetch, or by `atoll resume`" : "")};
  }
  if (copy && (spec.checkpoint.copy.empty() || rule_of(spec.strategy.group) != RunRule::shared)) {
    return Error{Code::invalid_argument,
                 "a run goes on from a copy where its run file says [checkpoint] copy and its islands share one state"};
  }
  if (const RemovedRecord* removed = state.removals.find(fresh)) {
    RemovedRecord back = *removed;
    back.lifted = true;
    state.record(std::move(back));
    state.removals.lift(fresh);
  }
  Run& run = state.runs[fresh];
  run.about.id = fresh;
  state.rules.adopt(run, spec);
  run.about.name = chosen;
  run.about.file = file;
  run.about.spec = to_json(spec);
  run.life.submit(state.time_of_submission(now));
  run.last_commit = now;
  run.nobody_since = now;
  state.event(fresh, {}, "info", "run_submitted", "run " + chosen + " was submitted", {Field{"spec", run.about.spec}});
  if (copy) {
    run.rule->go_on_from_copy(run, *copy);
  } else {
    state.set_state(run, RunState::queued, "submitted");
  }
  state.advance_all();
  return fresh;
}

Status Core::cancel(TimePoint now, const RunId& id, const std::string& why) {
  State& state = *state_;
  state.out.advance_to(now);
  ATOLL_ASSIGN(Run* const found, state.run_asked_for(id));
  Run& run = *found;
  ATOLL_TRY(check_not_over(run));
  state.end_run(run, RunState::cancelled, why.empty() ? "cancelled" : "cancelled: " + why, std::nullopt);
  state.advance_all();
  return {};
}

Status Core::pause(TimePoint now, const RunId& id) {
  State& state = *state_;
  state.out.advance_to(now);
  ATOLL_ASSIGN(Run* const found, state.run_asked_for(id));
  Run& run = *found;
  ATOLL_TRY(check_not_over(run));
  ATOLL_TRY(run.rule->pause(run));
  state.advance_all();
  return {};
}

Status Core::resume(TimePoint now, const RunId& id) {
  State& state = *state_;
  state.out.advance_to(now);
  ATOLL_ASSIGN(Run* const found, state.run_asked_for(id));
  Run& run = *found;
  if (run.life.is(RunState::completed)) {
    return Error{Code::conflict, "run " + run.about.name + " is complete; submit a new run to train on"};
  }
  const bool ended = run.life.idle();
  const bool refused = std::any_of(run.memberships.begin(), run.memberships.end(),
                                   [](const auto& membership) { return membership.second.record.state == MembershipState::refused; });
  if (!ended && !refused && !run.life.is(RunState::interrupted)) {
    return Error{Code::conflict, "run " + run.about.name + " is " + std::string(to_string(run.life.state())) + " already"};
  }
  run.life.forgive();
  if (ended) {
    run.rule->give_up(run);
  }
  for (const RunId& id_of_group : ended ? run.rule->groups(run, true) : std::vector<RunId>{}) {
    const auto group = state.runs.find(id_of_group);
    if (group != state.runs.end() && group->second.life.idle() && !group->second.life.is(RunState::completed)) {
      ATOLL_TRY(resume(now, group->first));
    }
  }
  for (auto& [island, membership] : run.memberships) {
    if (ended || membership.record.state == MembershipState::refused) {
      const bool stayed = membership.record.state == MembershipState::active || membership.record.state == MembershipState::ended;
      membership.record.left = ended && stayed ? run.epoch.next() : membership.record.left;
      membership.record.state = MembershipState::absent;
      membership.record.cause = "resumed";
      membership.entry.offer_memory(false);
      state.save(run, membership);
    }
    membership.entry.forgive(now);
    if (run.guards.pardon(island)) {
      state.save(run, membership);
    }
  }
  if (ended) {
    run.members.clear();
    run.rule->resume(run);
    run.last_commit = now;
    run.nobody_since = now;
    run.life.resume(run.lineage.initialised() ? RunState::interrupted : RunState::queued, now);
    state.record(run.to_record());
    state.new_epoch(run, "resumed");
    state.event(id, {}, "info", "run_resumed", "run " + run.about.name + " was resumed");
  }
  state.advance_all();
  return {};
}

Result<std::vector<ExportSource>> Core::serve(TimePoint now, const RunId& id, const std::string& reader_key,
                                              const std::optional<IslandId>& wanted) {
  State& state = *state_;
  state.out.advance_to(now);
  ATOLL_ASSIGN(const Run* const found, state.run_asked_for(id));
  const Run& run = *found;
  ATOLL_TRY(run.rule->makes_model(run));
  std::vector<ExportSource> sources;
  for (const auto& [island, membership] : run.memberships) {
    if (!state.islands.alive(island) || (wanted && *wanted != island)) {
      continue;
    }
    if (std::optional<ExportSource> source = state.export_source(run, membership, wanted.has_value())) {
      sources.push_back(std::move(*source));
    }
  }
  if (sources.empty() && wanted) {
    return Error{Code::unavailable,
                 "island " + state.islands.name_of(*wanted) + " is not connected, or has no checkpoint of run " + run.about.name};
  }
  if (sources.empty()) {
    return Error{Code::unavailable, "no connected island has a checkpoint of run " + run.about.name +
                                        "; wait for one, or connect an island that took part in it"};
  }
  std::ranges::stable_sort(sources, std::ranges::greater{}, &ExportSource::round);
  sources.resize(std::min(sources.size(), kMostExportSources));
  for (const ExportSource& source : sources) {
    state.send(source.island.island, Serve{id, reader_key, source.round, true});
  }
  return sources;
}

// The newest checkpoint on this island that is of the run's history; of its own model where it alone is asked.
std::optional<ExportSource> Core::State::export_source(const Run& run, const Membership& membership, bool alone) const {
  const IslandId& island = membership.record.island;
  const HeldCheckpoint* newest = nullptr;
  for (const HeldCheckpoint& held : islands.held(island, run.about.id).checkpoints) {
    if (run.rule->exports(run, held, alone) && (newest == nullptr || held.round > newest->round)) {
      newest = &held;
    }
  }
  if (newest == nullptr) {
    return std::nullopt;
  }
  ExportSource source{islands.member_of(island), newest->round, newest->digest, {}, 0};
  const std::optional<Checkpointed>& told = membership.source.checkpointed;
  if (told && told->round == newest->round && told->digest == newest->digest) {
    source.file = told->file;
    source.file_bytes = told->file_bytes;
  }
  return source;
}

Result<std::vector<TaskResult>> Core::serve_results(TimePoint now, const RunId& id, const std::string& reader_key) {
  state_->out.advance_to(now);
  ATOLL_ASSIGN(const Run* const run, state_->run_asked_for(id));
  return run->rule->serve_results(*run, reader_key);
}

StartView Core::rehearse_start(TimePoint now, const RunSpec& spec) const {
  Run run;
  state_->rules.adopt(run, spec);
  run.life.submit(now);
  StartInput input = state_->start_input(run);
  input.now = now;
  StartView view;
  const StartDecision at_once = decide_start(input);
  input.now = TimePoint::max();  // once nobody else has come for a while
  const StartDecision settled = decide_start(input);
  view.enough = settled.start;
  view.wait = at_once.wait.text;
  for (const StartCandidate& candidate : input.candidates) {
    const bool able = candidate.connected && candidate.obstacle.empty();
    const bool chosen = settled.start ? std::ranges::find(settled.islands, candidate.island) != settled.islands.end() : able;
    view.islands.push_back({candidate.island, candidate.name, chosen, candidate.connected ? candidate.obstacle : "is not connected"});
  }
  if (!state_->data_paths.paths().any(now)) {
    return view;
  }
  for (const StartCandidateView& one : view.islands) {
    for (const StartCandidateView& other : view.islands) {
      const bool both = one.takes_part && other.takes_part && one.island < other.island;
      if (both && !state_->data_paths.paths().usable(one.island, other.island, now)) {
        view.apart.push_back(state_->data_paths.text_of_apart(one.island, other.island));
      }
    }
  }
  return view;
}

}  // namespace atl::coordinator
