// `atoll cancel`, `atoll pause`, `atoll resume`: end a run, stop it for a while, let it go on.
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/line/command.hpp"
#include "cli/link/coordinator_client.hpp"
#include "cli/views/parts/document.hpp"
#include "cli/views/parts/printable.hpp"

namespace atl {
namespace {

using Render = std::string (*)(const nlohmann::json& document, const Terminal& terminal);

std::string beginning(const nlohmann::json& document) {
  return "run " + printable(text_at(document, "run")) + " (" + printable(text_at(document, "name")) + ") ";
}

std::string render_state(const nlohmann::json& document, const Terminal&) {
  return beginning(document) + "is " + (flag_at(document, "changed") ? "" : "already ") + printable(text_at(document, "state")) + "\n";
}

// A pause and a resume are promises: when they have come true, `status` shows it.
std::string render_pause(const nlohmann::json& document, const Terminal& terminal) {
  if (!flag_at(document, "changed") || text_at(document, "state") == "paused") {
    return render_state(document, terminal);
  }
  return beginning(document) + "pauses after the round in hand; `atoll status " + printable(text_at(document, "run")) +
         "` shows when it has\n";
}

std::string render_resume(const nlohmann::json& document, const Terminal& terminal) {
  if (!flag_at(document, "changed")) {
    return render_state(document, terminal);
  }
  return beginning(document) + "goes on (now " + printable(text_at(document, "state")) + "); `atoll status " +
         printable(text_at(document, "run")) + "` shows how far it is\n";
}

Command change_command(std::string verb, std::string summary, Render render) {
  auto run = std::make_shared<std::string>();
  Command command;
  command.name = verb;
  command.summary = std::move(summary);
  command.options = {{"RUN", "the run", run.get(), true, {}, Completes::runs}};
  command.asks_coordinator = true;
  command.run = [run, render, verb = std::move(verb)](Invocation& invocation) {
    Result<CoordinatorClient> client = CoordinatorClient::open(invocation);
    if (!client) {
      return report(invocation, client.error());
    }
    return show(invocation, client->ask(verb, {{"run", *run}}), render);
  };
  return command;
}

}  // namespace

Command cancel_command() { return change_command("cancel", "ends a run; its checkpoints stay", render_state); }
Command pause_command() {
  return change_command("pause", "stops a run after the round in hand, with a checkpoint on every island, and frees the trainers",
                        render_pause);
}
Command resume_command() {
  return change_command("resume", "lets a paused, failed or cancelled run go on from its newest checkpoint; lifts quarantines",
                        render_resume);
}

}  // namespace atl
