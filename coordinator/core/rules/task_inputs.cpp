// Who gets what a task needs: an input lies on islands that not every other one gets data from.
#include <algorithm>

#include "coordinator/core/core_state.hpp"
#include "coordinator/core/rules/task_rule.hpp"

namespace atl::coordinator {

// Of an input that the island gets from nobody who has it one who has it; nothing where it gets all that somebody has.
std::optional<IslandId> TaskRule::holder_out_of_reach(const Run& run, const Task& task, const IslandId& island) const {
  if (!core_.data_paths.paths().any(now())) {
    return std::nullopt;
  }
  std::vector<Digest> needed = {task.record().checkpoint};
  for (const std::string& need : task.plan().needs) {
    needed.push_back(run.tasks().at(need).record().result);
  }
  for (const Digest& digest : needed) {
    const std::vector<IslandId> holders = digest.empty() ? std::vector<IslandId>{} : holders_of(run, digest);
    const bool near = std::ranges::any_of(
        holders, [&](const IslandId& holder) { return holder == island || core_.data_paths.paths().usable(holder, island, now(), true); });
    if (!holders.empty() && !near) {
      return holders.front();
    }
  }
  return std::nullopt;
}

// Members to which it would be of no use to give this task.
std::vector<IslandId> TaskRule::cut_from_inputs(const Run& run, const Task& task) const {
  std::vector<IslandId> cut;
  std::ranges::copy_if(run.members, std::back_inserter(cut),
                       [&](const IslandId& id) { return holder_out_of_reach(run, task, id).has_value(); });
  return cut;
}

// An island that fetches what it does not get gives the task back, or its place in the group.
void TaskRule::leave_to_others(Run& run, Task& task) {
  const auto holder_of_missing = [&](const IslandId& island) {
    const AssignmentReport* report = run.tasks().report_of(task.name(), island);
    return report != nullptr && report->state == "fetching" && report->error ? holder_out_of_reach(run, task, island) : std::nullopt;
  };
  if (const std::optional<IslandId> holder = holder_of_missing(task.record().island)) {
    const std::string why = core_.data_paths.text_of_apart(task.record().island, *holder);
    event(run.about.id, task.record().island, "warning", "task_out_of_reach",
          "task " + task.name() + " is taken from island " + islands_.name_of(task.record().island) +
              ", which does not get what it needs: " + why,
          {Field{"task", task.name()}});
    task.record().group.empty() ? task.wait_again(out_) : dissolve_group(run, task, why);
    touch(run);
    return;
  }
  std::vector<IslandId> gone;
  std::ranges::copy_if(task.record().members, std::back_inserter(gone),
                       [&](const IslandId& id) { return holder_of_missing(id).has_value(); });
  if (!gone.empty()) {
    task.drop_members(gone, out_);
    touch(run);
  }
}

// Of tasks that no member could do, for none gets all that they need: who has to reach whom.
void TaskRule::say_what_is_out_of_reach(Run& run, const std::vector<WaitingTask>& waiting) {
  for (const WaitingTask& one : waiting) {
    const Task& task = run.tasks().at(one.task);
    const bool anybody =
        std::ranges::any_of(run.members, [&](const IslandId& id) { return std::ranges::find(one.not_on, id) == one.not_on.end(); });
    if (!task.waiting() || anybody) {
      continue;
    }
    for (const IslandId& island : run.members) {
      if (const std::optional<IslandId> holder = holder_out_of_reach(run, task, island)) {
        const std::optional<TimePoint> change = core_.data_paths.paths().next_change(now());
        run.wait = Wait{
            "task " + one.task + " waits for an island that gets all that it needs: " + core_.data_paths.text_of_apart(island, *holder),
            change};
        if (change) {
          wake_at(*change);
        }
        return;
      }
    }
  }
}

}  // namespace atl::coordinator
