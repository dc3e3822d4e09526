#include "coordinator/api/durable_runs.hpp"

#include <algorithm>

namespace atl::coordinator {

DurableRuns::DurableRuns(const Recovered& ledger) {
  for (const RunRecord& run : ledger.runs) {
    runs_.emplace(run.id, run);
  }
  for (const MembershipRecord& membership : ledger.memberships) {
    memberships_.emplace(std::pair(membership.run, membership.island), membership);
  }
  for (const TaskRecord& task : ledger.tasks) {
    tasks_.emplace(std::pair(task.run, task.task), task);
  }
}

std::optional<RunView> DurableRuns::corrected(RunView run) const {
  const auto record = runs_.find(run.id);
  if (record == runs_.end()) {
    return std::nullopt;
  }
  static_cast<RunRecord&>(run) = record->second;
  run.round.reset();  // nothing is exchanged before its plan is written down
  run.attempt.reset();
  if (run.spread_round > run.committed) {
    run.spread = 0;
    run.spread_round = Round(0);
  }
  std::erase_if(run.memberships,
                [&](const MembershipView& membership) { return !memberships_.contains(std::pair(run.id, membership.island)); });
  for (MembershipView& membership : run.memberships) {
    correct(run.id, membership);
  }
  for (TaskView& task : run.tasks) {
    correct(run.id, task);
  }
  return run;
}

void DurableRuns::correct(const RunId& run, MembershipView& membership) const {
  const MembershipRecord& record = memberships_.at(std::pair(run, membership.island));
  if (membership.state != record.state) {
    membership.state = record.state;
    membership.reason = Reason{record.cause, membership.reason.since, std::nullopt};
  }
  membership.part = record.part;
  membership.absences = record.absences;
}

void DurableRuns::correct(const RunId& run, TaskView& task) const {
  const auto found = tasks_.find(std::pair(run, task.task));
  TaskRecord record;  // of a task that nobody has begun
  if (found != tasks_.end()) {
    record = found->second;
  }
  if (task.state != record.state) {
    task.island.clear();
    task.copies = 0;
  }
  task.state = record.state;
  task.checkpoint_step = record.checkpoint_step;
  task.result = record.result;
  task.result_bytes = record.result_bytes;
  task.facts = record.facts;
  task.starts = record.starts;
  task.started = record.started;
  task.ended = record.ended;
  const auto group = runs_.find(record.group);
  if (group == runs_.end()) {
    task.group = GroupView{};
  } else if (task.group.run == record.group) {
    task.group.round = group->second.committed;
    task.group.images = group->second.tokens;
  }
}

}  // namespace atl::coordinator
