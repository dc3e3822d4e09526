// A data set whose parts lie on several islands (data.spread): who packs which part, and what is waited for when one is lost.
#include <algorithm>

#include "coordinator/core/core_state.hpp"
#include "coordinator/core/rules/task_rule.hpp"
#include "transport/base/planted.hpp"

namespace atl::coordinator {

// What rests on these images has begun: other ones cannot take their place.
bool TaskRule::images_are_used(const Run& run, const Task& task) const {
  return std::ranges::any_of(run.tasks().all(), [&](const auto& other) {
    const std::vector<std::string>& needs = other.second.plan().needs;
    return !other.second.waiting() && std::ranges::find(needs, task.name()) != needs.end();
  });
}

// False if what the island says of its images is no result to go on with.
bool TaskRule::takes_images(Run& run, Task& task, const AssignmentReport& message) {
  const TaskRecord& value = task.record();
  if (message.state == "failed" && message.error && (message.error->code == Code::unauthorized || message.error->code == Code::not_found)) {
    run.tasks().told(value.island).has_no_images(bounded(message.error->why, 512));
    event(run.about.id, value.island, "warning", "no_images",
          "island " + islands_.name_of(value.island) + " has no images of its own: " + message.error->why, {Field{"task", value.task}});
    task.wait_again(out_);
    return false;
  }
  if (message.state != "done" || message.result.digest.empty()) {
    return true;
  }
  const auto fail = [&](const std::string& why) {
    run.life.blame_anew(Error{Code::invalid_argument, why});
    task.fail(out_);
    return false;
  };
  if (!value.result.empty() && value.result != message.result.digest) {
    return fail("the images of island " + islands_.name_of(value.island) + " have changed since they were packed (task " + value.task +
                "), and what was made of them is no good any more; submit the run again");
  }
  for (const auto& [name, other] : run.tasks().all()) {
    if (other.packs_images() && name != value.task && other.record().result == message.result.digest) {
      return fail("islands " + islands_.name_of(other.record().island) + " and " + islands_.name_of(value.island) +
                  " have the same images; with data.spread = " + std::to_string(run.spec.data.spread) +
                  " each of so many islands has images of its own (0: every island has the whole data set)");
    }
  }
  return true;
}

// Why this island has no images of its own to pack; empty if it may have.
std::string TaskRule::lack_of_images(const Run& run, const IslandId& island) const {
  if (!core_.has_set(run, islands_.at(island))) {
    return "its agent maps no data set '" + run.spec.data.set + "'";
  }
  const IslandAssignment* told = run.tasks().find_told(island);
  return told == nullptr ? "" : told->no_images();
}

// An island packs one part, and one that was packed and lost can only be packed again where it was.
std::vector<IslandId> TaskRule::cannot_pack(const Run& run, const Task& task) const {
  std::vector<IslandId> barred;
  std::ranges::copy_if(run.members, std::back_inserter(barred), [&](const IslandId& id) {
    const bool has_none = !lack_of_images(run, id).empty();
    const bool has_packed = !ATOLL_PLANTED(packs_twice) && std::ranges::any_of(run.tasks().all(), [&](const auto& other) {
      const TaskRecord& value = other.second.record();
      return other.second.packs_images() && value.task != task.name() && value.island == id &&
             (value.state != TaskState::waiting || !value.result.empty());
    });
    return has_none || has_packed || (!task.record().result.empty() && id != task.record().island);
  });
  return barred;
}

// Images that were lost, on an island that is back with them.
bool TaskRule::found_images_again(Run& run, Task& task) {
  if (!task.packs_images() || task.record().result.empty() || holders_of(run, task.record().result).empty()) {
    return false;
  }
  task.find_result(out_);
  touch(run);
  return true;
}

// Nobody connected has the packed images any more: their own island packs them again.
void TaskRule::wait_for_images(Run& run, Task& task) {
  const IslandId& owner = task.record().island;
  if (run.is_member(owner) && islands_.alive(owner)) {
    event(run.about.id, owner, "warning", "task_again",
          "the result of task " + task.name() + " is lost with every island that had it; " + islands_.name_of(owner) +
              " packs its images again");
    task.wait_again(out_);
    touch(run);
    return;
  }
  run.wait = Wait{"waits for island " + islands_.name_of(owner) + " or another that has the images of task " + task.name() +
                      ": nobody else can pack them again",
                  {}};
}

void TaskRule::say_what_lacks_images(Run& run) {
  std::size_t lacking = 0;
  std::string again;
  for (const std::string& name : run.tasks().order()) {
    const Task& task = run.tasks().at(name);
    if (task.packs_images() && task.waiting()) {
      ++lacking;
      again +=
          task.record().result.empty() ? "" : "; " + name + " can only be packed again by island " + islands_.name_of(task.record().island);
    }
  }
  if (lacking == 0) {
    return;
  }
  std::string text = "waits for " + std::to_string(lacking) + " more of " + std::to_string(run.spec.data.spread) +
                     " islands with images of their own" + again;
  for (const IslandId& id : run.members) {
    const std::string lack = lack_of_images(run, id);
    text += lack.empty() ? "" : "; island " + islands_.name_of(id) + " has none: " + lack;
  }
  run.wait = Wait{text, {}};
}

}  // namespace atl::coordinator
