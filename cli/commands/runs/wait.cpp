// `atoll wait`: until a run has ended.
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>

#include "cli/line/command.hpp"
#include "cli/link/coordinator_client.hpp"
#include "cli/link/follow.hpp"
#include "cli/views/parts/document.hpp"
#include "cli/views/parts/run_state.hpp"
#include "cli/views/views.hpp"

namespace atl {
namespace {

struct WaitOptions {
  std::string run;
  std::optional<Duration> timeout;
};

Error still_going(const nlohmann::json& run, Duration timeout) {
  const std::string reason = text_at(run, "reason");
  return Error{Code::timeout, "run " + text_at(run, "id") + " has not ended within " + seconds_text(seconds(timeout)) + ": it is " +
                                  text_at(run, "state") + (reason.empty() ? "" : ", " + reason)};
}

Exit wait(const Invocation& invocation, const WaitOptions& options) {
  Result<CoordinatorClient> client = CoordinatorClient::open(invocation);
  if (!client) {
    return report(invocation, client.error());
  }
  const TimePoint deadline = options.timeout ? now() + *options.timeout : TimePoint::max();
  nlohmann::json arguments = {{"run", options.run}};
  for (bool first = true;; first = false) {
    // The first question tells whether there is a coordinator and such a run; after it one that is away is borne.
    const Result<nlohmann::json> document =
        first ? client->ask("status", arguments) : client->ask_patiently(invocation, "status", arguments, deadline);
    if (!document) {
      return report(invocation, document.error());
    }
    const nlohmann::json& run = object_at(*document, "run");
    const std::string state = text_at(run, "state");
    if (run_has_ended(state)) {
      show(invocation, document, render_summary);
      return exit_for_state(state);
    }
    if (now() >= deadline) {
      return report(invocation, still_going(run, *options.timeout));
    }
    if (first && !invocation.json) {
      invocation.streams.err << "run " << text_at(run, "id") << " is " << state << "; see: atoll status " << text_at(run, "id") << "\n"
                             << std::flush;
    }
    arguments["run"] = text_at(run, "id");
    pause_between_questions(std::min<Duration>(std::chrono::milliseconds(300), deadline - now()));
  }
}

}  // namespace

Command wait_command() {
  auto options = std::make_shared<WaitOptions>();
  Command command;
  command.name = "wait";
  command.summary = "waits until a run has ended and tells how";
  command.options = {{"RUN", "the run", &options->run, true, {}, Completes::runs},
                     {"--timeout", "wait no longer than this, like 2h; then exit with 5", &options->timeout}};
  command.asks_coordinator = true;
  command.run = [options](Invocation& invocation) { return wait(invocation, *options); };
  return command;
}

}  // namespace atl
