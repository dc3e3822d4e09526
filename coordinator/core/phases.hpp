// Phases: what a run does one after the other, as tasks.
//
// A task turns the results of other tasks into one result, on one island. Results are named by the SHA-256 of their bytes, so that a task
// whose result lies anywhere is not done again; what a task can be continued from is copied to a second island, so that losing one costs
// time only. Phases are names of groups of tasks for people; what decides is which tasks need which. A run of rounds (the other strategies)
// has one phase, `train`, and no tasks.
//
//   decentralized-diffusion   features → clustering → experts ∥ router → (distillation, where distill_steps is set) → assemble
//   (with one expert: clustering → experts → assemble)
// Where the data set is spread (data.spread = P), a phase `images` comes first: each of P islands packs its own images into a result,
// `images/p`. From then on these results are the data set, which any island may fetch; `features/p` makes the features and the fine
// clusters of one part, on the island that has it if that is free, and `clustering` needs no image. Nobody else can make the images of a
// lost part again: it waits for its island, or its result's copy. With more islands than such tasks several train one expert: a run of
// rounds of its own, the group's, whose islands have the same task here. What a trainer of it has saved after the last round is what the
// task is continued from, by one island, to its result. Threads: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/core/decide.hpp"
#include "strategies/specification/run_spec.hpp"
#include "transport/base/ids.hpp"

namespace atl::coordinator {

struct TaskPlan {
  std::string task;                // unique in the run: "clustering", "experts/2"
  std::string phase;               // "experts"
  std::vector<std::string> needs;  // tasks whose results are its inputs
  friend bool operator==(const TaskPlan&, const TaskPlan&) = default;
};

// The tasks of a run in the order of its phases; none for a run of rounds. Every task comes after those it needs.
std::vector<TaskPlan> tasks_of(const RunSpec& spec);
// The phases in order; at least one.
std::vector<std::string> phases_of(const RunSpec& spec);

// ---- which island does what ---------------------------------------------------------------------------------------------------------

struct WaitingTask {
  std::string task;
  std::uint64_t size = 0;             // how much work it is, as far as is known (images of the cluster)
  std::vector<IslandId> has_state;    // islands that hold what it can be continued from
  std::vector<IslandId> not_on = {};  // islands that cannot do it
};
struct FreeIsland {
  IslandId island;
  double speed = 0;  // images a second, as last measured; 0: not yet
};
struct Placement {
  std::string task;
  IslandId island;
  friend bool operator==(const Placement&, const Placement&) = default;
};
// The largest task first, each to the fastest island that is free and can do it; to one that can continue it without a copy, if such a one
// is free. Of equals the earlier task and island. Tasks that find no island wait.
std::vector<Placement> decide_placement(const std::vector<WaitingTask>& tasks, const std::vector<FreeIsland>& islands);

// Islands that are left over when every task has one join the experts that begin, so that several train one in rounds: one each in turn,
// the largest cluster and the fastest island first, no more to an expert than it has batches. What each of `experts` gets, in that order;
// the rest stand by.
struct BeginningExpert {
  std::string task;
  std::uint64_t size = 0;  // images of its cluster; 0: not known
};
std::vector<std::vector<IslandId>> decide_groups(const std::vector<BeginningExpert>& experts, const std::vector<FreeIsland>& left,
                                                 std::uint32_t batch);

// What a run of phases is at and waits for: its progress, then what it lacks, if anything.
struct PhasesInput {
  std::vector<std::string> working;  // running tasks, as people should read of them
  std::size_t done = 0;
  std::size_t tasks = 0;
  std::size_t members = 0;
  std::size_t min = 0;
  Wait lacks;  // text empty: nothing
};
Wait decide_phases_wait(const PhasesInput& input);

// The images of each cluster, from the facts of the task `clustering` ("sizes"); empty if it does not say.
std::vector<std::uint64_t> cluster_sizes(const std::string& facts);

}  // namespace atl::coordinator
