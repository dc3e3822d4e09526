// `atoll cancel`, `atoll pause`, `atoll resume`: end a run, stop it for a while, let it go on.
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.hpp"
#include "cli/coordinator_client.hpp"
#include "cli/views/document.hpp"
#include "cli/views/printable.hpp"

namespace atl {
namespace {

std::string render_change(const nlohmann::json& document, const Terminal&) {
  return "run " + printable(text_at(document, "run")) + " (" + printable(text_at(document, "name")) + ") is " +
         (flag_at(document, "changed") ? "" : "already ") + printable(text_at(document, "state")) + "\n";
}

Command change_command(std::string verb, std::string summary) {
  auto run = std::make_shared<std::string>();
  Command command;
  command.name = verb;
  command.summary = std::move(summary);
  command.options = {{"RUN", "the run", run.get(), true, {}, Completes::runs}};
  command.asks_coordinator = true;
  command.run = [run, verb = std::move(verb)](Invocation& invocation) {
    Result<CoordinatorClient> client = CoordinatorClient::open(invocation);
    if (!client) {
      return report(invocation, client.error());
    }
    return show(invocation, client->ask(verb, {{"run", *run}}), render_change);
  };
  return command;
}

}  // namespace

Command cancel_command() { return change_command("cancel", "ends a run; its checkpoints stay"); }
Command pause_command() { return change_command("pause", "stops a run after the round in hand, with a checkpoint on every island, and frees the trainers"); }
Command resume_command() { return change_command("resume", "lets a paused, failed or cancelled run go on from its newest checkpoint; lifts quarantines"); }

}  // namespace atl
