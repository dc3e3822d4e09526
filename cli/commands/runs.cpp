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
  std::string (*render)(const nlohmann::json&, const Terminal&);
};

Exit list(const Invocation& invocation, const ListCommand& what, bool quiet) {
  Result<CoordinatorClient> client = CoordinatorClient::open(invocation);
  if (!client) {
    return report(invocation, client.error());
  }
  const Result<nlohmann::json> document = client->ask(what.verb, nlohmann::json::object());
  if (!document || !quiet) {
    return show(invocation, document, what.render);
  }
  for (const nlohmann::json& row : list_at(*document, what.rows)) {
    invocation.streams.out << printable(text_at(row, what.name)) << "\n";
  }
  return Exit::ok;
}

Command list_command(const ListCommand& what, std::string summary, std::string quiet_doc) {
  auto quiet = std::make_shared<bool>(false);
  Command command;
  command.name = what.verb;
  command.summary = std::move(summary);
  command.options = {{"-q,--quiet", std::move(quiet_doc), quiet.get()}};
  command.asks_coordinator = true;
  command.run = [what, quiet](Invocation& invocation) { return list(invocation, what, *quiet); };
  return command;
}

std::string render_revoked(const nlohmann::json& document, const Terminal&) {
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
    return client ? show(invocation, client->ask("token_revoke", {{"id", *island}, {"kind", "island"}}), render_revoked)
                  : report(invocation, client.error());
  };
  return command;
}

}  // namespace

Command runs_command() { return list_command({"runs", "runs", "id", render_runs}, "lists the runs, newest first", "print ids only"); }
Command islands_command() {
  Command command = list_command({"islands", "islands", "name", render_islands}, "lists the islands", "print names only");
  command.subcommands = {revoke_island_command()};
  return command;
}

}  // namespace atl
