// Runs of phases: tasks are placed on islands, and their results remembered.
#include "coordinator/core/phases.hpp"

#include <algorithm>
#include <cstdlib>

#include "coordinator/core/core_state.hpp"
#include "coordinator/core/rules/task_rule.hpp"

namespace atl::coordinator {
namespace {

// Assignments are numbered from the time on at which they began, in milliseconds of Unix (IslandAssignment::tell()): none has a number so
// far ahead.
constexpr std::int64_t kNumbersAhead = std::int64_t{1} << 40;

// K of "experts/K".
std::size_t number_of(const std::string& task) {
  return static_cast<std::size_t>(std::strtoul(task.c_str() + task.find('/') + 1, nullptr, 10));
}

}  // namespace

void TaskRule::enlist(Run& run, const IslandId& island) { core_.add_membership(run, island, MembershipState::active, StartFrom::scratch); }

void TaskRule::begin(Run& run) {
  run.lineage.begin();
  run.lineage.trust_ledger();
}

void TaskRule::greet_active(Run& run, Membership& membership, bool new_boot, const HeldRun* /*held*/) {
  if (new_boot) {
    core_.membership_lost(run, membership, "its agent was restarted");
  }
}

// First it leaves its group.
bool TaskRule::may_leave(Run& run, Membership& membership, const Island& island) {
  if (!island.lent_to.empty()) {
    return false;
  }
  membership.leaves_after = membership.leaves_after.value_or(run.lineage.committed());
  return true;
}

// Its groups end their rounds in hand first.
Status TaskRule::pause(Run& run) {
  if (run.life.is(RunState::paused) || run.life.pausing()) {
    return {};
  }
  if (groups_stand(run)) {
    core_.pause_now(run);
    return {};
  }
  for (const auto& [name, task] : run.tasks().all()) {
    if (const auto group = runs_.find(task.record().group); group != runs_.end() && !group->second.life.idle()) {
      const Status asked = group->second.rule->pause(group->second);
      if (!asked.ok() && asked.error().code != Code::conflict) {  // that one is complete in a moment, and its task is done
        return asked;
      }
      core_.advance_all();
    }
  }
  run.life.pause_after(Round(0));
  record(run.to_record());
  return {};
}

Round TaskRule::present_round(const Run& run) const { return run.lineage.initialised() ? run.lineage.next() : Round(0); }

std::vector<RunId> TaskRule::groups(const Run& run, bool unfinished) const {
  std::vector<RunId> groups;
  for (const auto& [name, task] : run.tasks().all()) {
    if (!task.record().group.empty() && !(unfinished && task.done())) {
      groups.push_back(task.record().group);
    }
  }
  return groups;
}

Status TaskRule::makes_model(const Run& run) const {
  return Error{Code::invalid_argument,
               "run " + run.about.name + " makes an ensemble of images' experts, not one model; see `atoll sample` and `atoll export`"};
}

// Their order and what each needs is in the spec, also of a run that has ended.
void TaskRule::settle_recovered(Run& run) {
  if (!run.tasks().all().empty()) {
    run.tasks().plan(run.about.id, run.spec, out_);
  }
}

// Nothing is taken over: each island goes on from what it has.
void TaskRule::settle_backup(Run& run) {
  run.lineage.trust_ledger();
  record(run.to_record());
}

void TaskRule::describe(const Run& run, RunView& view) const {
  for (const std::string& name : run.tasks().order()) {
    view.tasks.push_back(task_view(run, run.tasks().at(name)));
  }
}

void TaskRule::admit_islands(Run& run) {
  for (auto& [id, membership] : run.memberships) {
    if (membership.record.state == MembershipState::absent && core_.may_come_back(run, id)) {
      core_.activate(run, membership);
      touch(run);
    }
  }
  for (const auto& [id, island] : islands_.all()) {
    if (run.members.size() < run.spec.islands.max && run.memberships.count(id) == 0 && island.greeted && core_.admits_name(run, island) &&
        core_.obstacle_of(run, island).empty()) {
      core_.add_membership(run, id, MembershipState::absent, StartFrom::scratch);
      core_.activate(run, run.memberships.at(id));
    }
  }
}

Stir TaskRule::stir_of(const Run& run, const IslandId& island, const AssignmentReport& message) const {
  const IslandAssignment* told = run.tasks().find_told(island);
  return told != nullptr && told->repeats(message) ? Stir::nothing : Stir::all;
}

void TaskRule::hear(Run& run, Membership& membership, const AssignmentReport& message) {
  const IslandId island = membership.record.island;
  if (membership.record.state != MembershipState::active ||
      message.number > static_cast<std::uint64_t>(std::max<std::int64_t>(unix_ms(now()), 0) + kNumbersAhead)) {
    return;
  }
  IslandAssignment& told = run.tasks().told(island);
  if (!told.take(message)) {
    return;
  }
  touch(run);
  for (auto& [name, task] : run.tasks().all()) {
    if (task.running() && task.record().island != island && told.holds(task.record().checkpoint)) {
      task.copy();
    }
  }
  Task* task = run.tasks().find(message.task);
  // What it did before it heard that this task is its own now may be of an earlier start, with another group, and on its way to be dropped.
  if (task == nullptr || !task->running() || task->record().island != island || !told.counts(message)) {
    return;
  }
  take_report(run, *task, message);
}

// What the island of a task says of it.
void TaskRule::take_report(Run& run, Task& task, const AssignmentReport& message) {
  const IslandId island = task.record().island;
  if (task.packs_images() && !takes_images(run, task, message)) {
    return;
  }
  // Half a part of one island's images is nothing that another could go on with.
  if (!message.checkpoint.digest.empty() && message.checkpoint_step > task.record().checkpoint_step && !task.packs_images()) {
    task.save(message.checkpoint, message.checkpoint_step, out_);
  }
  if (message.state == "done" && !message.result.digest.empty()) {
    task.finish(message, out_);
    event(run.about.id, island, "info", "task_done", "task " + task.name() + " is done on " + islands_.name_of(island),
          {Field{"task", task.name()}});
    run.lineage.reach(run.tasks().trained());
    record(run.to_record());
  } else if (message.state == "failed") {
    const Error error{message.error ? message.error->code : Code::internal,
                      bounded(message.error ? message.error->why : "no reason was given")};
    task.fail(out_);
    run.life.blame_anew(Error{error.code, "task " + task.name() + " failed on island " + islands_.name_of(island) + ": " + error.why});
  }
}

// Back to those that wait, to be continued from the newest copy.
void TaskRule::take_back(Run& run, Task& task, const std::string& why) {
  event(run.about.id, task.record().island, "warning", "task_interrupted",
        "task " + task.name() + " has lost its island " + islands_.name_of(task.record().island) + " (" + why + "); it goes on elsewhere" +
            (task.record().checkpoint_step > 0 ? " from step " + std::to_string(task.record().checkpoint_step) + " or an older copy"
                                               : " from its beginning"));
  task.wait_again(out_);
  touch(run);
}

// A result that no connected island has: its island may come back; after the deadline it is made again.
bool TaskRule::input_at_hand(Run& run, Task& task) {
  if (!holders_of(run, task.record().result).empty()) {
    task.found();
    return true;
  }
  if (task.packs_images() && images_are_used(run, task)) {
    wait_for_images(run, task);
    return false;
  }
  const TimePoint until = task.missing_since(now()) + run.spec.islands.deadline;
  if (now() < until) {
    run.wait = Wait{"waits for an island that has the result of task " + task.name() + " (made by " +
                        islands_.name_of(task.record().island) + "); else it is made again",
                    until};
    wake_at(until);
    return false;
  }
  event(run.about.id, {}, "warning", "task_again",
        "the result of task " + task.name() + " is lost with every island that had it: it is made again");
  task.lose_result(out_);
  touch(run);
  return false;
}

void TaskRule::settle_checkpoint(Run& run, Task& task) {
  task.settle(!holders_of(run, task.record().checkpoint).empty(), !holders_of(run, task.copied().digest).empty(), out_);
}

// A member that has not said yet what it holds, if there is one; after a restart of the coordinator that is also one that has not come
// again.
std::optional<IslandId> TaskRule::unheard_of(const Run& run) const {
  const auto unheard = std::ranges::find_if(run.members, [&](const IslandId& id) {
    const IslandAssignment* told = run.tasks().find_told(id);
    return !islands_.leaving(id) && (told == nullptr || !told->report());
  });
  return unheard == run.members.end() ? std::nullopt : std::optional<IslandId>(*unheard);
}

// Of a task of which an island still fetches what it needs: what nobody has is looked for as for a waiting task. False once one of its
// inputs is to be made again.
bool TaskRule::can_begin(Run& run, Task& task) {
  const auto fetches = [&](const IslandId& island) {
    const AssignmentReport* report = run.tasks().report_of(task.name(), island);
    return report != nullptr && report->state == "fetching";
  };
  if (unheard_of(run) || (!fetches(task.record().island) && std::ranges::none_of(task.record().members, fetches))) {
    return true;
  }
  settle_checkpoint(run, task);
  return std::ranges::all_of(task.plan().needs, [&](const std::string& need) {
    Task& other = run.tasks().at(need);
    return other.done() && (input_at_hand(run, other) || other.done());
  });
}

// A task that waits for an island only: who can go on with it best, and who cannot do it.
WaitingTask TaskRule::waiting_task(Run& run, Task& task, std::uint64_t size) {
  settle_checkpoint(run, task);
  WaitingTask waiting{task.name(), size, holders_of(run, task.record().checkpoint), {}};
  if (const auto group = runs_.find(task.record().group); group != runs_.end()) {
    for (const auto& [id, membership] : group->second.memberships) {
      waiting.has_state.push_back(id);
    }
  }
  if (task.packs_images()) {
    waiting.has_state.push_back(task.record().island);
    waiting.not_on = cannot_pack(run, task);
  } else if (task.plan().phase == "features" && !task.plan().needs.empty()) {
    waiting.has_state = holders_of(run, run.tasks().at(task.plan().needs.front()).record().result);  // its images need not travel
  }
  std::ranges::copy(cut_from_inputs(run, task), std::back_inserter(waiting.not_on));
  return waiting;
}

// Those whose inputs are there.
std::vector<WaitingTask> TaskRule::waiting_tasks(Run& run) {
  const std::vector<std::uint64_t> sizes = cluster_sizes(run.tasks().at("clustering").record().facts);
  std::vector<WaitingTask> waiting;
  for (const std::string& name : run.tasks().order()) {
    Task& task = run.tasks().at(name);
    if (!task.waiting() || found_images_again(run, task)) {
      continue;
    }
    bool ready = true;
    for (const std::string& need : task.plan().needs) {
      Task& other = run.tasks().at(need);
      ready = ready && other.done() && input_at_hand(run, other);
    }
    if (ready) {
      const std::size_t index = task.plan().phase == "experts" ? number_of(name) : sizes.size();
      waiting.push_back(waiting_task(run, task, index < sizes.size() ? sizes[index] : 0));
    }
  }
  return waiting;
}

std::vector<FreeIsland> TaskRule::free_islands(Run& run) {
  const std::vector<IslandId> busy = run.tasks().busy();
  std::vector<FreeIsland> free;
  for (const IslandId& id : run.members) {
    if (islands_.stays(id) && std::ranges::find(busy, id) == busy.end()) {
      free.push_back({id, run.tasks().told(id).speed()});
    }
  }
  return free;
}

void TaskRule::place_tasks(Run& run) {
  // What can be continued may lie with an island that has not said yet what it has.
  if (const std::optional<IslandId> unheard = unheard_of(run)) {
    run.wait.text = "waits to hear what island " + islands_.name_of(*unheard) + " holds of the run";
    return;
  }
  const std::vector<WaitingTask> waiting = waiting_tasks(run);
  std::vector<FreeIsland> free = free_islands(run);
  if (run.members.size() < run.spec.islands.min) {
    return;
  }
  std::vector<BeginningExpert> begun;
  for (const Placement& placement : decide_placement(waiting, free)) {
    Task& task = run.tasks().at(placement.task);
    task.start(placement.island, out_);
    std::erase_if(free, [&](const FreeIsland& island) { return island.island == placement.island; });
    const auto one = std::ranges::find(waiting, placement.task, &WaitingTask::task);
    begun.push_back({placement.task, one->size});
    const std::uint64_t step = task.record().checkpoint_step;
    event(
        run.about.id, placement.island, "info", "task_started",
        "task " + task.name() + " starts on " + islands_.name_of(placement.island) + (step > 0 ? " from step " + std::to_string(step) : ""),
        {Field{"task", task.name()}});
    touch(run);
  }
  say_what_lacks_images(run);
  say_what_is_out_of_reach(run, waiting);
  if (run.spec.group_rounds > 0 && begun.size() == waiting.size() && !free.empty()) {
    fill_groups(run, begun, std::move(free));
  }
}

std::string TaskRule::progress_of(const Run& run, const Task& task) const {
  const TaskRecord& value = task.record();
  if (const auto group = runs_.find(value.group); group != runs_.end() && !group->second.life.is(RunState::completed)) {
    const Run& rounds = group->second;
    const std::string& reason = rounds.life.reason().text;
    return value.task + " on " + list_of(islands_.names_of(value.members)) + " (round " + std::to_string(rounds.lineage.committed().value) +
           " of " + std::to_string(rounds.spec.rounds) + " of run " + rounds.about.name + (reason.empty() ? ")" : ": " + reason + ")");
  }
  std::string text = value.task + " on " + islands_.name_of(value.island);
  if (const AssignmentReport* report = run.tasks().report_of(value.task, value.island)) {
    const std::string missed = report->error ? "; the last try failed: " + bounded(report->error->why, 256) : "";
    text += report->state == "fetching" ? " (fetches its inputs" + missed + ")"
            : report->steps > 0         ? " (" + std::to_string(report->step) + " of " + std::to_string(report->steps) + ")"
                                        : "";
  }
  return text;
}

// What became of a task that runs, or of its islands. False: the run has failed by it.
bool TaskRule::keep_task(Run& run, Task& task) {
  const bool grouped = !task.record().group.empty();
  if (task.running() && grouped) {
    keep_group(run, task);
  }
  if (task.running() && !grouped && !run.is_member(task.record().island)) {
    const auto membership = run.memberships.find(task.record().island);
    take_back(run, task, membership == run.memberships.end() ? "gone" : membership->second.record.cause);
  }
  if (task.running() && !can_begin(run, task)) {
    grouped ? dissolve_group(run, task, "what it needs is lost") : take_back(run, task, "what it needs is lost");
  }
  if (task.running()) {
    leave_to_others(run, task);
  }
  if (task.failed()) {
    const Error error = run.life.first_error().value_or(Error{Code::internal, "task " + task.name() + " failed"});
    core_.end_run(run, RunState::failed, error.why, error);
    return false;
  }
  return true;
}

void TaskRule::advance(Run& run) {
  run.tasks().plan(run.about.id, run.spec, out_);
  admit_islands(run);
  for (auto& [name, task] : run.tasks().all()) {
    if (!keep_task(run, task)) {
      return;
    }
  }
  if (run.life.pausing() && groups_stand(run)) {
    core_.pause_now(run);
    return;
  }
  if (run.life.pausing()) {
    run.wait.text = "is being paused; waits for the rounds that its groups are in";
  } else {
    place_tasks(run);
  }
  if (run.tasks().done() == run.tasks().all().size()) {
    end_phases(run);
    return;
  }
  say_assignments(run);
  PhasesInput input;
  for (const std::string& name : run.tasks().order()) {
    const Task& task = run.tasks().at(name);
    if (task.running()) {
      input.working.push_back(progress_of(run, task));
    }
  }
  input.done = run.tasks().done();
  input.tasks = run.tasks().all().size();
  input.members = run.members.size();
  input.min = run.spec.islands.min;
  input.lacks = run.wait;
  run.wait = decide_phases_wait(input);
}

TaskView TaskRule::task_view(const Run& run, const Task& task) const {
  const TaskRecord& value = task.record();
  TaskView view;
  view.task = value.task;
  view.phase = task.plan().phase;
  view.state = value.state;
  view.loss = std::numeric_limits<double>::quiet_NaN();
  view.checkpoint_step = value.checkpoint_step;
  view.result = value.result;
  view.result_bytes = value.result_bytes;
  view.facts = value.facts;
  view.starts = value.starts;
  view.started = value.started;
  view.ended = value.ended;
  if (const auto group = runs_.find(value.group); group != runs_.end()) {
    const Run& rounds = group->second;
    view.group.run = value.group;
    view.group.name = rounds.about.name;
    view.group.members = islands_.names_of(value.members);
    view.group.round = rounds.lineage.committed();
    view.group.rounds = rounds.spec.rounds;
    view.group.images = rounds.lineage.tokens();
    view.steps = run.spec.training.steps;
    view.step = std::min(view.steps, view.steps * rounds.lineage.committed().value / std::max<std::uint64_t>(rounds.spec.rounds, 1));
  }
  if (!value.island.empty()) {
    view.island = islands_.name_of(value.island);
  }
  view.copies = static_cast<std::uint32_t>(holders_of(run, value.state == TaskState::done ? value.result : value.checkpoint).size());
  const bool alone = view.group.run.empty() || view.group.round.value == view.group.rounds;
  const AssignmentReport* report = run.tasks().report_of(value.task, value.island);
  if (alone && task.running() && report != nullptr) {
    view.step = report->step;
    view.steps = report->steps;
    view.loss = report->loss;
  }
  return view;
}

void TaskRule::end_phases(Run& run) {
  std::size_t took_part = 0;
  for (auto& [id, membership] : run.memberships) {
    if (membership.record.state == MembershipState::active) {
      membership.record.state = MembershipState::ended;
      core_.save(run, membership);
      ++took_part;
    }
  }
  core_.end_run(run, RunState::completed,
                "all " + std::to_string(run.tasks().all().size()) + " tasks are done; completed with " + std::to_string(took_part) +
                    " of " + std::to_string(run.memberships.size()) + " islands",
                std::nullopt);
}

Result<std::vector<TaskResult>> TaskRule::serve_results(const Run& run, const std::string& reader_key) {
  const Task* last = run.tasks().find("assemble");
  if (last == nullptr) {
    return Rule::serve_results(run, reader_key);
  }
  if (!last->done()) {
    return Error{Code::unavailable, "run " + run.about.name + " has no ensemble yet: " + run.life.reason().text};
  }
  // The island that put it together holds all of it; what others made they hold, too.
  std::vector<TaskResult> results;
  std::set<IslandId> asked;
  for (const auto& [name, task] : run.tasks().all()) {
    const std::vector<std::string>& needs = last->plan().needs;
    if (task.packs_images() || (name != last->name() && std::ranges::find(needs, name) == needs.end())) {
      continue;  // no part of the ensemble
    }
    TaskResult result{name, task.record().result, task.record().result_bytes, {}};
    std::vector<IslandId> holders = run.tasks().keepers(result.digest);
    holders.insert(holders.begin(), {last->record().island, task.record().island});
    for (const IslandId& source : holders) {
      const bool there = std::ranges::find(result.sources, source, &Member::island) != result.sources.end();
      if (islands_.alive(source) && !there) {
        result.sources.push_back(islands_.member_of(source));
        asked.insert(source);
      }
    }
    if (result.sources.empty()) {
      return Error{Code::unavailable, "no connected island has the result of task " + name + " of run " + run.about.name + "; connect " +
                                          islands_.name_of(last->record().island)};
    }
    results.push_back(std::move(result));
  }
  for (const IslandId& island : asked) {
    send(island, Serve{run.about.id, reader_key, Round(0), true});
  }
  return results;
}

}  // namespace atl::coordinator
