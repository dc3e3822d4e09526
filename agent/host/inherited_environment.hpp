// Which variables of an agent its trainers do not inherit.
//
// An agent has secrets that are its own: a trainer, which is somebody's program, that needs keys for a store is given its own by
// --trainer-env. And an agent that was started by a launcher (torchrun, srun, mpirun) has variables that say "I am process 0 of 4": a
// program that the agent starts alone would wait for three others that never come.
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace atl::agent {

// Keys and tokens: of a store, of joining; and the URL of a proxy that has a user or a password in it.
[[nodiscard]] bool is_secret_variable(std::string_view name, std::string_view value);
// Says which process of a group this one is, or how to find the others: WORLD_SIZE, RANK, MASTER_ADDR, SLURM_PROCID, OMPI_COMM_WORLD_SIZE.
// What describes a job as a whole (SLURM_JOB_ID) does not.
[[nodiscard]] bool is_group_variable(std::string_view name);
// A program that starts a group of processes, and sets such variables or reads them: srun, mpirun, torchrun. `program` may be a path.
[[nodiscard]] bool is_launcher(std::string_view program);
// The group variables that this process has, in order.
[[nodiscard]] std::vector<std::string> group_variables_here();

// The dynamic linker's variables of a trainer are for the trainer, not for the keeper that starts it, which is `atoll` and may need its
// own. They travel to the keeper under another name.
inline constexpr std::string_view kForCommandOnly = "ATOLL_COMMAND_";
[[nodiscard]] inline bool is_of_the_linker(std::string_view name) { return name.starts_with("LD_"); }

}  // namespace atl::agent
