// `atoll runs`, `atoll islands`: what there is; `atoll islands revoke`: and who may not come any more.
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>

#include "cli/command.hpp"
#include "cli/coordinator_client.hpp"
#include "cli/views/document.hpp"
#include "cli/views/printable.hpp"
#include "cli/views/views.hpp"

namespace atl {
namespace {

struct ListCommand {
  const char* verb;
  const char* rows;  // the document's list
  const char* name;  // of a row, for -q
  const char* over;  // of a row, when it was over
  const char* what;  // "that ended"
  std::string (*render)(const nlohmann::json&, const Terminal&);
};

struct ListOptions {
  bool quiet = false;
  bool all = false;
};

// Takes out of the list what has been over for more than a day, and says so.
nlohmann::json without_what_is_over(const Invocation& invocation, nlohmann::json document, const ListCommand& what) {
  constexpr double kDayMs = 24 * 3600 * 1000.0;
  const double now = number_at(document, "now_unix_ms").value_or(0);
  nlohmann::json kept = nlohmann::json::array();
  const nlohmann::json& rows = list_at(document, what.rows);
  for (const nlohmann::json& row : rows) {
    const bool over = !flag_at(row, "connected") && now - number_at(row, what.over).value_or(now) > kDayMs;
    if (!over) {
      kept.push_back(row);
    }
  }
  const std::size_t hidden = rows.size() - kept.size();
  if (hidden > 0) {
    invocation.streams.err << hidden << " " << what.what << " more than a day ago " << (hidden == 1 ? "is" : "are")
                           << " not shown; --all shows them\n";
    document[what.rows] = std::move(kept);
  }
  return document;
}

Exit list(const Invocation& invocation, const ListCommand& what, const ListOptions& options) {
  Result<CoordinatorClient> client = CoordinatorClient::open(invocation);
  if (!client) {
    return report(invocation, client.error());
  }
  Result<nlohmann::json> document = client->ask(what.verb, nlohmann::json::object());
  if (document && !options.quiet && !options.all && !invocation.json) {
    document = without_what_is_over(invocation, *std::move(document), what);
  }
  if (!document || !options.quiet) {
    return show(invocation, document, what.render);
  }
  for (const nlohmann::json& row : list_at(*document, what.rows)) {
    invocation.streams.out << printable(text_at(row, what.name)) << "\n";
  }
  return Exit::ok;
}

Command list_command(const ListCommand& what, std::string summary, std::string quiet_doc) {
  auto options = std::make_shared<ListOptions>();
  Command command;
  command.name = what.verb;
  command.summary = std::move(summary);
  command.options = {{"-q,--quiet", std::move(quiet_doc), &options->quiet},
                     {"-a,--all", "also what has been over for more than a day", &options->all}};
  command.asks_coordinator = true;
  command.run = [what, options](Invocation& invocation) { return list(invocation, what, *options); };
  return command;
}

std::string render_revoked_island(const nlohmann::json& document, const Terminal&) {
  const std::string island = "island " + printable(text_at(document, "ended")) + " (" + printable(text_at(document, "ended_id")) + ")";
  return flag_at(document, "changed") ? island + " has no access any more, on open connections neither; let it in again with a new token\n"
                                      : island + " had been revoked before: nothing changed\n";
}

Command revoke_island_command() {
  auto island = std::make_shared<std::string>();
  Command command;
  command.name = "revoke";
  command.summary = "ends an island's access at once, on open connections too";
  command.options = {{"ISLAND", "the island", island.get(), true, {}, Completes::islands}};
  command.asks_coordinator = true;
  command.run = [island](Invocation& invocation) {
    if (island->starts_with("t-")) {
      return report(invocation, Error{Code::invalid_argument, "'" + *island + "' is a token: atoll token revoke " + *island});
    }
    Result<CoordinatorClient> client = CoordinatorClient::open(invocation);
    return client ? show(invocation, client->ask("token_revoke", {{"id", *island}, {"kind", "island"}}), render_revoked_island)
                  : report(invocation, client.error());
  };
  return command;
}

}  // namespace

Command runs_command() {
  return list_command({"runs", "runs", "id", "ended_unix_ms", "that ended", render_runs}, "lists the runs, newest first", "print ids only");
}
Command islands_command() {
  Command command = list_command({"islands", "islands", "name", "last_seen_unix_ms", "last seen", render_islands}, "lists the islands",
                                 "print names only");
  command.subcommands = {revoke_island_command()};
  return command;
}

}  // namespace atl
