// `atoll plan`: what a run will cost, before it runs.
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>

#include "cli/command.hpp"
#include "cli/coordinator_client.hpp"
#include "cli/planner.hpp"
#include "cli/run_file/run_file.hpp"
#include "cli/views/document.hpp"
#include "cli/views/views.hpp"
#include "strategies/specification/run_rules.hpp"

namespace atl {
namespace {

constexpr std::size_t kRunsAsked = 10;
constexpr std::string_view kNolocoLatency = "noloco-latency";
constexpr std::string_view kGoodput = "decoupled-diloco-goodput";

struct PlanOptions {
  std::string file;
  std::vector<std::string> islands;
  Duration round_trip = std::chrono::milliseconds(50);
  double utilisation = 0.95;
  bool sweep = false;
  std::string agent_ns;
  std::string paper;
};

Result<std::vector<PlanIsland>> ask_islands(const Invocation& invocation, const RunSpec& spec, const PlanOptions& options) {
  ATOLL_ASSIGN(CoordinatorClient client, CoordinatorClient::open(invocation));
  ATOLL_ASSIGN(const nlohmann::json islands, client.ask("islands", nlohmann::json::object()));
  ATOLL_ASSIGN(const nlohmann::json runs, client.ask("runs", nlohmann::json::object()));
  std::vector<nlohmann::json> statuses;
  for (const nlohmann::json& run : list_at(runs, "runs")) {
    if (statuses.size() == kRunsAsked) {
      break;
    }
    ATOLL_ASSIGN(nlohmann::json status, client.ask("status", {{"run", text_at(run, "id")}}));
    statuses.push_back(std::move(status));
  }
  return measured_islands(islands, statuses, spec, seconds(options.round_trip));
}

Result<std::vector<PlanIsland>> islands_of(const Invocation& invocation, const RunSpec& spec, const PlanOptions& options) {
  if (options.islands.empty()) {
    Result<std::vector<PlanIsland>> measured = ask_islands(invocation, spec, options);
    return measured
               ? std::move(measured)
               : with_context(measured.error(), "the islands' figures (--island NAME=STEP_TIME,UPLINK gives them without a coordinator)");
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

Exit plan(const Invocation& invocation, const PlanOptions& options) {
  if (options.paper == kGoodput) {
    return show(invocation, goodput_document(), render_goodput);
  }
  if (!options.paper.empty()) {
    return options.paper == kNolocoLatency ? show(invocation, gossip_timing_document(), render_gossip_timing)
                                           : show(invocation, table_4_document(), render_plan_table_4);
  }
  if (options.file.empty()) {
    return report(invocation, Error{Code::invalid_argument,
                                    "no run file given; try: atoll plan run.toml --island a=250ms,50mbit --island b=250ms,50mbit"});
  }
  const Result<RunFile> file = read_run_file(options.file);
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
  if (has_own_trainer(file->spec) && file->spec.trainer.parameters.empty()) {
    return report(invocation, Error{Code::invalid_argument, "plan cannot know how large the model of trainer " + file->spec.trainer.name +
                                                                " is; say it in the run file: [trainer] parameters = \"1.3B\""});
  }
  const Result<std::vector<PlanIsland>> islands = islands_of(invocation, file->spec, options);
  if (!islands) {
    return report(invocation, islands.error());
  }
  const Result<CostSource> costs = options.agent_ns.empty() ? Result<CostSource>(measured_costs()) : given_costs(options.agent_ns);
  if (!costs) {
    return report(invocation, costs.error());
  }
  return options.sweep ? show(invocation, sweep_document(file->spec, *islands, options.utilisation, *costs), render_plan_sweep)
                       : show(invocation, plan_document(file->spec, *islands, options.utilisation, *costs), render_plan);
}

}  // namespace

Command plan_command() {
  auto options = std::make_shared<PlanOptions>();
  Command command;
  command.name = "plan";
  command.summary = "says what a run will cost on given links: bytes, bandwidth, waiting, memory, time";
  command.details =
      "Without --island: the coordinator's connected islands, as it has measured them. A measured link is what the last exchange moved, so "
      "it may be faster.";
  command.options = {
      {"FILE", "the run file (TOML)", &options->file, false, {}, Completes::files},
      {"--island", "NAME=STEP_TIME,UPLINK[,DOWNLINK[,ROUND_TRIP]], as lyon=250ms,50mbit,200mbit,30ms; once for each island",
       &options->islands},
      {"--round-trip", "of islands for which none is given (nobody measures it)", &options->round_trip},
      {"--utilisation", "the share of time computing that is wanted", &options->utilisation},
      {"--agent-ns", "FORM,APPLY: the nanoseconds an agent takes to form a value of a contribution and to apply one (else measured here)",
       &options->agent_ns},
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
