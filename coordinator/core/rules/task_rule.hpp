// Runs of tasks: who does what, with what, and what becomes of the results (decentralised diffusion, arXiv:2501.05450).
//
//   phases.cpp        tasks are placed on islands, and their results remembered
//   groups.cpp        several islands that train one expert, in a run of rounds of its own
//   task_inputs.cpp   who gets what a task needs
//   assignments.cpp   what each island is told
//   image_parts.cpp   a data set whose parts lie on several islands
//
// Threads: owned by one Core.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "coordinator/core/rules/rule.hpp"

namespace atl::coordinator {

class TaskRule : public Rule {
 public:
  using Rule::Rule;

  void hear(Run& run, Membership& membership, const AssignmentReport& message) override;
  [[nodiscard]] Stir stir_of(const Run& run, const IslandId& island, const AssignmentReport& message) const override;
  void enlist(Run& run, const IslandId& island) override;
  void begin(Run& run) override;
  std::uint32_t part_for(Run&, const IslandId&, std::optional<std::uint32_t>) override {
    return 0;
  }  // its tasks say which data they are of
  void greet_active(Run& run, Membership& membership, bool new_boot, const HeldRun* held) override;
  void on_vacated(Run& run, const IslandId& island) override { run.tasks().forget(island); }
  bool may_leave(Run& run, Membership& membership, const Island& island) override;
  void advance(Run& run) override;
  Status pause(Run& run) override;
  [[nodiscard]] std::string where_paused(const Run&) const override { return "paused, tasks go on from what they saved"; }
  [[nodiscard]] bool may_end_early(const Run&) const override { return false; }
  [[nodiscard]] Round next_stand(const Run& run) const override { return run.lineage.next(); }
  [[nodiscard]] std::string pauses_after(const Run&) const override { return ""; }
  [[nodiscard]] Round present_round(const Run& run) const override;
  void give_up(Run& run) override { run.tasks().give_up(out_); }
  void resume(Run& run) override { run.tasks().forget_assignments(); }
  [[nodiscard]] std::vector<RunId> groups(const Run& run, bool unfinished) const override;
  [[nodiscard]] bool confirms(const Run&, Round, const Digest&) const override { return false; }
  [[nodiscard]] Status makes_model(const Run& run) const override;
  Result<std::vector<TaskResult>> serve_results(const Run& run, const std::string& reader_key) override;
  using Rule::recover;
  void recover(Run& run, TaskRecord&& value) override { run.tasks().recover(std::move(value)); }
  void settle_recovered(Run& run) override;
  void settle_backup(Run& run) override;
  void describe(const Run& run, RunView& view) const override;

  // An island of a group has its place there, and what it needs for the work.
  [[nodiscard]] bool is_lent(const Run& group, const IslandId& island) const;

 private:
  void admit_islands(Run& run);
  [[nodiscard]] bool keep_task(Run& run, Task& task);
  void take_report(Run& run, Task& task, const AssignmentReport& message);
  void take_back(Run& run, Task& task, const std::string& why);
  [[nodiscard]] bool input_at_hand(Run& run, Task& task);
  [[nodiscard]] bool can_begin(Run& run, Task& task);
  [[nodiscard]] std::optional<IslandId> unheard_of(const Run& run) const;
  void settle_checkpoint(Run& run, Task& task);
  [[nodiscard]] WaitingTask waiting_task(Run& run, Task& task, std::uint64_t size);
  [[nodiscard]] std::vector<WaitingTask> waiting_tasks(Run& run);
  [[nodiscard]] std::vector<FreeIsland> free_islands(Run& run);
  void place_tasks(Run& run);
  [[nodiscard]] std::string progress_of(const Run& run, const Task& task) const;
  void end_phases(Run& run);
  void fill_groups(Run& run, const std::vector<BeginningExpert>& begun, std::vector<FreeIsland> left);
  void form_group(Run& run, Task& task, const std::vector<IslandId>& others);
  void join_group(Run& run, Task& task, const IslandId& island);
  void keep_group(Run& run, Task& task);
  void dissolve_group(Run& run, Task& task, const std::string& why);
  [[nodiscard]] static bool is_stranded(const Run& group);
  [[nodiscard]] bool holds_another_last(const Run& group, const IslandId& island) const;
  [[nodiscard]] std::vector<IslandId> present_members(const Run& run, const Task& task) const;
  [[nodiscard]] std::optional<IslandId> holder_out_of_reach(const Run& run, const Task& task, const IslandId& island) const;
  [[nodiscard]] std::vector<IslandId> cut_from_inputs(const Run& run, const Task& task) const;
  void leave_to_others(Run& run, Task& task);
  void say_what_is_out_of_reach(Run& run, const std::vector<WaitingTask>& waiting);
  [[nodiscard]] Content content_of(const Run& run, const Digest& digest, std::uint64_t bytes) const;
  [[nodiscard]] IslandId copy_place(Run& run, Task& task);
  [[nodiscard]] std::vector<IslandId> keepers_of(Run& run, Task& task, const Digest& digest);
  [[nodiscard]] bool may_drop(Run& run, const IslandId& island, const Digest& digest);
  [[nodiscard]] bool has_to_keep(Run& run, Task& task, const Digest& digest, const IslandId& island);
  void add_work(Run& run, const Task& task, const IslandId& island, Assignment& assignment);
  void add_kept(Run& run, Task& task, const IslandId& island, Assignment& assignment);
  [[nodiscard]] Assignment assignment_of(Run& run, const IslandId& island);
  void say_assignments(Run& run);
  [[nodiscard]] bool images_are_used(const Run& run, const Task& task) const;
  [[nodiscard]] bool takes_images(Run& run, Task& task, const AssignmentReport& message);
  [[nodiscard]] std::string lack_of_images(const Run& run, const IslandId& island) const;
  [[nodiscard]] std::vector<IslandId> cannot_pack(const Run& run, const Task& task) const;
  [[nodiscard]] bool found_images_again(Run& run, Task& task);
  void wait_for_images(Run& run, Task& task);
  void say_what_lacks_images(Run& run);
  [[nodiscard]] TaskView task_view(const Run& run, const Task& task) const;
  [[nodiscard]] bool groups_stand(const Run& run) const;
  [[nodiscard]] std::vector<IslandId> holders_of(const Run& run, const Digest& digest) const;
};

}  // namespace atl::coordinator
