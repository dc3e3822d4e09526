#include "coordinator/core/tasks.hpp"

#include <algorithm>

namespace atl::coordinator {
namespace {

constexpr std::size_t kMaxFacts = std::size_t{1} << 16;

}  // namespace

void Task::plan(const RunId& run, TaskPlan plan, Outbox& out) {
  if (record_.task.empty()) {
    record_.run = run;
    record_.task = plan.task;
    out.record(record_);
  }
  if (plan_.task.empty()) {
    plan_ = std::move(plan);
  }
}

bool Task::has_member(const IslandId& island) const { return std::ranges::find(record_.members, island) != record_.members.end(); }

void Task::start(const IslandId& island, Outbox& out) {
  record_.state = TaskState::running;
  record_.island = island;
  record_.started = out.now();
  ++record_.starts;
  if (!record_.group.empty()) {
    record_.members = {island};
  }
  out.record(record_);
}

void Task::save(const Content& checkpoint, std::uint64_t step, Outbox& out) {
  record_.checkpoint = checkpoint.digest;
  record_.checkpoint_bytes = checkpoint.bytes;
  record_.checkpoint_step = step;
  out.record(record_);
}

void Task::copy() {
  copied_ = Content{record_.checkpoint, record_.checkpoint_bytes, {}};
  copied_step_ = record_.checkpoint_step;
}

void Task::finish(const AssignmentReport& message, Outbox& out) {
  record_.state = TaskState::done;
  record_.result = message.result.digest;
  record_.result_bytes = message.result.bytes;
  record_.facts = message.facts.size() <= kMaxFacts ? message.facts : "{}";
  record_.checkpoint = Digest{};
  record_.ended = out.now();
  record_.members.clear();
  out.record(record_);
}

void Task::fail(Outbox& out) {
  record_.state = TaskState::failed;
  out.record(record_);
}

void Task::wait_again(Outbox& out) {
  record_.state = TaskState::waiting;
  record_.island = record_.result.empty() ? IslandId() : record_.island;
  out.record(record_);
}

void Task::give_up(Outbox& out) {
  record_.members.clear();
  wait_again(out);
}

void Task::lose_result(Outbox& out) {
  missing_since_.reset();
  record_.state = TaskState::waiting;
  record_.result = Digest{};
  out.record(record_);
}

void Task::find_result(Outbox& out) {
  record_.state = TaskState::done;
  out.record(record_);
}

void Task::settle(bool newest_is_there, bool copied_is_there, Outbox& out) {
  if (record_.checkpoint.empty() || newest_is_there) {
    return;
  }
  const bool older = !copied_.digest.empty() && copied_is_there;
  save(older ? copied_ : Content{}, older ? copied_step_ : 0, out);
}

void Task::form_group(const RunId& group, Outbox& out) {
  record_.group = group;
  record_.members = {record_.island};
  out.record(record_);
}

void Task::join(const IslandId& island, const std::vector<IslandId>& gone, Outbox& out) {
  std::erase_if(record_.members, [&](const IslandId& member) { return std::ranges::find(gone, member) != gone.end(); });
  record_.members.push_back(island);
  out.record(record_);
}

void Task::drop_members(const std::vector<IslandId>& members, Outbox& out) {
  if (std::erase_if(record_.members, [&](const IslandId& member) { return std::ranges::find(members, member) != members.end(); }) > 0) {
    out.record(record_);
  }
}

void Task::speak(const IslandId& island, Outbox& out) {
  record_.island = island;
  out.record(record_);
}

void Task::dissolve_group(Outbox& out) {
  missing_since_.reset();
  record_.group = RunId();
  record_.members.clear();
  record_.island = IslandId();
  record_.state = TaskState::waiting;
  out.record(record_);
}

bool IslandAssignment::take(const AssignmentReport& message) {
  if (report_ && message.number < report_->number) {
    return false;
  }
  report_ = message;
  report_->facts.clear();
  report_->held.clear();
  held_.clear();
  for (const Content& content : message.held) {
    held_[content.digest] = content.bytes;
  }
  std::erase_if(surplus_, [this](const auto& one) { return !held_.contains(one.first); });
  if (message.images_per_second > 0) {
    speed_ = message.images_per_second;
  }
  return true;
}

bool IslandAssignment::repeats(const AssignmentReport& message) const {
  return report_ && message.number == report_->number && message.task == report_->task && message.state == report_->state &&
         message.result == report_->result && message.checkpoint == report_->checkpoint && message.error == report_->error &&
         message.held.size() == held_.size() &&
         std::ranges::all_of(message.held, [&](const Content& content) { return held_.contains(content.digest); });
}

bool IslandAssignment::tell(Assignment assignment, const std::vector<Member>& members, const Outbox& out) {
  assignment.number = sent_.number;
  // An island that has a newer assignment heard it from this coordinator before its restart.
  const std::uint64_t heard = report_ ? report_->number : 0;
  if (assignment == sent_ && members == members_ && sent_.number > 0 && heard <= sent_.number) {
    return false;
  }
  // The first is above all that a coordinator before a restart said: numbers are not in the ledger.
  const std::uint64_t before = sent_.number == 0 ? static_cast<std::uint64_t>(std::max<std::int64_t>(unix_ms(out.now()), 0)) : sent_.number;
  assignment.number = std::max(heard, before) + 1;
  const bool same = assignment.task == sent_.task && assignment.group == sent_.group && assignment.group_round == sent_.group_round;
  work_since_ = same && work_since_ > 0 ? work_since_ : assignment.number;
  sent_ = std::move(assignment);
  members_ = members;
  out.restart(resend_);
  return true;
}

Assignment IslandAssignment::whole(const std::string& spec) const {
  Assignment whole = sent_;
  whole.spec = spec;
  whole.members = members_;
  return whole;
}

const AssignmentReport* IslandAssignment::report_of(const std::string& task) const {
  return report_ && report_->task == task ? &*report_ : nullptr;
}

bool IslandAssignment::keeps(const Digest& digest) const {
  return held_.contains(digest) && std::ranges::find(sent_.drop, digest, &Content::digest) == sent_.drop.end();
}

void Tasks::recover(TaskRecord record) {
  const std::string name = record.task;
  tasks_[name] = Task(std::move(record));
}

void Tasks::plan(const RunId& run, const RunSpec& spec, Outbox& out) {
  for (TaskPlan& plan : tasks_of(spec)) {
    Task& task = tasks_[plan.task];
    if (task.plan().task.empty()) {
      order_.push_back(plan.task);
      task.plan(run, std::move(plan), out);
    }
  }
}

Task* Tasks::find(const std::string& name) {
  const auto found = tasks_.find(name);
  return found == tasks_.end() ? nullptr : &found->second;
}

const Task* Tasks::find(const std::string& name) const {
  const auto found = tasks_.find(name);
  return found == tasks_.end() ? nullptr : &found->second;
}

std::size_t Tasks::place_of(const std::string& task) const {
  return static_cast<std::size_t>(std::ranges::find(order_, task) - order_.begin());
}

std::size_t Tasks::done() const {
  return static_cast<std::size_t>(std::ranges::count_if(tasks_, [](const auto& task) { return task.second.done(); }));
}

Round Tasks::trained() const {
  return Round(static_cast<std::uint64_t>(std::ranges::count_if(tasks_, [](const auto& task) {
    const std::string& phase = task.second.plan().phase;
    return task.second.done() && (phase == "experts" || phase == "router");
  })));
}

std::vector<IslandId> Tasks::busy() const {
  std::vector<IslandId> busy;
  for (const auto& [name, task] : tasks_) {
    if (task.running()) {
      busy.push_back(task.record().island);
      busy.insert(busy.end(), task.record().members.begin(), task.record().members.end());
    }
  }
  return busy;
}

void Tasks::give_up(Outbox& out) {
  for (auto& [name, task] : tasks_) {
    if (task.failed() || task.running()) {
      task.give_up(out);
    }
  }
}

const IslandAssignment* Tasks::find_told(const IslandId& island) const {
  const auto found = assignments_.find(island);
  return found == assignments_.end() ? nullptr : &found->second;
}

const AssignmentReport* Tasks::report_of(const std::string& task, const IslandId& island) const {
  const IslandAssignment* told = find_told(island);
  return told == nullptr ? nullptr : told->report_of(task);
}

std::vector<IslandId> Tasks::keepers(const Digest& digest) const {
  std::vector<IslandId> keepers;
  for (const auto& [id, assignment] : assignments_) {
    if (assignment.keeps(digest)) {
      keepers.push_back(id);
    }
  }
  return keepers;
}

}  // namespace atl::coordinator
