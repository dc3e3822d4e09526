// What each island of a run of phases is told: its task, the task's inputs, what to keep and what to drop.
#include <algorithm>

#include "coordinator/core/core_state.hpp"
#include "coordinator/core/rules/task_rule.hpp"

namespace atl::coordinator {
namespace {

constexpr std::size_t kCopies = 2;  // of everything that is needed

}  // namespace

// Who is connected, takes part, has this, and was not told to drop it.
std::vector<IslandId> TaskRule::holders_of(const Run& run, const Digest& digest) const {
  std::vector<IslandId> holders = run.tasks().keepers(digest);
  std::erase_if(holders, [&](const IslandId& id) { return !islands_.alive(id) || !run.is_member(id); });
  return holders;
}

// The second island that keeps something of a task: it stays the same while it is there; a new one is best one that has it.
IslandId TaskRule::copy_place(Run& run, Task& task) {
  const IslandId& owner = task.record().island;
  const auto gets_data = [&](const IslandId& id) { return owner.empty() || core_.data_paths.paths().usable(owner, id, now()); };
  const bool stays = !task.copy_on().empty() && task.copy_on() != owner && run.is_member(task.copy_on()) && islands_.alive(task.copy_on());
  if (stays && gets_data(task.copy_on())) {
    return task.copy_on();
  }
  std::vector<IslandId> others;
  std::ranges::copy_if(run.members, std::back_inserter(others), [&](const IslandId& id) { return id != owner && islands_.stays(id); });
  if (std::ranges::any_of(others, gets_data)) {
    std::erase_if(others, [&](const IslandId& id) { return !gets_data(id); });
  } else if (stays) {
    return task.copy_on();
  }
  for (const IslandId& id : task.kept().empty() ? std::vector<IslandId>{} : holders_of(run, task.kept())) {
    if (std::ranges::find(others, id) != others.end()) {
      task.copy_on(id);
      return id;
    }
  }
  task.copy_on(others.empty() ? IslandId() : others[run.tasks().place_of(task.name()) % others.size()]);
  return task.copy_on();
}

// Who is relied on to keep this: whoever made it and the second island. While they do not have it, others that do stand in for them.
std::vector<IslandId> TaskRule::keepers_of(Run& run, Task& task, const Digest& digest) {
  const IslandId copy = copy_place(run, task);
  std::vector<IslandId> keepers = holders_of(run, digest);
  std::ranges::stable_partition(keepers, [&](const IslandId& id) { return id == task.record().island || id == copy; });
  keepers.resize(std::min(keepers.size(), kCopies));
  return keepers;
}

bool TaskRule::has_to_keep(Run& run, Task& task, const Digest& digest, const IslandId& island) {
  const std::vector<IslandId> keepers = keepers_of(run, task, digest);
  return std::ranges::find(keepers, island) != keepers.end();
}

// A copy that the island does not need is dropped only once all that are relied on to keep it were heard since then, and so long since that
// it was no late message of one that is gone, with its disk.
bool TaskRule::may_drop(Run& run, const IslandId& island, const Digest& digest) {
  const auto kept = std::ranges::find_if(run.tasks().all(), [&](const auto& task) { return task.second.kept() == digest; });
  if (kept == run.tasks().all().end()) {
    return true;  // nobody needs it any more
  }
  const TimePoint since = run.tasks().told(island).surplus_since(digest, now()) + 3 * settings_.heartbeat;
  const std::vector<IslandId> keepers = keepers_of(run, kept->second, digest);
  const bool heard = std::ranges::all_of(keepers, [&](const IslandId& id) { return islands_.spoke_since(id, since); });
  if (!heard) {
    wake_at(now() + settings_.heartbeat);
  }
  return heard;
}

Content TaskRule::content_of(const Run& run, const Digest& digest, std::uint64_t bytes) const {
  return Content{digest, bytes, holders_of(run, digest)};
}

// The island works on this task, alone or as one of its group: with what, and from where.
void TaskRule::add_work(Run& run, const Task& task, const IslandId& island, Assignment& assignment) {
  const TaskRecord& value = task.record();
  const auto group = runs_.find(value.group);
  const bool over = group != runs_.end() && group->second.life.is(RunState::completed);
  const bool helps = group != runs_.end() && !over && task.has_member(island);
  if (!task.running() || (value.island != island && !helps)) {
    return;
  }
  assignment.group = value.group;
  assignment.group_round = over ? Round(group->second.spec.rounds) : Round(0);
  assignment.task = task.name();
  for (const std::string& need : task.plan().needs) {
    const TaskRecord& other = run.tasks().at(need).record();
    assignment.inputs.push_back({need, content_of(run, other.result, other.result_bytes)});
  }
  if (!value.checkpoint.empty()) {
    assignment.resume = content_of(run, value.checkpoint, value.checkpoint_bytes);
  }
}

// What the island keeps of a task.
void TaskRule::add_kept(Run& run, Task& task, const IslandId& island, Assignment& assignment) {
  const TaskRecord& value = task.record();
  const IslandAssignment& told = run.tasks().told(island);
  const bool copies = copy_place(run, task) == island;
  const bool kept = task.waiting() ? told.holds(value.checkpoint) : copies || has_to_keep(run, task, value.checkpoint, island);
  if (!value.checkpoint.empty() && !task.done() && kept) {
    assignment.keep.push_back(content_of(run, value.checkpoint, value.checkpoint_bytes));
  }
  // Until the newest is here, the copy before it stays.
  const Content& copied = task.copied();
  if (!task.done() && copied.digest != value.checkpoint && !told.holds(value.checkpoint) && told.holds(copied.digest)) {
    assignment.keep.push_back(content_of(run, copied.digest, copied.bytes));
  }
  // Images are kept by whoever has fetched them: every task that trains needs them again.
  const bool images = task.packs_images() && told.holds(value.result);
  if (images || (task.done() && (value.island == island || copies || has_to_keep(run, task, value.result, island)))) {
    assignment.keep.push_back(content_of(run, value.result, value.result_bytes));
  }
}

Assignment TaskRule::assignment_of(Run& run, const IslandId& island) {
  Assignment assignment;
  assignment.run = run.about.id;
  assignment.epoch = run.epoch;
  for (const std::string& name : run.tasks().order()) {
    Task& task = run.tasks().at(name);
    add_work(run, task, island, assignment);
    add_kept(run, task, island, assignment);
  }
  std::set<Digest> needed = {assignment.resume.digest};
  for (const TaskInput& input : assignment.inputs) {
    needed.insert(input.content.digest);
  }
  for (const Content& kept : assignment.keep) {
    needed.insert(kept.digest);
  }
  IslandAssignment& told = run.tasks().told(island);
  for (const auto& [digest, bytes] : told.held()) {
    if (needed.contains(digest)) {
      told.is_needed(digest);
    } else if (may_drop(run, island, digest)) {
      assignment.drop.push_back(Content{digest, bytes, {}});
    }
  }
  return assignment;
}

void TaskRule::say_assignments(Run& run) {
  const std::vector<Member> members = islands_.members_of(run.members);
  for (const IslandId& id : run.members) {
    if (!islands_.alive(id)) {
      continue;
    }
    Assignment assignment = assignment_of(run, id);
    IslandAssignment& told = run.tasks().told(id);
    if (told.tell(std::move(assignment), members, out_)) {
      send(id, told.whole(run.about.spec));
    } else if (!told.answered()) {
      if (told.again(out_)) {
        send(id, told.whole(run.about.spec));
      }
      wake_at(told.next_resend());
    }
  }
}

}  // namespace atl::coordinator
