// `atoll plan`: what a run will cost, before it runs.
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>

#include "agent/host/trainer_programs.hpp"
#include "agent/island_link/arena.hpp"
#include "cli/line/command.hpp"
#include "cli/link/coordinator_client.hpp"
#include "cli/link/newest_statuses.hpp"
#include "cli/planning/measured_paths.hpp"
#include "cli/planning/pair_ways.hpp"
#include "cli/planning/planner.hpp"
#include "cli/planning/price.hpp"
#include "cli/planning/trial_trainer.hpp"
#include "cli/run_file/run_file.hpp"
#include "cli/views/parts/document.hpp"
#include "cli/views/views.hpp"
#include "strategies/specification/model_kind.hpp"

namespace atl {
namespace {

constexpr std::string_view kNolocoLatency = "noloco-latency";
constexpr std::string_view kGoodput = "decoupled-diloco-goodput";

struct PlanOptions {
  std::string trainer;
  std::string file;
  std::vector<std::string> islands;
  Duration round_trip = std::chrono::milliseconds(50);
  std::optional<Duration> step_time;
  std::optional<Duration> probe;
  double utilisation = 0.95;
  bool sweep = false;
  std::string agent_ns;
  std::string price;
  std::string paper;
};

// `document`: what the coordinator has of them.
Result<std::vector<PlanIsland>> ask_islands(const Invocation& invocation, const RunSpec& spec, const PlanOptions& options,
                                            nlohmann::json& document) {
  ATOLL_ASSIGN(CoordinatorClient client, CoordinatorClient::open(invocation));
  ATOLL_ASSIGN(document, options.probe ? measure_paths(client, *options.probe, invocation.streams.err)
                                       : client.ask("islands", nlohmann::json::object()));
  ATOLL_ASSIGN(const std::vector<nlohmann::json> statuses, newest_statuses(client));
  return measured_islands(document, statuses, spec, {seconds(options.round_trip), seconds(options.step_time.value_or(Duration::zero()))});
}

Result<std::vector<PlanIsland>> islands_of(const Invocation& invocation, const RunSpec& spec, const PlanOptions& options,
                                           nlohmann::json& document) {
  if (options.islands.empty()) {
    Result<std::vector<PlanIsland>> measured = ask_islands(invocation, spec, options, document);
    return measured
               ? std::move(measured)
               : with_context(measured.error(), "the islands' figures (--island NAME=STEP_TIME,UPLINK gives them without a coordinator)");
  }
  if (options.probe) {
    return Error{Code::invalid_argument, "--probe measures the links of a coordinator's islands, and --island gives them: not both"};
  }
  std::vector<PlanIsland> islands;
  for (const std::string& text : options.islands) {
    ATOLL_ASSIGN(PlanIsland island, parse_plan_island(text, seconds(options.round_trip)));
    for (const PlanIsland& other : islands) {
      if (other.figures.name == island.figures.name) {
        return Error{Code::invalid_argument, "--island " + island.figures.name + " is given twice"};
      }
    }
    islands.push_back(std::move(island));
  }
  return islands;
}

// --trainer: the program of the run's own trainer, started once; what it declares stands for [trainer].parameters.
Result<std::optional<TrialResult>> trial_of(const Invocation& invocation, RunFile& file, const PlanOptions& options) {
  RunSpec& spec = file.spec;
  if (options.trainer.empty()) {
    return std::optional<TrialResult>();
  }
  const std::size_t equals = options.trainer.find('=');
  const std::string name = options.trainer.substr(0, equals);
  if (!has_own_trainer(spec) || name != spec.trainer.name) {
    return Error{Code::invalid_argument, "--trainer " + name + ": the run file's trainer is " +
                                             (has_own_trainer(spec) ? spec.trainer.name : std::string("the built-in one"))};
  }
  const std::string command = equals == std::string::npos ? file.trainer_command : options.trainer.substr(equals + 1);
  if (command.empty() || command == "attach") {
    return Error{Code::invalid_argument, "--trainer " + name + "='COMMAND' starts it; [trainer].command in the run file is not there"};
  }
  const std::filesystem::path folder =
      equals == std::string::npos ? std::filesystem::absolute(options.file).parent_path() : std::filesystem::current_path();
  agent::TrainerOptions given;
  given.commands.push_back(name + "=" + command);
  given.folders.push_back(name + "=" + folder.string());
  ATOLL_ASSIGN(const agent::TrainerPrograms programs, agent::trainer_programs(given, invocation.environment("PATH").value_or("")));
  std::error_code failure;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", failure);
  if (failure) {
    return Error{Code::io, "/proc/self/exe: " + failure.message()};
  }
  resolve_files(spec, options.file);
  ATOLL_ASSIGN(TrialResult tried, try_trainer(spec, programs, program, invocation.streams.err));
  return std::optional(std::move(tried));
}

// Over what they exchange now, and what relays carry.
Result<nlohmann::json> with_ways(Result<nlohmann::json> plan, const nlohmann::json& islands) {
  if (plan && islands.is_object()) {
    (*plan)["pairs"] = pair_ways(islands, island_names(*plan));
    (*plan)["relays"] = relay_loads((*plan)["pairs"], *plan);
  }
  return plan;
}

// What the bytes cost that each island sends, what relays send, and all of them.
Result<nlohmann::json> with_price(Result<nlohmann::json> document, const std::optional<double>& per_gigabyte) {
  if (document && per_gigabyte) {
    double all = 0;
    const auto add = [&](nlohmann::json& senders, const char* bytes) {
      for (nlohmann::json& sender : senders) {
        const double price = number_at(sender, bytes).value_or(0) / 1e9 * *per_gigabyte;
        sender["price"] = price;
        all += price;
      }
    };
    add((*document)["islands"], "bytes_sent");
    if (document->contains("relays")) {
      add((*document)["relays"], "bytes");
    }
    (*document)["price_per_gigabyte"] = *per_gigabyte;
    (*document)["price"] = all;
  }
  return document;
}

// Islands whose step time the trial says.
Status fill_in(std::vector<PlanIsland>& islands, const std::optional<TrialResult>& trial) {
  for (PlanIsland& island : islands) {
    if (island.source == kTried && (!trial || trial->seconds_per_step <= 0)) {
      return Error{Code::invalid_argument, "--island " + island.figures.name + "=tried,…: " +
                                               (trial ? "the trainer did no step in time" : "give the trainer with --trainer")};
    }
    if (island.source == kTried) {
      island.figures.step_seconds = trial->seconds_per_step;
    }
  }
  return {};
}

Exit plan(const Invocation& invocation, const PlanOptions& options) {
  if (options.paper == kGoodput) {
    return show(invocation, goodput_document(), render_goodput);
  }
  if (options.paper == kNolocoLatency) {
    invocation.streams.err << "simulates averaging by a tree and in pairs for 2 to 1,024 islands: some ten seconds" << std::endl;
  }
  if (!options.paper.empty()) {
    return options.paper == kNolocoLatency ? show(invocation, gossip_timing_document(), render_gossip_timing)
                                           : show(invocation, table_4_document(), render_plan_table_4);
  }
  if (options.file.empty()) {
    return report(invocation, Error{Code::invalid_argument,
                                    "no run file given; try: atoll plan run.toml --island a=250ms,50mbit --island b=250ms,50mbit"});
  }
  Result<RunFile> file = read_run_file(options.file);
  if (!file) {
    report(invocation, file.error());
    return Exit::usage;
  }
  if (!file->valid()) {
    invocation.streams.err << problems_text(*file);
    return Exit::usage;
  }
  if (file->spec.strategy.group == Group::expert) {
    return report(invocation, Error{Code::invalid_argument,
                                    "plan reckons with rounds, and strategy \"" + file->spec.strategy.name +
                                        "\" has none: its experts send each other nothing; `atoll status` shows how far its tasks are"});
  }
  const Result<std::optional<TrialResult>> trial = trial_of(invocation, *file, options);
  if (!trial) {
    return report(invocation, trial.error());
  }
  const std::optional<island_link::Manifest> declared = *trial ? std::optional((*trial)->manifest) : std::nullopt;
  if (declared) {
    file->spec.trainer.parameters = std::to_string(island_link::elements(declared->parameters));
  }
  if (has_own_trainer(file->spec) && file->spec.trainer.parameters.empty()) {
    return report(invocation, Error{Code::invalid_argument,
                                    "plan cannot know how large the model of trainer " + file->spec.trainer.name + " is; --trainer " +
                                        file->spec.trainer.name +
                                        "='COMMAND' starts it once to ask, or say it in the run file: [trainer] parameters = \"1.3B\""});
  }
  nlohmann::json asked;
  Result<std::vector<PlanIsland>> islands = islands_of(invocation, file->spec, options, asked);
  if (const Status filled = islands ? fill_in(*islands, *trial) : Status(); !filled) {
    return report(invocation, filled.error());
  }
  if (!islands) {
    return report(invocation, islands.error());
  }
  const Result<std::optional<double>> price = parse_price(options.price);
  if (!price) {
    return report(invocation, price.error());
  }
  if (*price && options.sweep) {
    return report(invocation, Error{Code::invalid_argument,
                                    "--price goes with one plan; --sweep marks what sends the fewest bytes, which is the cheapest"});
  }
  const Result<CostSource> costs = options.agent_ns.empty() ? Result<CostSource>(measured_costs()) : given_costs(options.agent_ns);
  if (!costs) {
    return report(invocation, costs.error());
  }
  return options.sweep
             ? show(invocation, sweep_document(file->spec, *islands, options.utilisation, *costs, declared), render_plan_sweep)
             : show(invocation,
                    with_price(with_ways(plan_document(file->spec, *islands, options.utilisation, *costs, declared), asked), *price),
                    render_plan);
}

}  // namespace

Command plan_command() {
  auto options = std::make_shared<PlanOptions>();
  Command command;
  command.name = "plan";
  command.summary = "says what a run will cost on given links: bytes, bandwidth, waiting, memory, time";
  command.details =
      "Without --island: the coordinator's connected islands, as it has measured them. A measured link is what the last exchange moved, so "
      "it may be faster;\n--probe 2s measures what passes, before the first run, too.";
  command.options = {
      {"FILE", "the run file (TOML)", &options->file, false, {}, Completes::files},
      {"--island", "NAME=STEP_TIME,UPLINK[,DOWNLINK[,ROUND_TRIP]], as lyon=250ms,50mbit,200mbit,30ms; once for each island",
       &options->islands},
      {"--trainer",
       "NAME=COMMAND: starts the run's own trainer once, here, to learn what it declares and how long a step takes (NAME alone: "
       "[trainer].command); --island a=tried,50mbit takes that time",
       &options->trainer},
      {"--probe", "measures the paths between the coordinator's islands first, each for so long", &options->probe},
      {"--step-time", "of islands on which no run of such a model has measured it", &options->step_time},
      {"--round-trip", "of islands for which none is given or measured", &options->round_trip},
      {"--utilisation", "the share of time computing that is wanted", &options->utilisation},
      {"--agent-ns", "FORM,APPLY: the nanoseconds an agent takes to form a value of a contribution and to apply one (else measured here)",
       &options->agent_ns},
      {"--price", "of what islands send, as 0.09/GB; the plan says what the run costs then", &options->price},
      {"--sweep", "a table over inner_steps, fragments, overlap_steps and codec, the cheapest that reaches --utilisation marked",
       &options->sweep},
      {"--paper",
       "our reconstruction of a paper's table beside the printed one (of decoupled-diloco-goodput: as it was told elsewhere)",
       &options->paper,
       false,
       {"streaming-diloco-table-4", std::string(kNolocoLatency), std::string(kGoodput)}}};
  command.asks_coordinator = true;
  command.run = [options](Invocation& invocation) { return plan(invocation, *options); };
  return command;
}

}  // namespace atl
