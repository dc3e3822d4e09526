// Runs of phases: tasks are placed on islands, their results remembered, and what they can be continued from is copied.
#include "coordinator/core/phases.hpp"

#include <algorithm>
#include <cstdlib>

#include "coordinator/core/core_state.hpp"
#include "transport/identity/sha256.hpp"

namespace atl::coordinator {
namespace {

constexpr std::size_t kMaxFacts = std::size_t{1} << 16;
constexpr std::size_t kCopies = 2;  // of everything that is needed

// The place of a task in the order of the run, for spreading copies.
std::size_t place_of(const Run& run, const std::string& task) {
  return static_cast<std::size_t>(std::find(run.task_order.begin(), run.task_order.end(), task) - run.task_order.begin());
}

// K of "experts/K".
std::size_t number_of(const std::string& task) {
  return static_cast<std::size_t>(std::strtoul(task.c_str() + task.find('/') + 1, nullptr, 10));
}

// An id for the run of a task's group that nobody else gives.
RunId group_id(const Run& run, const std::string& task, std::uint32_t count) {
  Sha256 hash;
  hash.update(as_bytes("atoll group\n" + run.record.id.text + "\n" + task + "\n" + std::to_string(count)));
  return RunId("g-" + to_hex(hash.finish()).substr(0, 8));
}

}  // namespace

void Core::State::ensure_tasks(Run& run) {
  for (TaskPlan& plan : tasks_of(run.spec)) {
    Task& task = run.tasks[plan.task];
    if (task.record.task.empty()) {
      task.record.run = run.record.id;
      task.record.task = plan.task;
      record(task.record);
    }
    if (task.plan.task.empty()) {
      run.task_order.push_back(plan.task);
      task.plan = std::move(plan);
    }
  }
}

// Who is connected, takes part, has this, and was not told to drop it.
std::vector<IslandId> Core::State::holders_of(const Run& run, const Digest& digest) const {
  std::vector<IslandId> holders;
  for (const auto& [id, assignment] : run.assignments) {
    if (!assignment.held.contains(digest)) {
      continue;
    }
    const bool goes = std::ranges::find(assignment.sent.drop, digest, &Content::digest) != assignment.sent.drop.end();
    if (!goes && islands.alive(id) && run.is_member(id)) {
      holders.push_back(id);
    }
  }
  return holders;
}

void Core::State::admit_islands(Run& run) {
  for (auto& [id, membership] : run.memberships) {
    if (membership.record.state == MembershipState::absent && islands.stays(id)) {
      activate(run, membership);
      changed = true;
    }
  }
  for (const auto& [id, island] : islands.all()) {
    if (run.members.size() < run.spec.islands.max && run.memberships.count(id) == 0 && island.greeted && admits_name(run, island) &&
        obstacle_of(run, island).empty()) {
      add_membership(run, id, MembershipState::absent, StartFrom::scratch);
      activate(run, run.memberships.at(id));
    }
  }
}

bool Core::State::says_nothing_new(const IslandId& id, const AssignmentReport& message) const {
  const Island* island = islands.find(id);
  const auto run = runs.find(message.run);
  if (island == nullptr || !island->greeted || island->probe || run == runs.end()) {
    return false;
  }
  const auto found = run->second.assignments.find(id);
  if (found == run->second.assignments.end() || !found->second.report) {
    return false;
  }
  const IslandAssignment& assignment = found->second;
  const AssignmentReport& before = *assignment.report;
  return message.number == before.number && message.task == before.task && message.state == before.state &&
         message.result == before.result && message.checkpoint == before.checkpoint && message.error == before.error &&
         message.held.size() == assignment.held.size() &&
         std::ranges::all_of(message.held, [&](const Content& content) { return assignment.held.contains(content.digest); });
}

void Core::State::on_assignment_report(Run& run, Membership& membership, const AssignmentReport& message) {
  const IslandId island = membership.record.island;
  if (membership.record.state != MembershipState::active || !run.phased()) {
    return;
  }
  IslandAssignment& assignment = run.assignments[island];
  if (assignment.report && message.number < assignment.report->number) {
    return;  // it comes late: what it tells of may be gone
  }
  assignment.report = message;
  assignment.report->facts.clear();
  assignment.report->held.clear();
  assignment.held.clear();
  for (const Content& content : message.held) {
    assignment.held[content.digest] = content.bytes;
  }
  if (message.images_per_second > 0) {
    assignment.speed = message.images_per_second;
  }
  changed = true;
  for (auto& [name, task] : run.tasks) {
    if (task.record.state == TaskState::running && task.record.island != island && assignment.held.contains(task.record.checkpoint)) {
      task.copied = Content{task.record.checkpoint, task.record.checkpoint_bytes, {}};
      task.copied_step = task.record.checkpoint_step;
    }
  }
  const auto found = run.tasks.find(message.task);
  if (found == run.tasks.end() || found->second.record.state != TaskState::running || found->second.record.island != island) {
    return;
  }
  // What it did before it heard that this task is its own now may be of an earlier start, with another group, and on its way to be dropped.
  if (assignment.work_since == 0 || message.number < assignment.work_since) {
    return;
  }
  TaskRecord& task = found->second.record;
  if (is_images(found->second) && !takes_images(run, found->second, message)) {
    return;
  }
  // Half a part of one island's images is nothing that another could go on with.
  if (!message.checkpoint.digest.empty() && message.checkpoint_step > task.checkpoint_step && !is_images(found->second)) {
    task.checkpoint = message.checkpoint.digest;
    task.checkpoint_bytes = message.checkpoint.bytes;
    task.checkpoint_step = message.checkpoint_step;
    record(task);
  }
  if (message.state == "done" && !message.result.digest.empty()) {
    task.state = TaskState::done;
    task.result = message.result.digest;
    task.result_bytes = message.result.bytes;
    task.facts = message.facts.size() <= kMaxFacts ? message.facts : "{}";
    task.checkpoint = Digest{};
    task.ended = now();
    task.members.clear();
    record(task);
    event(run.record.id, island, "info", "task_done", "task " + task.task + " is done on " + islands.name_of(island),
          {Field{"task", task.task}});
    Round trained;
    for (const auto& [name, other] : run.tasks) {
      const bool trains = other.plan.phase == "experts" || other.plan.phase == "router";
      trained = trains && other.record.state == TaskState::done ? trained.next() : trained;
    }
    run.lineage.reach(trained);
    record(run.to_record());
  } else if (message.state == "failed") {
    const Error error{message.error ? message.error->code : Code::internal,
                      bounded(message.error ? message.error->why : "no reason was given")};
    task.state = TaskState::failed;
    record(task);
    run.first_error = Error{error.code, "task " + task.task + " failed on island " + islands.name_of(island) + ": " + error.why};
  }
}

// Back to those that wait, to be continued from the newest copy.
void Core::State::take_back(Run& run, Task& task, const std::string& why) {
  event(run.record.id, task.record.island, "warning", "task_interrupted",
        "task " + task.record.task + " has lost its island " + islands.name_of(task.record.island) + " (" + why +
            "); it goes on elsewhere" +
            (task.record.checkpoint_step > 0 ? " from step " + std::to_string(task.record.checkpoint_step) + " or an older copy"
                                             : " from its beginning"));
  task.record.state = TaskState::waiting;
  task.record.island =
      task.record.result.empty() ? IslandId() : task.record.island;  // images that were packed before: only it can do so again
  record(task.record);
  changed = true;
}

// Those that are not done wait again, for any island.
void Core::State::give_up_tasks(Run& run) {
  for (auto& [name, task] : run.tasks) {
    if (task.record.state == TaskState::failed || task.record.state == TaskState::running) {
      task.record.state = TaskState::waiting;
      task.record.island = task.record.result.empty() ? IslandId() : task.record.island;
      task.record.members.clear();
      record(task.record);
    }
  }
}

// A result that no connected island has: its island may come back; after the deadline it is made again.
bool Core::State::input_at_hand(Run& run, Task& task) {
  if (!holders_of(run, task.record.result).empty()) {
    task.missing_since.reset();
    return true;
  }
  if (is_images(task) && images_are_used(run, task)) {
    wait_for_images(run, task);
    return false;
  }
  task.missing_since = task.missing_since ? task.missing_since : std::optional<TimePoint>(now());
  const TimePoint until = *task.missing_since + run.spec.islands.deadline;
  if (now() < until) {
    run.wait = Wait{"waits for an island that has the result of task " + task.record.task + " (made by " +
                        islands.name_of(task.record.island) + "); else it is made again",
                    until};
    wake_at(until);
    return false;
  }
  event(run.record.id, {}, "warning", "task_again",
        "the result of task " + task.record.task + " is lost with every island that had it: it is made again");
  task.missing_since.reset();
  task.record.state = TaskState::waiting;
  task.record.result = Digest{};
  record(task.record);
  changed = true;
  return false;
}

// What a task goes on from: the newest checkpoint, if somebody has it, or the one that was copied before, or nothing.
void Core::State::settle_checkpoint(Run& run, Task& task) {
  if (task.record.checkpoint.empty() || !holders_of(run, task.record.checkpoint).empty()) {
    return;
  }
  const bool older = !task.copied.digest.empty() && !holders_of(run, task.copied.digest).empty();
  task.record.checkpoint = older ? task.copied.digest : Digest{};
  task.record.checkpoint_bytes = older ? task.copied.bytes : 0;
  task.record.checkpoint_step = older ? task.copied_step : 0;
  record(task.record);
}

// A member that has not said yet what it holds, if there is one; after a restart of the coordinator that is also one that has not come
// again.
std::optional<IslandId> Core::State::unheard_of(const Run& run) const {
  const auto unheard = std::ranges::find_if(run.members, [&](const IslandId& id) {
    const auto assignment = run.assignments.find(id);
    return !islands.leaving(id) && (assignment == run.assignments.end() || !assignment->second.report);
  });
  return unheard == run.members.end() ? std::nullopt : std::optional<IslandId>(*unheard);
}

// Of a task of which an island still fetches what it needs: what nobody has is looked for as for a waiting task. False once one of its
// inputs is to be made again.
bool Core::State::can_begin(Run& run, Task& task) {
  const auto fetches = [&](const IslandId& island) {
    const auto assignment = run.assignments.find(island);
    return assignment != run.assignments.end() && assignment->second.report && assignment->second.report->task == task.record.task &&
           assignment->second.report->state == "fetching";
  };
  if (unheard_of(run) || (!fetches(task.record.island) && std::ranges::none_of(task.record.members, fetches))) {
    return true;
  }
  settle_checkpoint(run, task);
  return std::ranges::all_of(task.plan.needs, [&](const std::string& need) {
    Task& other = run.tasks.at(need);
    return other.record.state == TaskState::done && (input_at_hand(run, other) || other.record.state == TaskState::done);
  });
}

void Core::State::place_tasks(Run& run) {
  // What can be continued may lie with an island that has not said yet what it has.
  if (const std::optional<IslandId> unheard = unheard_of(run)) {
    run.wait.text = "waits to hear what island " + islands.name_of(*unheard) + " holds of the run";
    return;
  }
  std::vector<WaitingTask> waiting;
  const std::vector<std::uint64_t> sizes = cluster_sizes(run.tasks.at("clustering").record.facts);
  for (const std::string& name : run.task_order) {
    Task& task = run.tasks.at(name);
    if (task.record.state != TaskState::waiting || found_images_again(run, task)) {
      continue;
    }
    bool ready = true;
    for (const std::string& need : task.plan.needs) {
      Task& other = run.tasks.at(need);
      ready = ready && other.record.state == TaskState::done && input_at_hand(run, other);
    }
    if (ready) {
      const std::size_t index = task.plan.phase == "experts" ? number_of(name) : sizes.size();
      settle_checkpoint(run, task);
      std::vector<IslandId> has_state = holders_of(run, task.record.checkpoint);
      if (const auto group = runs.find(task.record.group); group != runs.end()) {
        for (const auto& [id, membership] : group->second.memberships) {
          has_state.push_back(id);
        }
      }
      std::vector<IslandId> not_on;
      if (is_images(task)) {
        has_state.push_back(task.record.island);
        not_on = cannot_pack(run, task);
      } else if (task.plan.phase == "features" && !task.plan.needs.empty()) {
        has_state = holders_of(run, run.tasks.at(task.plan.needs.front()).record.result);  // its images need not travel
      }
      waiting.push_back({name, index < sizes.size() ? sizes[index] : 0, std::move(has_state), std::move(not_on)});
    }
  }
  std::set<IslandId> busy;
  for (const auto& [name, task] : run.tasks) {
    if (task.record.state == TaskState::running) {
      busy.insert(task.record.island);
      busy.insert(task.record.members.begin(), task.record.members.end());
    }
  }
  std::vector<FreeIsland> free;
  for (const IslandId& id : run.members) {
    if (islands.stays(id) && !busy.contains(id)) {
      free.push_back({id, run.assignments[id].speed});
    }
  }
  if (run.members.size() < run.spec.islands.min) {
    return;
  }
  std::vector<std::string> begun;
  for (const Placement& placement : decide_placement(waiting, free)) {
    TaskRecord& task = run.tasks.at(placement.task).record;
    task.state = TaskState::running;
    task.island = placement.island;
    task.started = now();
    ++task.starts;
    if (!task.group.empty()) {
      task.members = {placement.island};
    }
    record(task);
    std::erase_if(free, [&](const FreeIsland& island) { return island.island == placement.island; });
    begun.push_back(placement.task);
    event(run.record.id, placement.island, "info", "task_started",
          "task " + task.task + " starts on " + islands.name_of(placement.island) +
              (task.checkpoint_step > 0 ? " from step " + std::to_string(task.checkpoint_step) : ""),
          {Field{"task", task.task}});
    changed = true;
  }
  say_what_lacks_images(run);
  if (run.spec.group_rounds > 0 && begun.size() == waiting.size() && !free.empty()) {
    fill_groups(run, begun, sizes, std::move(free));
  }
}

// Nothing waits for an island any more: those that are left go to groups that lack some, then to the experts that have just begun.
void Core::State::fill_groups(Run& run, const std::vector<std::string>& begun, const std::vector<std::uint64_t>& sizes,
                              std::vector<FreeIsland> left) {
  for (const std::string& name : run.task_order) {
    Task& task = run.tasks.at(name);
    const auto group = runs.find(task.record.group);
    if (task.record.state != TaskState::running || group == runs.end() || has_ended(group->second.record.state)) {
      continue;
    }
    std::ranges::stable_sort(left, [&](const FreeIsland& a, const FreeIsland& b) {
      return group->second.memberships.contains(a.island) > group->second.memberships.contains(b.island);  // it knows the rounds already
    });
    while (!left.empty() && present_members(run, task).size() < group->second.spec.islands.max) {
      join_group(run, task, left.front().island);
      left.erase(left.begin());
    }
  }
  std::vector<BeginningExpert> experts;
  for (const std::string& name : begun) {
    const Task& task = run.tasks.at(name);
    if (task.plan.phase == "experts" && task.record.group.empty() && task.record.checkpoint.empty()) {
      const std::size_t index = number_of(name);
      experts.push_back({name, index < sizes.size() ? sizes[index] : 0});
    }
  }
  const std::vector<std::vector<IslandId>> groups = decide_groups(experts, left, run.spec.training.batch);
  for (std::size_t i = 0; i < experts.size(); ++i) {
    if (!groups[i].empty()) {
      form_group(run, run.tasks.at(experts[i].task), groups[i]);
    }
  }
}

// A run of rounds of its own, with as many parts of the cluster as there are islands at its beginning.
void Core::State::form_group(Run& run, Task& task, const std::vector<IslandId>& others) {
  TaskRecord& value = task.record;
  std::uint32_t count = value.starts;
  while (runs.contains(group_id(run, value.task, count))) {
    ++count;
  }
  const RunId id = group_id(run, value.task, count);
  std::string short_name = value.task;
  std::ranges::replace(short_name, '/', '-');
  Run& group = runs[id];
  group.spec = run.spec;
  group.spec.name = short_name;
  group.spec.strategy.name = run.spec.strategy.grouping == FragmentKind::whole ? "diloco" : "streaming-diloco";
  group.spec.strategy.group = Group::all;
  group.spec.training.precision = "float32";  // as an island that trains alone
  group.spec.islands.min = 1;
  group.spec.islands.max = static_cast<std::uint32_t>(others.size()) + 1;
  group.spec.islands.names.clear();
  group.spec.data.parts = group.spec.islands.max;
  group.spec.data.spread = 0;
  group.spec.rounds = run.spec.group_rounds;
  group.spec.group_rounds = 0;
  group.spec.work = GroupWork{run.record.id.text, value.task, to_hex(run.tasks.at("clustering").record.result), {}};
  for (std::uint32_t p = 0; p < run.spec.data.spread; ++p) {
    group.spec.work.images.push_back(to_hex(run.tasks.at("images/" + std::to_string(p)).record.result));
  }
  group.record.id = id;
  group.adopt_spec(RunSpec(group.spec));
  group.record.name = run.record.name + "." + short_name + (count > 1 ? "-" + std::to_string(count) : "");
  group.record.file = run.record.file;
  group.record.spec = to_json(group.spec);
  group.record.submitted = now();
  group.last_commit = now();
  group.nobody_since = now();
  value.group = id;
  value.members = {value.island};
  set_state(group, RunState::queued, "waits for its islands");
  event(id, {}, "info", "run_submitted", "run " + group.record.name + " trains " + value.task + " of run " + run.record.name,
        {Field{"spec", group.record.spec}});
  for (const IslandId& other : others) {
    join_group(run, task, other);
  }
  record(value);
  wake_at(now());
}

void Core::State::join_group(Run& run, Task& task, const IslandId& island) {
  std::erase_if(task.record.members, [&](const IslandId& member) { return !run.is_member(member); });  // another has taken its place
  task.record.members.push_back(island);
  record(task.record);
  event(run.record.id, island, "info", "task_joined",
        "island " + islands.name_of(island) + " trains " + task.record.task + " with " + std::to_string(task.record.members.size() - 1) +
            " more, in run " + runs.at(task.record.group).record.name,
        {Field{"task", task.record.task}, Field{"group", task.record.group.text}});
  changed = true;
}

std::vector<IslandId> Core::State::present_members(const Run& run, const Task& task) const {
  std::vector<IslandId> present;
  std::ranges::copy_if(task.record.members, std::back_inserter(present),
                       [&](const IslandId& id) { return run.is_member(id) && islands.alive(id); });
  return present;
}

// It has a place in the group, and what it needs for the work.
bool Core::State::is_lent(const Run& group, const IslandId& island) const {
  const auto run = runs.find(RunId(group.spec.work.run));
  if (run == runs.end() || is_idle(run->second.record.state)) {
    return false;
  }
  const auto task = run->second.tasks.find(group.spec.work.task);
  const auto assignment = run->second.assignments.find(island);
  if (task == run->second.tasks.end() || task->second.record.group != group.record.id || assignment == run->second.assignments.end() ||
      !assignment->second.report || assignment->second.sent.group != group.record.id) {
    return false;
  }
  const AssignmentReport& report = *assignment->second.report;
  return std::ranges::find(task->second.record.members, island) != task->second.record.members.end() &&
         report.task == group.spec.work.task && report.state == "ready";
}

// No group of this run trains.
bool Core::State::groups_stand(const Run& run) const {
  return std::ranges::none_of(run.tasks, [this](const auto& task) {
    const auto group = runs.find(task.second.record.group);
    return group != runs.end() && !is_idle(group->second.record.state);
  });
}

// What a task that several islands work on has come to: who speaks for it, and whether its rounds are over.
void Core::State::keep_group(Run& run, Task& task) {
  TaskRecord& value = task.record;
  const auto found = runs.find(value.group);
  if (found == runs.end()) {
    dissolve_group(run, task, "the ledger has lost its run");
    return;
  }
  const Run& group = found->second;
  if (group.record.state == RunState::failed || group.record.state == RunState::cancelled) {
    value.state = TaskState::failed;
    record(value);
    run.first_error = Error{Code::internal, "task " + value.task + " failed in run " + group.record.name + ": " + group.record.reason.text};
    return;
  }
  // After the last round one of those goes on that have what their trainer saved then.
  const bool over = group.record.state == RunState::completed;
  if (over) {
    const auto without = [&](const IslandId& id) {
      const auto assignment = run.assignments.find(id);
      return assignment != run.assignments.end() && assignment->second.report && assignment->second.report->task == value.task &&
             assignment->second.report->state == "without";
    };
    if (std::erase_if(value.members, without) > 0) {
      record(value);
    }
  }
  const std::vector<IslandId> present = present_members(run, task);
  const bool restoring = std::ranges::any_of(
      group.memberships, [](const auto& membership) { return membership.second.record.state == MembershipState::joining; });
  const bool stranded =
      !over && group.lineage.initialised() && group.members.empty() && !restoring;  // nobody here has the state of its rounds
  if (present.empty() || stranded) {
    task.missing_since = task.missing_since.value_or(now());
    const TimePoint until = *task.missing_since + run.spec.islands.deadline;
    if (value.members.empty() || now() >= until) {
      dissolve_group(run, task, "every island that had its state is gone");
      return;
    }
    run.wait = Wait{
        "waits for an island that trained " + value.task + " in run " + group.record.name + "; else it is trained again from its beginning",
        until};
    wake_at(until);
  } else {
    task.missing_since.reset();
  }
  if (present.empty()) {
    return;
  }
  if (std::ranges::find(present, value.island) == present.end()) {
    value.island = present.front();
    record(value);
    changed = true;
  }
}

void Core::State::dissolve_group(Run& run, Task& task, const std::string& why) {
  event(run.record.id, {}, "warning", "task_again", "task " + task.record.task + " begins again: " + why,
        {Field{"task", task.record.task}});
  if (const auto group = runs.find(task.record.group); group != runs.end() && !has_ended(group->second.record.state)) {
    end_run(group->second, RunState::cancelled, why, std::nullopt);
  }
  task.missing_since.reset();
  task.record.group = RunId();
  task.record.members.clear();
  task.record.island = IslandId();
  task.record.state = TaskState::waiting;
  record(task.record);
  changed = true;
}

std::string Core::State::progress_of(const Run& run, const Task& task) const {
  const TaskRecord& value = task.record;
  if (const auto group = runs.find(value.group); group != runs.end() && group->second.record.state != RunState::completed) {
    const Run& rounds = group->second;
    return value.task + " on " + list_of(islands.names_of(value.members)) + " (round " + std::to_string(rounds.lineage.committed().value) +
           " of " + std::to_string(rounds.spec.rounds) + " of run " + rounds.record.name +
           (rounds.record.reason.text.empty() ? ")" : ": " + rounds.record.reason.text + ")");
  }
  const auto assignment = run.assignments.find(value.island);
  std::string text = value.task + " on " + islands.name_of(value.island);
  if (assignment != run.assignments.end() && assignment->second.report && assignment->second.report->task == value.task) {
    const AssignmentReport& report = *assignment->second.report;
    text += report.state == "fetching" ? " (fetches its inputs)"
            : report.steps > 0         ? " (" + std::to_string(report.step) + " of " + std::to_string(report.steps) + ")"
                                       : "";
  }
  return text;
}

// The second island that keeps something of a task: it stays the same while it is there; a new one is best one that has it.
IslandId Core::State::copy_place(Run& run, Task& task) {
  const IslandId& owner = task.record.island;
  if (!task.copy_on.empty() && task.copy_on != owner && run.is_member(task.copy_on) && islands.alive(task.copy_on)) {
    return task.copy_on;
  }
  std::vector<IslandId> others;
  for (const IslandId& id : run.members) {
    if (id != owner && islands.stays(id)) {
      others.push_back(id);
    }
  }
  const Digest& kept = task.record.state == TaskState::done ? task.record.result : task.record.checkpoint;
  for (const IslandId& id : kept.empty() ? std::vector<IslandId>{} : holders_of(run, kept)) {
    if (std::find(others.begin(), others.end(), id) != others.end()) {
      task.copy_on = id;
      return id;
    }
  }
  task.copy_on = others.empty() ? IslandId() : others[place_of(run, task.record.task) % others.size()];
  return task.copy_on;
}

// Whoever made it and the second island keep it. While they do not have it, others that do stand in for them.
bool Core::State::has_to_keep(Run& run, Task& task, const Digest& digest, const IslandId& island) {
  const IslandId copy = copy_place(run, task);
  std::vector<IslandId> others;
  std::size_t copies = 0;
  for (const IslandId& id : holders_of(run, digest)) {
    if (id == task.record.island || id == copy) {
      ++copies;
    } else {
      others.push_back(id);
    }
  }
  others.resize(std::min(others.size(), kCopies - std::min(copies, kCopies)));
  return std::ranges::find(others, island) != others.end();
}

Assignment Core::State::assignment_of(Run& run, const IslandId& island) {
  Assignment assignment;
  assignment.run = run.record.id;
  assignment.epoch = run.record.epoch;
  const auto content = [&](const Digest& digest, std::uint64_t bytes) { return Content{digest, bytes, holders_of(run, digest)}; };
  for (const std::string& name : run.task_order) {
    Task& task = run.tasks.at(name);
    const TaskRecord& value = task.record;
    const bool own = value.island == island;
    const auto group = runs.find(value.group);
    const bool over = group != runs.end() && group->second.record.state == RunState::completed;
    const bool helps = group != runs.end() && !over && std::ranges::find(value.members, island) != value.members.end();
    if (value.state == TaskState::running && (own || helps)) {
      assignment.group = value.group;
      assignment.group_round = over ? Round(group->second.spec.rounds) : Round(0);
      assignment.task = name;
      for (const std::string& need : task.plan.needs) {
        const TaskRecord& other = run.tasks.at(need).record;
        assignment.inputs.push_back({need, content(other.result, other.result_bytes)});
      }
      if (!value.checkpoint.empty()) {
        assignment.resume = content(value.checkpoint, value.checkpoint_bytes);
      }
    }
    const bool copies = copy_place(run, task) == island;
    const std::map<Digest, std::uint64_t>& held = run.assignments[island].held;
    const bool waits = value.state == TaskState::waiting;
    const bool kept = waits ? held.contains(value.checkpoint) : copies || has_to_keep(run, task, value.checkpoint, island);
    if (!value.checkpoint.empty() && value.state != TaskState::done && kept) {
      assignment.keep.push_back(content(value.checkpoint, value.checkpoint_bytes));
    }
    // Until the newest is here, the copy before it stays.
    if (value.state != TaskState::done && task.copied.digest != value.checkpoint && !held.contains(value.checkpoint) &&
        held.contains(task.copied.digest)) {
      assignment.keep.push_back(content(task.copied.digest, task.copied.bytes));
    }
    // Images are kept by whoever has fetched them: every task that trains needs them again.
    const bool images = is_images(task) && held.contains(value.result);
    if (images || (value.state == TaskState::done && (own || copies || has_to_keep(run, task, value.result, island)))) {
      assignment.keep.push_back(content(value.result, value.result_bytes));
    }
  }
  std::set<Digest> needed = {assignment.resume.digest};
  for (const TaskInput& input : assignment.inputs) {
    needed.insert(input.content.digest);
  }
  for (const Content& kept : assignment.keep) {
    needed.insert(kept.digest);
  }
  for (const auto& [digest, bytes] : run.assignments[island].held) {
    if (!needed.contains(digest)) {
      assignment.drop.push_back(Content{digest, bytes, {}});
    }
  }
  return assignment;
}

void Core::State::say_assignments(Run& run) {
  const std::vector<Member> members = islands.members_of(run.members);
  const auto say = [&](const IslandId& id, const IslandAssignment& known) {
    Assignment whole = known.sent;
    whole.spec = run.record.spec;
    whole.members = known.members;
    send(id, std::move(whole));
  };
  for (const IslandId& id : run.members) {
    if (!islands.alive(id)) {
      continue;
    }
    IslandAssignment& known = run.assignments[id];
    Assignment assignment = assignment_of(run, id);
    assignment.number = known.sent.number;
    // An island that has a newer assignment heard it from this coordinator before its restart.
    const std::uint64_t heard = known.report ? known.report->number : 0;
    if (assignment != known.sent || members != known.members || known.sent.number == 0 || heard > known.sent.number) {
      // The first is above all that a coordinator before a restart said: numbers are not in the ledger.
      const std::uint64_t before =
          known.sent.number == 0 ? static_cast<std::uint64_t>(std::max<std::int64_t>(unix_ms(now()), 0)) : known.sent.number;
      assignment.number = std::max(heard, before) + 1;
      const bool same =
          assignment.task == known.sent.task && assignment.group == known.sent.group && assignment.group_round == known.sent.group_round;
      known.work_since = same && known.work_since > 0 ? known.work_since : assignment.number;
      known.sent = std::move(assignment);
      known.members = members;
      restart(known.resend);
      say(id, known);
    } else if (!known.report || known.report->number < known.sent.number) {
      if (due(known.resend)) {
        say(id, known);
      }
      wake_at(known.resend.next);
    }
  }
}

void Core::State::advance_phases(Run& run) {
  ensure_tasks(run);
  admit_islands(run);
  for (auto& [name, task] : run.tasks) {
    const bool grouped = !task.record.group.empty();
    if (task.record.state == TaskState::running && grouped) {
      keep_group(run, task);
    }
    if (task.record.state == TaskState::running && !grouped && !run.is_member(task.record.island)) {
      const auto membership = run.memberships.find(task.record.island);
      take_back(run, task, membership == run.memberships.end() ? "gone" : membership->second.record.cause);
    }
    if (task.record.state == TaskState::running && !can_begin(run, task)) {
      grouped ? dissolve_group(run, task, "what it needs is lost") : take_back(run, task, "what it needs is lost");
    }
    if (task.record.state == TaskState::failed) {
      const Error error = run.first_error.value_or(Error{Code::internal, "task " + name + " failed"});
      end_run(run, RunState::failed, error.why, error);
      return;
    }
  }
  if (run.record.pause_after && groups_stand(run)) {
    pause_now(run);
    return;
  }
  if (run.record.pause_after) {
    run.wait.text = "is being paused; waits for the rounds that its groups are in";
  } else {
    place_tasks(run);
  }
  std::vector<std::string> working;
  std::size_t done = 0;
  for (const std::string& name : run.task_order) {
    const Task& task = run.tasks.at(name);
    done += task.record.state == TaskState::done ? 1U : 0U;
    if (task.record.state == TaskState::running) {
      working.push_back(progress_of(run, task));
    }
  }
  if (done == run.tasks.size()) {
    end_phases(run);
    return;
  }
  say_assignments(run);
  if (!working.empty()) {
    const std::string text = std::to_string(done) + " of " + std::to_string(run.tasks.size()) + " tasks are done; " + list_of(working);
    run.wait.text = run.wait.text.empty() ? text : text + "; " + run.wait.text;
  } else if (run.wait.text.empty()) {
    run.wait.text = "waits for islands: " + std::to_string(run.members.size()) + " of at least " + std::to_string(run.spec.islands.min);
  }
}

void Core::State::end_phases(Run& run) {
  std::size_t took_part = 0;
  for (auto& [id, membership] : run.memberships) {
    if (membership.record.state == MembershipState::active) {
      membership.record.state = MembershipState::ended;
      save(run, membership);
      ++took_part;
    }
  }
  end_run(run, RunState::completed,
          "all " + std::to_string(run.tasks.size()) + " tasks are done; completed with " + std::to_string(took_part) + " of " +
              std::to_string(run.memberships.size()) + " islands",
          std::nullopt);
}

Result<std::vector<TaskResult>> Core::serve_results(TimePoint now, const RunId& id, const std::string& reader_key) {
  State& state = *state_;
  state.out.advance_to(now);
  const auto found = state.runs.find(id);
  if (found == state.runs.end()) {
    return Error{Code::not_found, "there is no run " + id.text};
  }
  Run& run = found->second;
  const auto last = run.tasks.find("assemble");
  if (last == run.tasks.end()) {
    return Error{Code::invalid_argument, "run " + run.record.name + " has no ensemble; `atoll export` writes its model"};
  }
  if (last->second.record.state != TaskState::done) {
    return Error{Code::unavailable, "run " + run.record.name + " has no ensemble yet: " + run.record.reason.text};
  }
  // The island that put it together holds all of it; what others made they hold, too.
  std::vector<TaskResult> results;
  std::set<IslandId> asked;
  for (const auto& [name, task] : run.tasks) {
    const std::vector<std::string>& needs = last->second.plan.needs;
    if (State::is_images(task) || (name != last->first && std::ranges::find(needs, name) == needs.end())) {
      continue;  // no part of the ensemble
    }
    TaskResult result{name, task.record.result, task.record.result_bytes, {}};
    for (const IslandId& source : {last->second.record.island, task.record.island}) {
      const bool there =
          std::any_of(result.sources.begin(), result.sources.end(), [&](const Member& member) { return member.island == source; });
      if (state.islands.alive(source) && !there) {
        result.sources.push_back(state.islands.member_of(source));
        asked.insert(source);
      }
    }
    if (result.sources.empty()) {
      return Error{Code::unavailable, "no connected island has the result of task " + name + " of run " + run.record.name + "; connect " +
                                          state.islands.name_of(last->second.record.island)};
    }
    results.push_back(std::move(result));
  }
  for (const IslandId& island : asked) {
    state.send(island, Serve{id, reader_key, Round(0), true});
  }
  return results;
}

}  // namespace atl::coordinator
