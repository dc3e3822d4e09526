// `atoll status`: one run, in full.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string>

#include "cli/line/command.hpp"
#include "cli/link/coordinator_client.hpp"
#include "cli/views/parts/document.hpp"
#include "cli/views/parts/printable.hpp"
#include "cli/views/parts/run_state.hpp"
#include "cli/views/views.hpp"

namespace atl {
namespace {

struct StatusOptions {
  std::string run;
  bool watch = false;
  Duration every = std::chrono::seconds(1);
};

// What of a text fits a window: its beginning, where the run's state is, and a last line that says what is missing.
std::string fitted(const std::string& text, const Terminal& terminal, std::size_t rows, const std::string& run) {
  const auto lines = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  if (rows < 2 || lines < rows) {  // the cursor stands in the line below
    return text;
  }
  std::size_t end = 0;
  for (std::size_t line = 0; line + 2 < rows; ++line) {
    end = text.find('\n', end) + 1;
  }
  const std::string rest = std::to_string(lines + 2 - rows) + " more lines: enlarge the window, or see `atoll status " + run + "`";
  return text.substr(0, end) + styled(first_columns(rest, terminal.columns), Style::dim, terminal) + "\n";
}

// One picture of the run. In place it begins at the window's top, and never scrolls it away.
Exit show_now(const Invocation& invocation, const Result<nlohmann::json>& document, bool in_place) {
  if (!document || !in_place) {
    return show(invocation, document, render_status);
  }
  Terminal terminal = invocation.terminal;
  const std::optional<WindowSize> window = invocation.streams.window ? invocation.streams.window() : std::nullopt;
  if (window && !invocation.environment("COLUMNS")) {
    terminal.columns = window->columns;
  }
  const std::string text = render_status(*document, terminal);
  const std::string run = printable(text_at(object_at(*document, "run"), "id"));
  invocation.streams.out << "\x1b[H\x1b[2J" << (window ? fitted(text, terminal, window->rows, run) : text);
  return Exit::ok;
}

// Shows the run again and again, in place on a terminal, until it has ended. Then it is shown whole.
Exit watch(const Invocation& invocation, CoordinatorClient& client, const StatusOptions& options) {
  nlohmann::json arguments = {{"run", options.run}};
  const bool in_place = invocation.streams.out_is_terminal && !invocation.json;
  while (invocation.streams.out) {
    const Result<nlohmann::json> document = client.ask_patiently(invocation, "status", arguments, TimePoint::max());
    const bool ended = document && run_has_ended(text_at(object_at(*document, "run"), "state"));
    if (ended && in_place) {
      invocation.streams.out << "\x1b[H\x1b[2J";
    }
    if (const Exit shown = show_now(invocation, document, in_place && !ended); shown != Exit::ok) {
      return shown;
    }
    invocation.streams.out << std::flush;
    if (ended) {
      break;
    }
    const nlohmann::json& run = object_at(*document, "run");
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
