// Groups: several islands that train one expert, in a run of rounds of its own.
#include <algorithm>
#include <cstdlib>

#include "coordinator/core/core_state.hpp"
#include "coordinator/core/rules/task_rule.hpp"
#include "transport/identity/sha256.hpp"

namespace atl::coordinator {
namespace {

// An id for the run of a task's group that nobody else gives.
RunId group_id(const Run& run, const std::string& task, std::uint32_t count) {
  Sha256 hash;
  hash.update(as_bytes("atoll group\n" + run.about.id.text + "\n" + task + "\n" + std::to_string(count)));
  return RunId("g-" + to_hex(hash.finish()).substr(0, 8));
}

// A run of rounds of as many islands as there are at its beginning.
RunSpec group_spec(const Run& run, const Task& task, const std::string& name, std::size_t members) {
  RunSpec spec = run.spec;
  spec.name = name;
  spec.strategy.name = run.spec.strategy.grouping == FragmentKind::whole ? "diloco" : "streaming-diloco";
  spec.strategy.group = Group::all;
  spec.training.precision = "float32";  // as an island that trains alone
  spec.islands.min = 1;
  spec.islands.max = static_cast<std::uint32_t>(members);
  spec.islands.names.clear();
  spec.data.spread = 0;
  spec.rounds = run.spec.group_rounds;
  spec.group_rounds = 0;
  spec.work = GroupWork{run.about.id.text, task.name(), to_hex(run.tasks().at("clustering").record().result), {}};
  for (std::uint32_t p = 0; p < run.spec.data.spread; ++p) {
    spec.work.images.push_back(to_hex(run.tasks().at("images/" + std::to_string(p)).record().result));
  }
  return spec;
}

}  // namespace

// Nothing waits for an island any more: those that are left go to groups that lack some, then to the experts that have just begun.
void TaskRule::fill_groups(Run& run, const std::vector<BeginningExpert>& begun, std::vector<FreeIsland> left) {
  for (const std::string& name : run.tasks().order()) {
    Task& task = run.tasks().at(name);
    const auto group = runs_.find(task.record().group);
    if (!task.running() || group == runs_.end() || group->second.life.over()) {
      continue;
    }
    std::ranges::stable_sort(left, [&](const FreeIsland& a, const FreeIsland& b) {
      return group->second.memberships.contains(a.island) > group->second.memberships.contains(b.island);  // it knows the rounds already
    });
    while (present_members(run, task).size() < group->second.spec.islands.max) {
      const auto next = std::ranges::find_if(left, [&](const FreeIsland& one) { return !holder_out_of_reach(run, task, one.island); });
      if (next == left.end()) {
        break;
      }
      join_group(run, task, next->island);
      left.erase(next);
    }
  }
  std::vector<BeginningExpert> experts;
  std::ranges::copy_if(begun, std::back_inserter(experts), [&](const BeginningExpert& expert) {
    const Task& task = run.tasks().at(expert.task);
    return task.plan().phase == "experts" && task.record().group.empty() && task.record().checkpoint.empty();
  });
  if (!experts.empty()) {  // all need the same
    const Task& task = run.tasks().at(experts.front().task);
    std::erase_if(left, [&](const FreeIsland& one) { return holder_out_of_reach(run, task, one.island).has_value(); });
  }
  const std::vector<std::vector<IslandId>> groups = decide_groups(experts, left, run.spec.training.batch);
  for (std::size_t i = 0; i < experts.size(); ++i) {
    if (!groups[i].empty()) {
      form_group(run, run.tasks().at(experts[i].task), groups[i]);
    }
  }
}

void TaskRule::form_group(Run& run, Task& task, const std::vector<IslandId>& others) {
  std::uint32_t count = task.record().starts;
  while (runs_.contains(group_id(run, task.name(), count))) {
    ++count;
  }
  const RunId id = group_id(run, task.name(), count);
  std::string short_name = task.name();
  std::ranges::replace(short_name, '/', '-');
  Run& group = runs_[id];
  group.about = RunIdentity{id, run.about.name + "." + short_name + (count > 1 ? "-" + std::to_string(count) : ""), run.about.file, ""};
  core_.rules.adopt(group, group_spec(run, task, short_name, others.size() + 1));
  group.about.spec = to_json(group.spec);
  group.life.submit(now());
  group.last_commit = now();
  group.nobody_since = now();
  task.form_group(id, out_);
  core_.set_state(group, RunState::queued, "waits for its islands");
  event(id, {}, "info", "run_submitted", "run " + group.about.name + " trains " + task.name() + " of run " + run.about.name,
        {Field{"spec", group.about.spec}});
  for (const IslandId& other : others) {
    join_group(run, task, other);
  }
  wake_at(now());
}

void TaskRule::join_group(Run& run, Task& task, const IslandId& island) {
  std::vector<IslandId> gone;  // another takes their place
  std::ranges::copy_if(task.record().members, std::back_inserter(gone), [&](const IslandId& member) { return !run.is_member(member); });
  task.join(island, gone, out_);
  event(run.about.id, island, "info", "task_joined",
        "island " + islands_.name_of(island) + " trains " + task.name() + " with " + std::to_string(task.record().members.size() - 1) +
            " more, in run " + runs_.at(task.record().group).about.name,
        {Field{"task", task.name()}, Field{"group", task.record().group.text}});
  touch(run);
}

std::vector<IslandId> TaskRule::present_members(const Run& run, const Task& task) const {
  std::vector<IslandId> present;
  std::ranges::copy_if(task.record().members, std::back_inserter(present),
                       [&](const IslandId& id) { return run.is_member(id) && islands_.alive(id); });
  return present;
}

// It has a place in the group, and what it needs for the work.
bool TaskRule::is_lent(const Run& group, const IslandId& island) const {
  const auto run = runs_.find(RunId(group.spec.work.run));
  const Tasks* tasks = run == runs_.end() ? nullptr : std::get_if<Tasks>(&run->second.work);
  if (tasks == nullptr || run->second.life.idle()) {
    return false;
  }
  const Task* task = tasks->find(group.spec.work.task);
  const IslandAssignment* told = tasks->find_told(island);
  if (task == nullptr || task->record().group != group.about.id || told == nullptr || told->group() != group.about.id) {
    return false;
  }
  const AssignmentReport* report = told->report_of(task->name());
  return task->has_member(island) && report != nullptr && report->state == "ready";
}

// No group of this run trains.
bool TaskRule::groups_stand(const Run& run) const {
  return std::ranges::none_of(run.tasks().all(), [this](const auto& task) {
    const auto group = runs_.find(task.second.record().group);
    return group != runs_.end() && !group->second.life.idle();
  });
}

// What a task that several islands work on has come to: who speaks for it, and whether its rounds are over.
void TaskRule::keep_group(Run& run, Task& task) {
  const auto found = runs_.find(task.record().group);
  if (found == runs_.end()) {
    dissolve_group(run, task, "the ledger has lost its run");
    return;
  }
  const Run& group = found->second;
  if (group.life.is(RunState::failed) || group.life.is(RunState::cancelled)) {
    task.fail(out_);
    run.life.blame_anew(
        Error{Code::internal, "task " + task.name() + " failed in run " + group.about.name + ": " + group.life.reason().text});
    return;
  }
  if (group.life.is(RunState::completed)) {
    // After the last round one of those goes on that have what their trainer saved then.
    std::vector<IslandId> without;
    std::ranges::copy_if(task.record().members, std::back_inserter(without), [&](const IslandId& id) {
      const AssignmentReport* report = run.tasks().report_of(task.name(), id);
      return holds_another_last(group, id) || (report != nullptr && report->state == "without");
    });
    task.drop_members(without, out_);
  }
  const std::vector<IslandId> present = present_members(run, task);
  if (is_stranded(group) || present.empty()) {
    const TimePoint until = task.missing_since(now()) + run.spec.islands.deadline;
    if (task.record().members.empty() || now() >= until) {
      dissolve_group(run, task, "every island that had its state is gone");
      return;
    }
    run.wait = Wait{
        "waits for an island that trained " + task.name() + " in run " + group.about.name + "; else it is trained again from its beginning",
        until};
    wake_at(until);
  } else {
    task.found();
  }
  if (!present.empty() && std::ranges::find(present, task.record().island) == present.end()) {
    task.speak(present.front(), out_);
    touch(run);
  }
}

// The group's last round was lost and committed anew, and this island has the lost one, which has the same number.
bool TaskRule::holds_another_last(const Run& group, const IslandId& island) const {
  return std::ranges::any_of(islands_.held(island, group.about.id).checkpoints, [&](const HeldCheckpoint& checkpoint) {
    return checkpoint.round == group.lineage.committed() && checkpoint.digest != group.lineage.digest();
  });
}

// Nobody here has the state of the group's rounds.
bool TaskRule::is_stranded(const Run& group) {
  const bool restoring = std::ranges::any_of(
      group.memberships, [](const auto& membership) { return membership.second.record.state == MembershipState::joining; });
  return !group.life.is(RunState::completed) && group.lineage.initialised() && group.members.empty() && !restoring;
}

void TaskRule::dissolve_group(Run& run, Task& task, const std::string& why) {
  event(run.about.id, {}, "warning", "task_again", "task " + task.name() + " begins again: " + why, {Field{"task", task.name()}});
  if (const auto group = runs_.find(task.record().group); group != runs_.end() && !group->second.life.over()) {
    core_.end_run(group->second, RunState::cancelled, why, std::nullopt);
  }
  task.dissolve_group(out_);
  touch(run);
}

}  // namespace atl::coordinator
