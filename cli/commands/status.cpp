// `atoll status`: one run, in full.
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>

#include "cli/command.hpp"
#include "cli/coordinator_client.hpp"
#include "cli/views/document.hpp"
#include "cli/views/run_state.hpp"
#include "cli/views/views.hpp"

namespace atl {
namespace {

struct StatusOptions {
  std::string run;
  bool watch = false;
  Duration every = std::chrono::seconds(1);
};

// Shows the run again and again, in place on a terminal, until it has ended.
Exit watch(const Invocation& invocation, CoordinatorClient& client, const StatusOptions& options) {
  nlohmann::json arguments = {{"run", options.run}};
  const bool in_place = invocation.streams.out_is_terminal && !invocation.json;
  while (invocation.streams.out) {
    const Result<nlohmann::json> document = client.ask_patiently(invocation, "status", arguments, TimePoint::max());
    if (document && in_place) {
      invocation.streams.out << "\x1b[H\x1b[2J";
    }
    if (const Exit shown = show(invocation, document, render_status); shown != Exit::ok) {
      return shown;
    }
    const nlohmann::json& run = object_at(*document, "run");
    if (run_has_ended(text_at(run, "state"))) {
      break;
    }
    arguments["run"] = text_at(run, "id");  // stay with this one though a newer begins
    if (!in_place && !invocation.json) {
      invocation.streams.out << "\n";
    }
    pause_between_questions(options.every);
  }
  return Exit::ok;
}

Exit status(const Invocation& invocation, const StatusOptions& options) {
  if (options.every < std::chrono::milliseconds(50)) {
    return report(invocation, Error{Code::invalid_argument, "--every is at least 50ms"});
  }
  Result<CoordinatorClient> client = CoordinatorClient::open(invocation);
  if (!client) {
    return report(invocation, client.error());
  }
  if (options.watch) {
    return watch(invocation, *client, options);
  }
  return show(invocation, client->ask("status", {{"run", options.run}}), render_status);
}

}  // namespace

Command status_command() {
  auto options = std::make_shared<StatusOptions>();
  Command command;
  command.name = "status";
  command.summary = "shows a run: what it does, for what it waits, how each island fares";
  command.details = "Without RUN: the newest run that has not ended. RUN is an id, the beginning of one, or a name.";
  command.options = {{"RUN", "the run", &options->run, false, {}, Completes::runs},
                     {"-w,--watch", "show it again and again until it ends", &options->watch},
                     {"--every", "with --watch: how often", &options->every}};
  command.asks_coordinator = true;
  command.run = [options](Invocation& invocation) { return status(invocation, *options); };
  return command;
}

}  // namespace atl
