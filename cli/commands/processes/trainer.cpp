// `atoll trainer`: the built-in trainer's process, or a keeper of another's processes; started by an agent.
#include "agent/host/attach_point.hpp"
#include "agent/host/process_tree.hpp"
#include "cli/line/command.hpp"
#include "cli/settings/trainer_module.hpp"

namespace atl {

Command trainer_command() {
  Command command;
  command.name = "trainer";
  command.summary = "the built-in trainer; an agent runs it. With -- COMMAND another one, all of whose processes end with it";
  command.passes_arguments = true;
  command.run = [](Invocation& invocation) {
    if (invocation.rest.size() == 2 && invocation.rest.front() == "--attach") {
      const Result<int> status = stand_in(invocation.rest[1], invocation.environment("ATOLL_ISLAND_LINK").value_or(""));
      return status ? static_cast<Exit>(*status) : report(invocation, status.error());
    }
    if (!invocation.rest.empty() && invocation.rest.front() == "--") {
      const Result<int> status = keep({invocation.rest.begin() + 1, invocation.rest.end()});
      return status ? static_cast<Exit>(*status) : report(invocation, status.error());
    }
    const bool facts = invocation.rest == std::vector<std::string>{"--facts"};  // ask_trainer() reads them
    const Result<int> code = call_trainer_module(invocation.environment, facts ? "atoll_trainer_facts_main" : "atoll_trainer_main",
                                                 "trainer", facts ? std::vector<std::string>() : invocation.rest);
    return code ? static_cast<Exit>(*code) : report(invocation, code.error());
  };
  return command;
}

}  // namespace atl
