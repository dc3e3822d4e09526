// `atoll submit`: hands a run file to the coordinator.
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>

#include "agent/service/checkpoint_copy.hpp"
#include "cli/line/command.hpp"
#include "cli/link/coordinator_client.hpp"
#include "cli/link/follow.hpp"
#include "cli/link/newest_statuses.hpp"
#include "cli/models/given_parameters.hpp"
#include "cli/planning/pair_ways.hpp"
#include "cli/planning/planner.hpp"
#include "cli/run_file/run_file.hpp"
#include "cli/views/parts/document.hpp"
#include "cli/views/parts/printable.hpp"
#include "cli/views/rehearsal_view.hpp"
#include "cli/views/views.hpp"
#include "strategies/specification/run_keys.hpp"
#include "strategies/specification/run_notes.hpp"
#include "strategies/specification/run_rules.hpp"

namespace atl {
namespace {

constexpr double kAssumedRoundTrip = 0.05;  // seconds, as of `plan`
constexpr double kWantedUtilisation = 0.95;

struct SubmitOptions {
  std::string file;
  std::string name;
  std::string restore;
  bool dry_run = false;
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
  for (const nlohmann::json& apart : list_at(document, "apart")) {
    invocation.streams.err << "warning: " << (apart.is_string() ? printable(apart.get<std::string>(), 1000) : "") << "\n";
  }
  const std::string reason = printable(text_at(document, "reason"), 300);
  invocation.streams.err << (flag_at(document, "created") ? "submitted " : "there already is ") << printable(text_at(document, "name"))
                         << ": " << printable(text_at(document, "state")) << (reason.empty() ? "" : ", " + reason)
                         << "\nwatch it with: atoll status " << id << " --watch\n"
                         << std::flush;
}

Exit follow(const Invocation& invocation, CoordinatorClient& client, const std::string& run) {
  const Result<Interrupt> interrupt = Interrupt::open();
  if (!interrupt) {
    return report(invocation, interrupt.error());
  }
  FollowOptions what;
  what.run = run;
  what.interrupt = &*interrupt;
  const Result<std::string> state = follow_events(invocation, client, what);
  if (!state && state.error().code == Code::cancelled) {
    invocation.streams.err << "run " << printable(run) << " goes on; follow it again with: atoll logs " << printable(run)
                           << " -f, or end it with: atoll cancel " << printable(run) << "\n"
                           << std::flush;
    return Exit::interrupted;
  }
  if (!state) {
    return report(invocation, state.error());
  }
  if (!invocation.json) {
    show(invocation, client.ask("status", {{"run", run}}), render_summary);
  }
  return exit_for_state(*state);
}

// The document of the islands that take part.
Result<nlohmann::json> members_of(CoordinatorClient& client, const nlohmann::json& rehearsal) {
  ATOLL_ASSIGN(nlohmann::json islands, client.ask("islands", nlohmann::json::object()));
  nlohmann::json members = nlohmann::json::array();
  for (const nlohmann::json& candidate : list_at(rehearsal, "islands")) {
    for (const nlohmann::json& island : list_at(islands, "islands")) {
      if (flag_at(candidate, "takes_part") && text_at(island, "id") == text_at(candidate, "id")) {
        members.push_back(island);
      }
    }
  }
  islands["islands"] = std::move(members);
  return islands;
}

// The plan on them, as far as their figures are known; else why there is none.
Result<nlohmann::json> plan_on(CoordinatorClient& client, const RunSpec& spec, const nlohmann::json& islands, const nlohmann::json& pairs) {
  if (spec.strategy.group == Group::expert) {
    return Error{Code::unavailable, "plan reckons with rounds, and a run of experts has none"};
  }
  ATOLL_ASSIGN(const std::vector<nlohmann::json> statuses, newest_statuses(client));
  ATOLL_ASSIGN(const std::vector<PlanIsland> measured, measured_islands(islands, statuses, spec, {kAssumedRoundTrip, 0}));
  ATOLL_ASSIGN(nlohmann::json plan, plan_document(spec, measured, kWantedUtilisation, measured_costs()));
  plan["relays"] = relay_loads(pairs, plan);
  return plan;
}

// --restore: which checkpoint's copy the run is to go on from, as the request has it. `which`: "newest", or a run's id.
Result<nlohmann::json> find_copy(const Invocation& invocation, const RunSpec& spec, const std::string& which) {
  if (spec.checkpoint.copy.empty()) {
    return Error{Code::invalid_argument, "--restore: the run file does not say where copies of checkpoints are: [checkpoint] copy"};
  }
  ATOLL_ASSIGN(const StoreCredentials credentials, StoreCredentials::from(invocation.environment));
  ATOLL_ASSIGN(const ObjectStore store, ObjectStore::open(spec.checkpoint.copy, credentials));
  const agent::CopyPatience patience{3, std::chrono::seconds(1), {}};
  std::string folder = agent::copy_folder(RunId(which));
  if (which == "newest") {
    ATOLL_ASSIGN(folder, agent::newest_folder(store, patience));
  }
  ATOLL_ASSIGN(const agent::CopiedCheckpoint copy, agent::look_at_copy(store, folder, std::nullopt, patience));
  if (agent::copy_folder(copy.run) != folder) {
    return Error{Code::invalid_argument, "--restore: " + spec.checkpoint.copy + " is the place of one run's copies; [checkpoint] copy is " +
                                             "the one above it, as the run had it"};
  }
  nlohmann::json data = nlohmann::json::array();
  for (const DataRange& part : copy.data) {
    data.push_back({part.part, part.to});
  }
  return nlohmann::json{{"run", copy.run.text},
                        {"round", copy.round.value},
                        {"epoch", copy.epoch.value},
                        {"digest", to_hex(copy.digest)},
                        {"data", std::move(data)}};
}

// --dry-run: exit code 0 if the run would begin, 8 if islands are lacking.
Exit rehearse(const Invocation& invocation, CoordinatorClient& client, const nlohmann::json& arguments, const RunSpec& spec) {
  Result<nlohmann::json> document = client.ask("submit", arguments);
  if (!document) {
    return report(invocation, document.error());
  }
  const Result<nlohmann::json> islands = members_of(client, *document);
  const nlohmann::json pairs = islands ? pair_ways(*islands, island_names(*islands)) : nlohmann::json::array();
  (*document)["pairs"] = pairs;
  Result<nlohmann::json> plan = !islands                       ? Result<nlohmann::json>(islands.error())
                                : flag_at(*document, "enough") ? plan_on(client, spec, *islands, pairs)
                                                               : Result<nlohmann::json>(nlohmann::json());
  (*document)["plan"] = plan ? *plan : nlohmann::json();
  (*document)["no_plan"] = plan ? nlohmann::json() : nlohmann::json(plan.error().why);
  show(invocation, document, render_rehearsal);
  return flag_at(*document, "enough") ? Exit::ok : Exit::conflict;
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
  Status pinned = pin_file(file->spec, std::filesystem::absolute(options.file).parent_path() / file->spec.model.from);
  if (const std::optional<HubModel> hub = hub_model_to_begin_from(file->spec.model.from);
      hub && (file->spec.model.sha256.empty() || !is_commit(hub->revision))) {  // else it is pinned, and may be on the islands alone
    const Result<std::filesystem::path> folder = pin_hub_model(file->spec, invocation.environment);
    pinned = folder ? Status() : Status(folder.error());
  }
  pinned = pinned ? pin_run(file->spec, *client) : pinned;
  if (!pinned) {
    return report(invocation, pinned.error());
  }
  nlohmann::json arguments = {{"spec", nlohmann::json::parse(to_json(file->spec))}, {"once", !options.name.empty()}};
  if (!options.restore.empty()) {
    Result<nlohmann::json> copy = find_copy(invocation, file->spec, options.restore);
    if (!copy) {
      return report(invocation, copy.error());
    }
    arguments["copy"] = *std::move(copy);
  }
  if (options.dry_run) {
    arguments["dry_run"] = true;
    return rehearse(invocation, *client, arguments, file->spec);
  }
  const Result<nlohmann::json> document = client->ask("submit", arguments);
  if (!document) {
    return report(invocation, document.error());
  }
  print_submitted(invocation, *document, options.quiet);
  if (!invocation.json && !options.quiet) {
    for (const std::string& note : notes_on(file->spec)) {
      invocation.streams.err << "note: " << note << "\n" << std::flush;
    }
  }
  return options.follow ? follow(invocation, *client, text_at(*document, "run")) : Exit::ok;
}

}  // namespace

Command submit_command() {
  auto options = std::make_shared<SubmitOptions>();
  Command command;
  command.name = "submit";
  command.summary = "submits a run file and prints the run's id";
  command.details = "With --name, submitting the same file again returns the same run. Relative `files` are looked up by each island.";
  command.options = {
      {"FILE", "the run file (TOML)", &options->file, true, {}, Completes::files},
      {"--name", "call the run so, and submit it at most once", &options->name},
      {"--restore",
       "WHICH: go on from a copy of a checkpoint in [checkpoint] copy, where the run's coordinator is lost with all its islands: newest, "
       "or "
       "a run's id",
       &options->restore,
       false,
       {},
       Completes::nothing,
       {"newest"}},
      {"-q,--quiet", "print nothing but the id", &options->quiet},
      {"-f,--follow", "print the run's events until it has ended, then a summary", &options->follow},
      {"-n,--dry-run", "submit nothing: say which islands would take part, what is missing, and the plan", &options->dry_run}};
  command.asks_coordinator = true;
  command.run = [options](Invocation& invocation) { return submit(invocation, *options); };
  return command;
}

}  // namespace atl
