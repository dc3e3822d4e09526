// `atoll metrics`: what each round of a run brought, as a table, JSON lines, or event files for TensorBoard.
#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>

#include "cli/line/command.hpp"
#include "cli/link/coordinator_client.hpp"
#include "cli/recorded/run_metrics.hpp"
#include "cli/recorded/tensorboard.hpp"
#include "cli/views/parts/document.hpp"
#include "cli/views/parts/printable.hpp"
#include "cli/views/parts/run_state.hpp"
#include "transport/base/output_file.hpp"

namespace atl {
namespace {

constexpr std::array kColumns = {"round",         "time_unix_ms", "step",         "islands", "outer_loss", "local_loss",
                                 "training_loss", "norm",         "wait_seconds", "tokens",  "bytes_sent"};
constexpr Duration kBetweenScrapes = std::chrono::seconds(1);

struct MetricsOptions {
  std::string run;
  std::string format = "csv";
  std::string to;
  std::string island;
  bool follow = false;
};

std::string csv_line(const nlohmann::json& row) {
  std::string line;
  for (const char* column : kColumns) {
    const auto found = row.find(column);
    line += (line.empty() ? "" : ",") + (found == row.end() || !found->is_number() ? std::string() : found->dump());
  }
  return line;
}

// Prints the rows of a run, with --follow until it has ended.
Status print_rows(const Invocation& invocation, CoordinatorClient& client, const MetricsOptions& options) {
  const bool csv = options.format == "csv" && !invocation.json;
  std::ostream& out = invocation.streams.out;
  if (csv) {
    for (const char* column : kColumns) {
      out << (column == kColumns.front() ? "" : ",") << column;
    }
    out << "\n";
  }
  std::int64_t after = -1;
  for (std::string run = options.run; out;) {
    ATOLL_ASSIGN(const RunMetrics metrics, read_run_metrics(client, run, options.island, after));
    run = metrics.id;
    for (const nlohmann::json& row : metrics.rows) {
      out << (csv ? csv_line(row) : json_line(row)) << "\n";
      after = static_cast<std::int64_t>(number_at(row, "round").value_or(static_cast<double>(after)));
    }
    out << std::flush;
    if (!options.follow || (metrics.rows.empty() && run_has_ended(metrics.state))) {
      break;
    }
    if (metrics.rows.empty()) {
      pause_between_questions(kBetweenScrapes);
    }
  }
  return {};
}

Status write_events(const Invocation& invocation, CoordinatorClient& client, const MetricsOptions& options) {
  if (options.to.empty()) {
    return Error{Code::invalid_argument, "-o tensorboard writes a folder: give it with --to FOLDER"};
  }
  ATOLL_ASSIGN(const RunMetrics metrics, read_run_metrics(client, options.run, options.island));
  ATOLL_ASSIGN(const std::string path, write_tensorboard(options.to, metrics));
  invocation.streams.err << "wrote " << metrics.rows.size() << " rounds to " << printable(path, 1000) << "; next: tensorboard --logdir "
                         << printable(options.to, 1000) << "\n";
  return {};
}

Exit metrics(const Invocation& invocation, const MetricsOptions& options) {
  Result<CoordinatorClient> client = CoordinatorClient::open(invocation);
  if (!client) {
    return report(invocation, client.error());
  }
  const Status done =
      options.format == "tensorboard" ? write_events(invocation, *client, options) : print_rows(invocation, *client, options);
  return done ? Exit::ok : report(invocation, done.error());
}

}  // namespace

Command metrics_command() {
  auto options = std::make_shared<MetricsOptions>();
  Command command;
  command.name = "metrics";
  command.summary = "prints what each round brought: losses, tokens, bytes, waits; or writes it for TensorBoard";
  command.details = "Of a run of many rounds the coordinator keeps some 512, evenly, and the newest.";
  command.options = {{"RUN", "the run", &options->run, true, {}, Completes::runs},
                     {"-o,--output", "csv, jsonl, or tensorboard", &options->format, false, {"csv", "jsonl", "tensorboard"}},
                     {"--to", "with -o tensorboard: the folder for its event file", &options->to, false, {}, Completes::folders},
                     {"--island", "of this island alone", &options->island, false, {}, Completes::islands},
                     {"-f,--follow", "go on until the run has ended", &options->follow}};
  command.asks_coordinator = true;
  command.short_output = false;
  command.run = [options](Invocation& invocation) { return metrics(invocation, *options); };
  return command;
}

}  // namespace atl
