// `atoll runs`, `atoll islands`: what there is; `atoll runs rm`, `atoll islands revoke`: and what there is to be no more.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>
#include <utility>

#include "cli/line/command.hpp"
#include "cli/link/coordinator_client.hpp"
#include "cli/views/parts/document.hpp"
#include "cli/views/parts/printable.hpp"
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

// Of those that are connected, or are not; and whether they are several.
std::pair<std::string, bool> names_of(const nlohmann::json& islands, bool connected) {
  std::string names;
  std::size_t count = 0;
  for (const nlohmann::json& island : islands) {
    if (flag_at(island, "connected") == connected) {
      names += (names.empty() ? "" : ", ") + printable(text_at(island, "name"));
      ++count;
    }
  }
  return {names, count > 1};
}

std::string render_removed_run(const nlohmann::json& document) {
  const bool removed = flag_at(document, "removed");
  const auto [here, several_here] = names_of(list_at(document, "islands"), true);
  const auto [away, several_away] = names_of(list_at(document, "islands"), false);
  std::string line = "run " + printable(text_at(document, "run")) + " (" + printable(text_at(document, "name")) + ") ";
  line += removed ? "is removed" : "would be removed";
  if (!here.empty()) {
    line += "; what " + here + (several_here ? " hold" : " holds") + " of it " + (removed ? "goes now" : "would go at once");
  }
  if (!away.empty()) {
    line += "; " + away + (removed ? several_away ? " hear" : " hears" : " would hear") + " of it on coming back";
  }
  return line + "\n";
}

struct RemoveOptions {
  std::vector<std::string> runs;
  bool dry_run = false;
};

// All of them are looked at before the first is removed: where one cannot be, none is.
Exit remove_runs(const Invocation& invocation, const RemoveOptions& options) {
  Result<CoordinatorClient> client = CoordinatorClient::open(invocation);
  if (!client) {
    return report(invocation, client.error());
  }
  std::vector<nlohmann::json> documents;
  for (const bool rehearse : {true, false}) {
    if (!rehearse && options.dry_run) {
      break;
    }
    std::vector<nlohmann::json> answers;
    for (std::size_t i = 0; i < options.runs.size(); ++i) {
      const std::string run = rehearse ? options.runs[i] : text_at(documents[i], "run");
      if (!rehearse && std::ranges::find(answers, run, [](const auto& done) { return text_at(done, "run"); }) != answers.end()) {
        continue;  // it was named twice
      }
      Result<nlohmann::json> answer = client->ask("remove", {{"run", run}, {"dry_run", rehearse}});
      if (!answer) {
        return report(invocation, answer.error());
      }
      answers.push_back(*std::move(answer));
    }
    documents = std::move(answers);
  }
  if (invocation.json) {
    invocation.streams.out << json_line({{"schema", 1}, {"runs", documents}}) << "\n";
    return Exit::ok;
  }
  for (const nlohmann::json& document : documents) {
    invocation.streams.out << render_removed_run(document);
  }
  return Exit::ok;
}

Command remove_runs_command() {
  auto options = std::make_shared<RemoveOptions>();
  Command command;
  command.name = "rm";
  command.summary = "removes runs that have ended, for good, with what islands hold of them";
  command.details =
      "Its rows leave the coordinator's ledger, and every island removes its checkpoints: at once, or when it comes back. What an island's "
      "owner\nkeeps (atoll agent --keep-removed), exported files and copies in stores stay. Where one of the runs cannot be removed, none "
      "is.";
  command.options = {{"RUN", "the runs", &options->runs, true, {}, Completes::runs},
                     {"-n,--dry-run", "remove nothing: say which islands hold something", &options->dry_run}};
  command.asks_coordinator = true;
  command.run = [options](Invocation& invocation) { return remove_runs(invocation, *options); };
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
  Command command =
      list_command({"runs", "runs", "id", "ended_unix_ms", "that ended", render_runs}, "lists the runs, newest first", "print ids only");
  command.subcommands = {remove_runs_command()};
  return command;
}
Command islands_command() {
  Command command = list_command({"islands", "islands", "name", "last_seen_unix_ms", "last seen", render_islands}, "lists the islands",
                                 "print names only");
  command.subcommands = {revoke_island_command()};
  return command;
}

}  // namespace atl
