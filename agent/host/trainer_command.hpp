// What runs a trainer: the built-in one, or the program that the island's owner gave the name that a run asks for.
//
// Nothing of a run decides which program is started, with which variables or in which folder: a run has a name, and the owner's list
// (trainer_programs.hpp) has the rest. Threads: plain values; a command's `on_line` belongs to whoever pumps its trainer.
#pragma once

#include <string>

#include "agent/host/trainer_host.hpp"
#include "strategies/specification/run_spec.hpp"
#include "transport/base/ids.hpp"
#include "transport/base/result.hpp"

namespace atl::agent {

struct SessionSettings;

// For a session or a task. `link` is the path of the island link.
// Errors: unauthorized for a trainer of the run's own that the owner has not named.
Result<TrainerCommand> trainer_command(const SessionSettings& settings, const RunId& run, const RunSpec& spec, const std::string& link);

}  // namespace atl::agent
