// `atoll trainer`: the built-in trainer's process, started by an agent.
#include "cli/command.hpp"
#include "cli/trainer_module.hpp"

namespace atl {

Command trainer_command() {
  Command command;
  command.name = "trainer";
  command.summary = "the built-in trainer; an agent runs it";
  command.passes_arguments = true;
  command.run = [](Invocation& invocation) {
    const Result<int> code = call_trainer_module(invocation.environment, "atoll_trainer_main", "trainer", invocation.rest);
    return code ? static_cast<Exit>(*code) : report(invocation, code.error());
  };
  return command;
}

}  // namespace atl
