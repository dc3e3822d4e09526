// The training programs that an island's owner lets runs start, by name.
//
// A run file comes from whoever may submit runs; what is executed on an island is its owner's to say. So a run names a trainer, and the
// owner has said which command that is, with which variables and in which folder. A command is split into words as a shell would
// (spaces, '…', "…", a backslash), and no shell ever sees it: no variable, glob or pipe means anything.
// Threads: plain values.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/result.hpp"

namespace atl::agent {

struct TrainerProgram {
  std::vector<std::string> command;                // the program as an absolute path, then its arguments; empty: one attaches itself
  std::map<std::string, std::string> environment;  // beside the agent's own
  std::filesystem::path folder;                    // working directory; empty: the agent's
  [[nodiscard]] bool attaches() const { return command.empty(); }
  friend bool operator==(const TrainerProgram&, const TrainerProgram&) = default;
};
using TrainerPrograms = std::map<std::string, TrainerProgram>;

// What the owner wrote: "NAME=COMMAND" or "NAME=attach", "NAME=KEY=VALUE", "NAME=DIR".
struct TrainerOptions {
  std::vector<std::string> commands;
  std::vector<std::string> environment;
  std::vector<std::string> folders;
};
// A program without a slash is looked up in `search_path` (as $PATH is written; empty: the usual places); one with a slash begins at its
// trainer's folder. Errors: invalid_argument or not_found, naming the option.
Result<TrainerPrograms> trainer_programs(const TrainerOptions& options, const std::string& search_path);

}  // namespace atl::agent
