// `atoll submit`: hands a run file to the coordinator.
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>

#include "cli/command.hpp"
#include "cli/coordinator_client.hpp"
#include "cli/follow.hpp"
#include "cli/run_file/run_file.hpp"
#include "cli/views/document.hpp"
#include "cli/views/printable.hpp"
#include "cli/views/views.hpp"
#include "strategies/specification/run_keys.hpp"

namespace atl {
namespace {

struct SubmitOptions {
  std::string file;
  std::string name;
  bool quiet = false;
  bool follow = false;
};

// The id alone on stdout; what a person wants to know besides on stderr.
void print_submitted(const Invocation& invocation, const nlohmann::json& document, bool quiet) {
  const std::string id = printable(text_at(document, "run"));
  if (invocation.json) {
    invocation.streams.out << json_line(document) << "\n" << std::flush;
    return;
  }
  invocation.streams.out << id << "\n" << std::flush;
  if (quiet) {
    return;
  }
  const std::string reason = printable(text_at(document, "reason"), 300);
  invocation.streams.err << (flag_at(document, "created") ? "submitted " : "there already is ") << printable(text_at(document, "name"))
                         << ": " << printable(text_at(document, "state")) << (reason.empty() ? "" : ", " + reason)
                         << "\nwatch it with: atoll status " << id << " --watch\n"
                         << std::flush;
}

Exit follow(const Invocation& invocation, CoordinatorClient& client, const std::string& run) {
  FollowOptions what;
  what.run = run;
  const Result<std::string> state = follow_events(invocation, client, what);
  if (!state) {
    return report(invocation, state.error());
  }
  if (!invocation.json) {
    show(invocation, client.ask("status", {{"run", run}}), render_summary);
  }
  return exit_for_state(*state);
}

Exit submit(const Invocation& invocation, const SubmitOptions& options) {
  Result<RunFile> file = read_run_file(options.file);
  if (!file) {
    report(invocation, file.error());
    return Exit::usage;
  }
  if (!file->valid()) {
    invocation.streams.err << problems_text(*file);
    return Exit::usage;
  }
  if (!file->trainer_command.empty()) {
    return report(
        invocation,
        Error{Code::invalid_argument,
              "[trainer].command is for `atoll local` alone: islands start what their owners say. Remove it, and start the agents "
              "with --trainer " +
                  file->spec.trainer.name + "='" + printable(file->trainer_command, 200) + "'"});
  }
  if (!options.name.empty()) {
    if (const Status named = assign(*find_run_key("run", "name"), options.name, file->spec); !named) {
      return report(invocation, with_context(named.error(), "--name"));
    }
  }
  Result<CoordinatorClient> client = CoordinatorClient::open(invocation);
  if (!client) {
    return report(invocation, client.error());
  }
  const nlohmann::json arguments = {{"spec", nlohmann::json::parse(to_json(file->spec))}, {"once", !options.name.empty()}};
  const Result<nlohmann::json> document = client->ask("submit", arguments);
  if (!document) {
    return report(invocation, document.error());
  }
  print_submitted(invocation, *document, options.quiet);
  return options.follow ? follow(invocation, *client, text_at(*document, "run")) : Exit::ok;
}

}  // namespace

Command submit_command() {
  auto options = std::make_shared<SubmitOptions>();
  Command command;
  command.name = "submit";
  command.summary = "submits a run file and prints the run's id";
  command.details = "With --name, submitting the same file again returns the same run. Relative `files` are looked up by each island.";
  command.options = {{"FILE", "the run file (TOML)", &options->file, true, {}, Completes::files},
                     {"--name", "call the run so, and submit it at most once", &options->name},
                     {"-q,--quiet", "print nothing but the id", &options->quiet},
                     {"-f,--follow", "print the run's events until it has ended, then a summary", &options->follow}};
  command.asks_coordinator = true;
  command.run = [options](Invocation& invocation) { return submit(invocation, *options); };
  return command;
}

}  // namespace atl
