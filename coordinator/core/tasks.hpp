// The tasks of a run of phases: how each stands, who does it, and what every island was told and said of them.
//
// A task changes its record only here, and every change goes to the ledger. Which task goes to which island, and what is waited for, is
// decided by the core with the functions of phases.hpp.
// Threads: owned by one core.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/core/outbox.hpp"
#include "coordinator/core/phases.hpp"

namespace atl::coordinator {

class Task {
 public:
  Task() = default;
  explicit Task(TaskRecord record) : record_(std::move(record)) {}
  // What it is, of the run's plan; a task that the ledger does not know begins to wait.
  void plan(const RunId& run, TaskPlan plan, Outbox& out);

  [[nodiscard]] const TaskRecord& record() const { return record_; }
  [[nodiscard]] const TaskPlan& plan() const { return plan_; }
  [[nodiscard]] const std::string& name() const { return record_.task; }
  [[nodiscard]] bool waiting() const { return record_.state == TaskState::waiting; }
  [[nodiscard]] bool running() const { return record_.state == TaskState::running; }
  [[nodiscard]] bool done() const { return record_.state == TaskState::done; }
  [[nodiscard]] bool failed() const { return record_.state == TaskState::failed; }
  // It packs the images of one island (data.spread).
  [[nodiscard]] bool packs_images() const { return plan_.phase == "images"; }
  [[nodiscard]] bool has_member(const IslandId& island) const;
  // What is kept of it: its result, once it is done, or what it can be continued from.
  [[nodiscard]] const Digest& kept() const { return done() ? record_.result : record_.checkpoint; }
  // The newest checkpoint that another island than the task's own was seen to have, and of which step it is.
  [[nodiscard]] const Content& copied() const { return copied_; }

  // ---- what happens
  void start(const IslandId& island, Outbox& out);
  void save(const Content& checkpoint, std::uint64_t step, Outbox& out);
  // Another island has its newest checkpoint.
  void copy();
  void finish(const AssignmentReport& message, Outbox& out);
  void fail(Outbox& out);
  // It waits again, for any island; images that were packed before can only be packed again by the island that did so.
  void wait_again(Outbox& out);
  void give_up(Outbox& out);
  // Its result is lost, and it is made again.
  void lose_result(Outbox& out);
  // Somebody has its result again.
  void find_result(Outbox& out);
  // What it is continued from: the newest checkpoint, if that is there, or the one that was copied before, or nothing.
  void settle(bool newest_is_there, bool copied_is_there, Outbox& out);

  // ---- several islands that train one expert
  void form_group(const RunId& group, Outbox& out);
  // `gone`: members that take no part any more, whose places are free.
  void join(const IslandId& island, const std::vector<IslandId>& gone, Outbox& out);
  void drop_members(const std::vector<IslandId>& members, Outbox& out);
  // It speaks for the group from now on.
  void speak(const IslandId& island, Outbox& out);
  void dissolve_group(Outbox& out);

  // ---- what is not in the ledger
  // Since when nobody who is connected has what the task needs to stand; the first call says so.
  TimePoint missing_since(TimePoint now) { return missing_since_.emplace(missing_since_.value_or(now)); }
  void found() { missing_since_.reset(); }
  // The second island that keeps its checkpoint and result.
  [[nodiscard]] const IslandId& copy_on() const { return copy_on_; }
  void copy_on(const IslandId& island) { copy_on_ = island; }

 private:
  TaskRecord record_;
  TaskPlan plan_;
  IslandId copy_on_;
  Content copied_;
  std::uint64_t copied_step_ = 0;
  std::optional<TimePoint> missing_since_;
};

// What an island of a run of phases was told, and what it says.
class IslandAssignment {
 public:
  // False: the report comes late, and what it tells of may be gone.
  bool take(const AssignmentReport& message);
  // It says what it said before, but for how far it is.
  [[nodiscard]] bool repeats(const AssignmentReport& message) const;
  // What the island is to do now. True: it has to be told so.
  bool tell(Assignment assignment, const std::vector<Member>& members, const Outbox& out);
  // It has not answered, and it is time to tell it again.
  [[nodiscard]] bool again(const Outbox& out) { return out.due(resend_); }
  [[nodiscard]] bool answered() const { return report_ && report_->number >= sent_.number; }
  [[nodiscard]] TimePoint next_resend() const { return resend_.next; }
  // The assignment with the run's spec.
  [[nodiscard]] Assignment whole(const std::string& spec) const;
  void has_no_images(const std::string& why) { no_images_ = why; }

