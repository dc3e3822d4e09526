// `atoll plot`: the losses of runs as curves, in the terminal or as a picture.
#include <memory>
#include <ostream>

#include "cli/line/command.hpp"
#include "cli/link/coordinator_client.hpp"
#include "cli/models/rasterized.hpp"
#include "cli/recorded/run_metrics.hpp"
#include "cli/views/parts/chart.hpp"
#include "cli/views/parts/document.hpp"
#include "cli/views/parts/printable.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/output_file.hpp"

namespace atl {
namespace {

struct PlotOptions {
  std::vector<std::string> runs;
  std::string path;
  std::string against = "steps";
  bool logarithmic = false;
};

Against against_of(const std::string& word) {
  return word == "rounds" ? Against::rounds : word == "time" ? Against::time : word == "tokens" ? Against::tokens : Against::steps;
}

Result<Chart> chart_of(CoordinatorClient& client, const PlotOptions& options) {
  Chart chart{options.against == "steps"  ? "inner steps"
              : options.against == "time" ? "seconds"
                                          : options.against,
              "validation loss",
              options.logarithmic,
              {}};
  for (const std::string& run : options.runs) {
    ATOLL_ASSIGN(const RunMetrics metrics, read_run_metrics(client, run));
    auto points = points_of(metrics, against_of(options.against), "outer_loss");
    if (points.empty() && options.against == "tokens" && !metrics.rows.empty()) {
      return Error{Code::invalid_argument, "run " + printable(metrics.name) +
                                               " has more rounds than the coordinator keeps figures of, so its tokens "
                                               "cannot be added up; use --against steps"};
    }
    const std::string last = points.empty() ? "no loss yet" : loss_text(points.back().second);
    chart.lines.push_back({metrics.name + " (" + metrics.id + "): " + last, std::move(points)});
  }
  return chart;
}

Status plot(const Invocation& invocation, const PlotOptions& options) {
  if (!options.path.empty()) {
    ATOLL_TRY(OutputFile::check(options.path));
  }
  ATOLL_ASSIGN(CoordinatorClient client, CoordinatorClient::open(invocation));
  ATOLL_ASSIGN(const Chart chart, chart_of(client, options));
  const std::string text = options.path.empty() ? braille_chart(chart, invocation.terminal) : svg_chart(chart);
  if (text.empty()) {
    return Error{Code::not_found, "there is nothing to draw yet: no run here has two validation losses"};
  }
  if (options.path.empty()) {
    invocation.streams.out << text;
    return {};
  }
  Bytes png;
  if (options.path.ends_with(".png")) {
    ATOLL_ASSIGN(png, rasterized(text));
  }
  ATOLL_ASSIGN(OutputFile file, OutputFile::create(options.path));
  ATOLL_TRY(file.write(png.empty() ? as_bytes(text) : ByteView(png)));
  ATOLL_TRY(file.finish());
  invocation.streams.err << "wrote " << printable(options.path, 1000) << "\n";
  return {};
}

}  // namespace

Command plot_command() {
  auto options = std::make_shared<PlotOptions>();
  Command command;
  command.name = "plot";
  command.summary = "draws the validation losses of runs, in the terminal or as a picture";
  command.options = {{"RUN", "the runs", &options->runs, true, {}, Completes::runs},
                     {"-o,--output",
                      "a file to write instead: PNG where its name ends in .png (by rsvg-convert, of Debian's librsvg2-bin), else SVG",
                      &options->path,
                      false,
                      {},
                      Completes::files},
                     {"--against", "what the losses stand against", &options->against, false, {"steps", "rounds", "time", "tokens"}},
                     {"--log", "a logarithmic axis for the loss", &options->logarithmic}};
  command.asks_coordinator = true;
  command.short_output = false;
  command.run = [options](Invocation& invocation) {
    const Status drawn = plot(invocation, *options);
    return drawn ? Exit::ok : report(invocation, drawn.error());
  };
  return command;
}

}  // namespace atl
