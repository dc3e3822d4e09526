// `atoll local`: a whole training on this machine: coordinator and islands on loopback, live progress, a summary.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>
#include <system_error>
#include <utility>

#include "agent/host/trainer_programs.hpp"
#include "agent/service/data_access.hpp"
#include "cli/line/command.hpp"
#include "cli/line/interrupt.hpp"
#include "cli/link/follow.hpp"
#include "cli/local/fault_script.hpp"
#include "cli/local/links/uplink.hpp"
#include "cli/local/local_cluster.hpp"
#include "cli/local/progress.hpp"
#include "cli/models/ensemble_folder.hpp"
#include "cli/models/export_model.hpp"
#include "cli/models/given_parameters.hpp"
#include "cli/run_file/fault_file.hpp"
#include "cli/run_file/run_file.hpp"
#include "cli/views/parts/document.hpp"
#include "cli/views/parts/printable.hpp"
#include "cli/views/parts/run_state.hpp"
#include "cli/views/views.hpp"
#include "coordinator/core/phases.hpp"
#include "strategies/specification/run_rules.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/output_file.hpp"

namespace atl {
namespace {

namespace fs = std::filesystem;

struct LocalOptions {
  std::string file;
  std::uint64_t islands = 0;
  std::string state;
  std::string export_to;
  std::vector<std::string> data;
  std::vector<std::string> allow_data;
  std::vector<std::string> trainers;
  std::vector<std::string> trainer_environment;
  std::vector<std::string> trainer_folders;
  bool check_arena = false;
  std::string uplink;
  std::string link;
  std::string faults;
  std::string network = "lan";
  std::string web;
};

// The programs of trainers: a run file's own command is started in the file's folder, and what the command line names where this was
// called.
void add_trainers(const std::string& name, const std::string& command, const LocalOptions& options,
                  const std::function<void(const char*, const std::string&)>& add) {
  const auto names = [](const std::vector<std::string>& texts, const std::string& trainer) {
    return std::ranges::any_of(texts, [&](const std::string& text) { return text.starts_with(trainer + "="); });
  };
  const auto add_folder = [&](const std::string& trainer, const fs::path& folder) {
    if (!names(options.trainer_folders, trainer)) {
      add("--trainer-folder", trainer + "=" + folder.string());
    }
  };
  if (!command.empty() && !names(options.trainers, name)) {
    add("--trainer", name + "=" + command);
    add_folder(name, fs::absolute(options.file).parent_path());
  }
  for (const std::string& text : options.trainers) {
    add("--trainer", text);
    if (!text.ends_with("=attach")) {
      add_folder(text.substr(0, text.find('=')), fs::current_path());
    }
  }
  for (const std::string& variable : options.trainer_environment) {
    add("--trainer-env", variable);
  }
  for (const std::string& folder : options.trainer_folders) {
    const std::size_t equals = folder.find('=');
    add("--trainer-folder",
        equals == std::string::npos ? folder : folder.substr(0, equals + 1) + fs::absolute(folder.substr(equals + 1)).string());
  }
}

using AddOption = std::function<void(const char*, const std::string&)>;

// Whoever starts it owns what the paths lead to, also by links to elsewhere, as Hugging Face's cache has them.
void allow(const std::string& pattern, const AddOption& add) {
  const fs::path base = base_of_pattern(pattern);
  std::set<fs::path> folders = {base};
  DataSpec all;
  all.files = {pattern};
  const Result<std::vector<fs::path>> files = resolve_data(all, {{}, {"/"}}, {});
  for (const fs::path& file : files ? *files : std::vector<fs::path>()) {
    for (fs::path at = file; at != base && at.has_relative_path(); at = at.parent_path()) {
      std::error_code failure;
      if (const fs::path target = fs::is_symlink(at, failure) ? fs::canonical(at, failure) : fs::path(); !failure && !target.empty()) {
        folders.insert(fs::is_directory(target, failure) ? target : target.parent_path());
      }
    }
  }
  for (const fs::path& folder : folders) {
    add("--allow-data", folder.string());
  }
}

std::vector<std::string> agent_arguments(const RunSpec& spec, const std::string& trainer_command, const LocalOptions& options) {
  std::vector<std::string> arguments;
  const auto add = [&](const char* name, const std::string& value) { arguments.insert(arguments.end(), {name, value}); };
  for (const std::string& file : spec.data.files) {
    allow(file, add);
  }
  if (const std::string features(features_file(spec.diffusion.features)); !features.empty()) {
    add("--allow-data", base_of_pattern(features).string());
  }
  if (begins_from_file(spec)) {
    allow(spec.model.from, add);
  }
  for (const std::string& folder : options.allow_data) {
    add("--allow-data", fs::absolute(folder).string());
  }
  if (!spec.checkpoint.copy.empty()) {
    add("--allow-copy", spec.checkpoint.copy);
  }
  for (const std::string& mapping : options.data) {
    const std::size_t equals = mapping.find('=');
    const std::string path = equals == std::string::npos ? mapping : fs::absolute(mapping.substr(equals + 1)).string();
    add("--data", equals == std::string::npos ? mapping : mapping.substr(0, equals + 1) + path);
    if (equals != std::string::npos) {
      allow(path, add);
    }
  }
  if (!options.uplink.empty()) {
    add("--uplink", options.uplink);
  }
  add_trainers(spec.trainer.name, trainer_command, options, add);
  if (options.check_arena) {
    arguments.emplace_back("--check-arena");  // the last: it has no value
  }
  return arguments;
}

// What the agents would refuse of their trainers is refused before anything is started.
Status check_trainers(const std::vector<std::string>& arguments, const std::string& search_path) {
  agent::TrainerOptions given;
  for (std::size_t i = 0; i + 1 < arguments.size(); i += 2) {
    if (arguments[i] == "--trainer") {
      given.commands.push_back(arguments[i + 1]);
    } else if (arguments[i] == "--trainer-env") {
      given.environment.push_back(arguments[i + 1]);
    } else if (arguments[i] == "--trainer-folder") {
      given.folders.push_back(arguments[i + 1]);
    }
  }
  const Result<agent::TrainerPrograms> programs = agent::trainer_programs(given, search_path);
  return programs ? Status() : Status(programs.error());
}

Result<std::optional<LinkTerms>> link_of(const LocalOptions& options) {
  if (options.link.empty()) {
    return std::optional<LinkTerms>();
  }
  Result<LinkTerms> terms = parse_link(options.link);
  return terms ? Result<std::optional<LinkTerms>>(*terms) : Result<std::optional<LinkTerms>>(with_context(terms.error(), "--link"));
}

// Reads the run file for so many islands here.
Result<RunSpec> local_spec(RunFile file, LocalOptions& options, const Environment& environment) {
  RunSpec& spec = file.spec;
  if (options.islands == 0) {
    options.islands = spec.islands.min;
  }
  if (options.islands < spec.islands.min || options.islands > spec.islands.max) {
    return Error{Code::invalid_argument, "--islands " + std::to_string(options.islands) + ": the run file says from " +
                                             std::to_string(spec.islands.min) + " to " + std::to_string(spec.islands.max) + " islands"};
  }
  spec.islands.max = static_cast<std::uint32_t>(options.islands);
  if (spec.data.spread > 1) {
    return Error{Code::invalid_argument,
                 "data.spread " + std::to_string(spec.data.spread) +
                     ": the islands of `atoll local` all have the same files, so there are no parts of which each has one; "
                     "remove spread, or start agents with --data of their own and submit the run"};
  }
  if (!options.uplink.empty()) {
    ATOLL_TRY(parse_uplink(options.uplink));
  }
  if (const Result<std::optional<LinkTerms>> link = link_of(options); !link) {
    return link.error();
  }
  if (has_own_trainer(spec) && file.trainer_command.empty() && options.trainers.empty()) {
    return Error{Code::invalid_argument, "no program is given for trainer " + spec.trainer.name +
                                             ": put command = \"python3 train.py\" into [trainer], or give --trainer " + spec.trainer.name +
                                             "='COMMAND'"};
  }
  resolve_files(spec, options.file);
  if (hub_model_to_begin_from(spec.model.from)) {  // all islands are here
    ATOLL_ASSIGN(const fs::path folder, pin_hub_model(spec, environment));
    spec.model.from = folder.string();
    return spec;
  }
  ATOLL_TRY(pin_file(spec, spec.model.from));
  return spec;
}

Result<fs::path> cluster_folder(const Invocation& invocation, const RunSpec& spec, const LocalOptions& options) {
  if (!options.state.empty()) {
    return fs::absolute(options.state);
  }
  ATOLL_ASSIGN(const fs::path state, state_directory("", invocation.environment));
  // Two that are started in the same millisecond have folders of their own.
  return fs::absolute(state / "local" / (spec.name + "-" + std::to_string(unix_ms(now())) + "-" + std::to_string(::getpid())));
}

std::vector<std::string> island_names(const RunSpec& spec, std::uint64_t count) {
  std::vector<std::string> names = spec.islands.names;
  names.resize(std::min<std::size_t>(names.size(), count));
  for (std::size_t i = names.size(); i < count; ++i) {
    names.push_back("island-" + std::to_string(i + 1));
  }
  return names;
}

// Lets the cluster live until it is time for the next question; true if somebody interrupts.
Result<bool> live_on(LocalCluster& cluster, const Interrupt& interrupt, bool rehearsing) {
  constexpr Duration kBetweenQuestions = std::chrono::milliseconds(400);
  const Duration step = rehearsing ? std::chrono::milliseconds(40) : kBetweenQuestions;  // kills and pauses end in time
  for (Duration passed{}; passed < kBetweenQuestions; passed += step) {
    if (interrupt.came(step)) {
      return true;
    }
    ATOLL_TRY(cluster.pump());
  }
  return false;
}

// Errors that the run goes on after, as they come: a trainer that ended and is started again is no mere "is starting".
void say_errors(const Invocation& invocation, LocalCluster& cluster, const std::string& run, double& after, Progress& progress) {
  const Result<nlohmann::json> page =
      cluster.client().ask("events", {{"run", run}, {"after", static_cast<std::uint64_t>(after)}, {"limit", 1000}});
  if (!page || flag_at(*page, "ended")) {
    return;  // the summary says why
  }
  after = number_at(*page, "next").value_or(after);
  nlohmann::json errors = {{"events", nlohmann::json::array()}};
  for (const nlohmann::json& event : list_at(*page, "events")) {
    if (text_at(event, "level") == "error") {
      errors["events"].push_back(event);
    }
  }
  if (!errors["events"].empty()) {
    progress.finish();
    invocation.streams.err << render_events(errors, invocation.terminal) << std::flush;
  }
}

// Watches the run until it has ended or somebody interrupts. The value is its last status document.
Result<nlohmann::json> watch(const Invocation& invocation, LocalCluster& cluster, const Interrupt& interrupt, const std::string& run,
                             bool rehearsing) {
  Progress progress(invocation.streams, invocation.terminal);
  bool told = false;
  double told_errors = 0;
  while (true) {
    if (const Result<bool> interrupted = live_on(cluster, interrupt, rehearsing); !interrupted || *interrupted) {
      progress.finish();
      return interrupted ? Error{Code::cancelled, "interrupted"} : interrupted.error();
    }
    Result<nlohmann::json> document = cluster.client().ask("status", {{"run", run}});
    if (!document && document.error().code == Code::unavailable) {
      // Its process is there, or `pump` had said so: it is stopped, or starved by the trainers. The islands go on meanwhile.
      if (!told) {
        progress.finish();
        invocation.streams.err << "atoll: the coordinator's process is there, but does not answer; asking again\n" << std::flush;
        told = true;
      }
      continue;
    }
    told = false;
    if (!document) {
      progress.finish();
      return document;
    }
    say_errors(invocation, cluster, run, told_errors, progress);
    progress.show(*document);
    if (run_has_ended(text_at(object_at(*document, "run"), "state"))) {
      progress.finish();
      return document;
    }
  }
}

// Interrupted: the run is paused, so that it goes on later to the model that it would have come to. A round that takes long is not waited
// for.
void pause_run(const Invocation& invocation, LocalCluster& cluster, const std::string& run) {
  constexpr Duration kPatience = std::chrono::seconds(20);
  if (!cluster.client().ask("pause", {{"run", run}})) {
    return;  // it has ended, or is about to
  }
  invocation.streams.err << "pauses after the round in hand; Ctrl-C again ends at once\n" << std::flush;
  const TimePoint deadline = now() + kPatience;
  while (now() < deadline && cluster.pump()) {
    const Result<nlohmann::json> document = cluster.client().ask("status", {{"run", run}});
    const std::string state = document ? text_at(object_at(*document, "run"), "state") : "";
    if (state == "paused" || run_has_ended(state)) {
      return;
    }
    pause_between_questions(std::chrono::milliseconds(100));
  }
}

// One that an interruption paused goes on.
Status resume_paused(LocalCluster& cluster, const std::string& run) {
  ATOLL_ASSIGN(const nlohmann::json document, cluster.client().ask("status", {{"run", run}}, kStartPatience));
  if (text_at(object_at(document, "run"), "state") != "paused") {
    return {};
  }
  const Result<nlohmann::json> resumed = cluster.client().ask("resume", {{"run", run}}, kStartPatience);
  return resumed ? Status() : Status(resumed.error());
}

// The last checkpoint is copied behind the run's end. The cluster lives so long, and the summary says what came of it.
Result<nlohmann::json> await_copies(LocalCluster& cluster, const Interrupt& interrupt, nlohmann::json document) {
  constexpr Duration kPatience = std::chrono::seconds(60);
  const std::string run = text_at(object_at(document, "run"), "id");
  for (const TimePoint deadline = now() + kPatience; now() < deadline && !copies_are_settled(document);) {
    const Result<bool> interrupted = live_on(cluster, interrupt, false);
    if (!interrupted || *interrupted) {
      break;  // the run is over: there is a summary all the same
    }
    if (Result<nlohmann::json> next = cluster.client().ask("status", {{"run", run}})) {
      document = std::move(next).value();
    }
  }
  if (!copies_are_settled(document)) {
    document["copies_open"] = "the store had not taken the newest checkpoint when the islands ended";
  }
  return document;
}

// All that was told of a run, in order.
Result<nlohmann::json> events_of(LocalCluster& cluster, const std::string& run) {
  nlohmann::json all = nlohmann::json::array();
  for (std::uint64_t after = 0;;) {
    ATOLL_ASSIGN(const nlohmann::json page, cluster.client().ask("events", {{"run", run}, {"after", after}, {"limit", 1000}}));
    const nlohmann::json& events = list_at(page, "events");
    if (events.empty()) {
      return all;
    }
    all.insert(all.end(), events.begin(), events.end());
    after = static_cast<std::uint64_t>(number_at(page, "next").value_or(0));
  }
}

Exit train(const Invocation& invocation, LocalCluster& cluster, const Interrupt& interrupt, RunSpec spec, const LocalOptions& options,
           const FaultScript* faults) {
  Status begun = cluster.start_agents();
  begun = begun ? pin_run(spec, cluster.client(), kStartPatience) : begun;
  if (!begun) {
    return report(invocation, begun.error());
  }
  const Result<nlohmann::json> submitted =
      cluster.client().ask("submit", {{"spec", nlohmann::json::parse(to_json(spec))}, {"once", true}}, kStartPatience);
  if (!submitted) {
    return report(invocation, submitted.error());
  }
  const std::string run = text_at(*submitted, "run");
  if (const Status resumed = resume_paused(cluster, run); !resumed) {
    return report(invocation, resumed.error());
  }
  Result<nlohmann::json> document = watch(invocation, cluster, interrupt, run, faults != nullptr);
  if (!document) {
    const Exit exit = report(invocation, document.error());
    if (document.error().code != Code::cancelled) {
      return exit;
    }
    pause_run(invocation, cluster, run);
    return Exit::interrupted;
  }
  if (!spec.checkpoint.copy.empty()) {
    document = await_copies(cluster, interrupt, std::move(document).value());
  }
  if (faults != nullptr) {
    const Result<nlohmann::json> events = events_of(cluster, run);
    if (!events) {
      return report(invocation, with_context(events.error(), "what the faults led to"));
    }
    (*document)["faults"] = faults->report(*events, number_at(object_at(*document, "run"), "started_unix_ms"));
  }
  show(invocation, document, render_summary);
  const std::string state = text_at(object_at(*document, "run"), "state");
  if (state == "completed" && !options.export_to.empty()) {
    if (const Result<Exported> exported = export_run(cluster.client(), run, options.export_to, interrupt); !exported) {
      return report_no_model(invocation, exported.error());
    }
  }
  return exit_for_state(state);
}

void say_where(const Invocation& invocation, const LocalOptions& options, const fs::path& folder, const std::optional<LinkTerms>& link) {
  invocation.streams.err << (options.islands == 1 ? "1 island" : std::to_string(options.islands) + " islands") << " in "
                         << printable(folder.string()) << "; Ctrl-C stops all; elsewhere: atoll status --watch --state "
                         << printable((folder / "coordinator").string()) << "\n";
  if (link) {
    invocation.streams.err << "between islands: " << to_string(*link) << "\n";
  }
  invocation.streams.err << std::flush;
}

// What the data set's folders and patterns stand for, before anything is trained on it. What cannot be found or read the islands say.
void say_data(const Invocation& invocation, const RunSpec& spec, const LocalOptions& options) {
  DataPermissions permissions;
  for (const std::string& mapping : options.data) {
    static_cast<void>(add_data_mapping(permissions, mapping));
  }
  for (const std::string& file : spec.data.files) {
    permissions.folders.push_back(base_of_pattern(file));
  }
  permissions.folders.insert(permissions.folders.end(), options.allow_data.begin(), options.allow_data.end());
  if (spec.data.set.empty() && spec.data.files.empty()) {
    return;
  }
  if (const Result<std::vector<fs::path>> files = resolve_data(spec.data, permissions, {})) {
    invocation.streams.err << "the data are " << printable(listing_of(*files)) << "\n" << std::flush;
  }
}

// What stands behind the loops of a completed run's trainers has its time.
void end_all(const Invocation& invocation, LocalCluster& cluster, const Interrupt& interrupt, Duration finish_within) {
  constexpr Duration kSilent = std::chrono::seconds(3);
  cluster.stop(std::chrono::seconds(20), finish_within, [&, told = false](Duration waited) mutable {
    if (waited > kSilent && finish_within > Duration::zero() && !std::exchange(told, true)) {
      invocation.streams.err << "waits until the trainers have finished, at most " << human_duration(finish_within)
                             << " ([trainer].finish_within); Ctrl-C ends them\n"
                             << std::flush;
    }
    return finish_within == Duration::zero() || !interrupt.came();  // one that interrupts the run does not end it in disorder
  });
}

Exit local(const Invocation& invocation, LocalOptions options) {
  Result<RunFile> file = read_run_file(options.file);
  const std::string trainer_command = file ? file->trainer_command : "";
  if (!file || !file->valid()) {
    invocation.streams.err << (file ? problems_text(*file) : "atoll: " + file.error().why + "\n");
    return Exit::usage;
  }
  const Result<RunSpec> spec = local_spec(std::move(file).value(), options, invocation.environment);
  if (!spec) {
    return report(invocation, spec.error());
  }
  const std::vector<std::string> arguments = agent_arguments(*spec, trainer_command, options);
  if (const Status trainers = check_trainers(arguments, invocation.environment("PATH").value_or("")); !trainers) {
    return report(invocation, trainers.error());
  }
  std::shared_ptr<FaultScript> faults;
  if (!options.faults.empty()) {
    Result<FaultFile> script =
        read_fault_file(options.faults, {island_names(*spec, options.islands), spec->strategy.group == Group::expert ? 0 : spec->rounds});
    if (!script || !script->valid()) {
      invocation.streams.err << (script ? problems_text(script->source, script->problems) : "atoll: " + script.error().why + "\n");
      return Exit::usage;
    }
    faults = std::make_shared<FaultScript>(std::move(script->faults));
  }
  if (!options.export_to.empty()) {
    const Status fits =
        coordinator::tasks_of(*spec).empty() ? OutputFile::check(options.export_to) : check_ensemble_folder(options.export_to);
    if (!fits) {
      return report(invocation, with_context(fits.error(), "--export"));
    }
  }
  const Result<fs::path> folder = cluster_folder(invocation, *spec, options);
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  const Result<Interrupt> interrupt = Interrupt::open();
  if (!folder || !interrupt || error) {
    return report(invocation, !folder      ? folder.error()
                              : !interrupt ? interrupt.error()
                                           : Error{Code::io, "/proc/self/exe: " + error.message()});
  }
  const std::optional<LinkTerms> link = *link_of(options);
  say_where(invocation, options, *folder, link);
  say_data(invocation, *spec, options);
  const Duration finish_within = has_own_trainer(*spec) ? spec->trainer.finish_within : Duration::zero();
  Result<LocalCluster> cluster = LocalCluster::start({program.string(), *folder, island_names(*spec, options.islands), arguments,
                                                      options.network, options.web, faults, link, finish_within});
  if (!cluster) {
    return report(invocation, cluster.error());
  }
  const Exit exit = train(invocation, *cluster, *interrupt, *spec, options, faults.get());
  end_all(invocation, *cluster, *interrupt, exit == Exit::ok ? finish_within : Duration::zero());
  if (exit == Exit::interrupted) {
    invocation.streams.err << "stopped; go on with: atoll local " << printable(options.file) << " --islands " << options.islands
                           << " --state " << printable(folder->string()) << "\n";
  } else if (exit == Exit::run_failed) {
    invocation.streams.err << "all that islands and trainers said: " << printable((*folder / "*.log").string()) << "\n";
  }
  return exit;
}

}  // namespace

Command local_command() {
  auto options = std::make_shared<LocalOptions>();
  Command command;
  command.name = "local";
  command.summary = "trains on this machine: a coordinator and N islands on loopback";
  command.details =
      "The islands may read what the run file names. Everything lies in one folder (--state, else a new one below the state\n"
      "directory); with the same --state an interrupted run goes on. With --faults the summary says which faults struck,\n"
      "when, and what followed.";
  command.options = {
      {"FILE", "the run file (TOML)", &options->file, true, {}, Completes::files},
      {"-n,--islands", "how many (else the run file's min)", &options->islands},
      {"--state", "the folder for everything", &options->state, false, {}, Completes::folders},
      {"--export", "write the model (or the ensemble, as a folder) here at the end", &options->export_to, false, {}, Completes::files},
      {"--data", "NAME=PATH: the files behind a data set's name", &options->data},
      {"--allow-data", "a further folder that the islands may read", &options->allow_data, false, {}, Completes::folders},
      {"--trainer", "NAME=COMMAND: the program of a trainer (else [trainer].command)", &options->trainers},
      {"--trainer-env", "NAME=KEY=VALUE: a variable for that trainer", &options->trainer_environment},
      {"--trainer-folder", "NAME=DIR: where that trainer is started (else here; of [trainer].command in the run file's folder)",
       &options->trainer_folders},
      {"--check-arena", "for debugging a trainer: one that writes into the arena out of turn fails, with the fragment's number",
       &options->check_arena},
      {"--uplink", "what each island may send to the others, as 50mbit: a run on thin links, rehearsed here", &options->uplink},
      {"--link", "RTT,RATE,LOSS of the paths between islands, as 100ms,1gbit,0.1%: far and thin links, rehearsed here (see docs/faults.md)",
       &options->link},
      {"--network", "how soon silence counts as a loss, in a new folder", &options->network, false, {"local", "lan", "wan"}},
      {"--web", "where a page shows the run, on this machine only: 127.0.0.1:4480", &options->web},
      {"--faults",
       "a file of faults to rehearse: kills, pauses, slow and cut links, corrupted bytes, at a phase of a round",
       &options->faults,
       false,
       {},
       Completes::files}};
  command.run = [options](Invocation& invocation) { return local(invocation, *options); };
  return command;
}

}  // namespace atl