  [[nodiscard]] const std::optional<AssignmentReport>& report() const { return report_; }
  // What it says of this task; null: nothing.
  [[nodiscard]] const AssignmentReport* report_of(const std::string& task) const;
  [[nodiscard]] bool holds(const Digest& digest) const { return held_.contains(digest); }
  // It holds this, and was not told to drop it.
  [[nodiscard]] bool keeps(const Digest& digest) const;
  // Since when this is not needed here; the first call after is_needed() says so.
  TimePoint surplus_since(const Digest& digest, TimePoint now) { return surplus_.emplace(digest, now).first->second; }
  void is_needed(const Digest& digest) { surplus_.erase(digest); }
  [[nodiscard]] const std::map<Digest, std::uint64_t>& held() const { return held_; }
  [[nodiscard]] const RunId& group() const { return sent_.group; }
  // The report is of a time when the task was the island's own already, with its present group.
  [[nodiscard]] bool counts(const AssignmentReport& message) const { return work_since_ > 0 && message.number >= work_since_; }
  [[nodiscard]] double speed() const { return speed_; }
  [[nodiscard]] const std::string& no_images() const { return no_images_; }

 private:
  Assignment sent_;               // without the run's spec, which stays the same, and without
  std::vector<Member> members_;   // these, which were sent with it
  std::uint64_t work_since_ = 0;  // the first of those in a row that gave it its present task; 0: none was sent yet
  Resend resend_;
  std::optional<AssignmentReport> report_;  // newest, without facts and what is held
  std::map<Digest, std::uint64_t> held_;
  std::map<Digest, TimePoint> surplus_;  // of what is held
  double speed_ = 0;                     // images a second
  std::string no_images_;                // why it has no images of its own to pack; empty: it may have
};

class Tasks {
 public:
  void recover(TaskRecord record);
  // As the run's plan has them.
  void plan(const RunId& run, const RunSpec& spec, Outbox& out);
  [[nodiscard]] std::map<std::string, Task>& all() { return tasks_; }
  [[nodiscard]] const std::map<std::string, Task>& all() const { return tasks_; }
  [[nodiscard]] Task& at(const std::string& name) { return tasks_.at(name); }
  [[nodiscard]] const Task& at(const std::string& name) const { return tasks_.at(name); }
  [[nodiscard]] Task* find(const std::string& name);
  [[nodiscard]] const Task* find(const std::string& name) const;
  // Names, in the order of the phases.
  [[nodiscard]] const std::vector<std::string>& order() const { return order_; }
  // The place of a task in that order, for spreading copies.
  [[nodiscard]] std::size_t place_of(const std::string& task) const;
  [[nodiscard]] std::size_t done() const;
  // Of those that train.
  [[nodiscard]] Round trained() const;
  // Who has a running task.
  [[nodiscard]] std::vector<IslandId> busy() const;
  // Those that are not done wait again.
  void give_up(Outbox& out);

  [[nodiscard]] IslandAssignment& told(const IslandId& island) { return assignments_[island]; }
  [[nodiscard]] const IslandAssignment* find_told(const IslandId& island) const;
  [[nodiscard]] const AssignmentReport* report_of(const std::string& task, const IslandId& island) const;
  void forget(const IslandId& island) { assignments_.erase(island); }
  void forget_assignments() { assignments_.clear(); }
  // Who keeps this, as far as was told; of whoever that is, some may be away.
  [[nodiscard]] std::vector<IslandId> keepers(const Digest& digest) const;

 private:
  std::map<std::string, Task> tasks_;
  std::vector<std::string> order_;
  std::map<IslandId, IslandAssignment> assignments_;
};

}  // namespace atl::coordinator
