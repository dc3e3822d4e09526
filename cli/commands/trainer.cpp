// `atoll trainer`: the trainer's process, started by an agent: the built-in one, or the owner's $ATOLL_TRAINER_COMMAND.
#include "agent/host/command_words.hpp"
#include "agent/host/process_tree.hpp"
#include "cli/command.hpp"
#include "cli/trainer_module.hpp"

namespace atl {

Command trainer_command() {
  Command command;
  command.name = "trainer";
  command.summary = "the built-in trainer, or the command in $ATOLL_TRAINER_COMMAND; an agent runs it";
  command.passes_arguments = true;
  command.run = [](Invocation& invocation) {
    if (const auto own = invocation.environment("ATOLL_TRAINER_COMMAND"); own && !own->empty()) {
      const Result<std::vector<std::string>> words = split_command(*own);
      const Result<int> status = words ? keep(*words) : Result<int>(words.error());
      return status ? static_cast<Exit>(*status) : report(invocation, status.error());
    }
    const Result<int> code = call_trainer_module(invocation.environment, "atoll_trainer_main", "trainer", invocation.rest);
    return code ? static_cast<Exit>(*code) : report(invocation, code.error());
  };
  return command;
}

}  // namespace atl
