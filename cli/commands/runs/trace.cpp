// `atoll trace`: what every island spent its time on, as a file for ui.perfetto.dev or chrome://tracing.
#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>

#include "cli/line/command.hpp"
#include "cli/line/interrupt.hpp"
#include "cli/link/coordinator_client.hpp"
#include "cli/recorded/trace_events.hpp"
#include "cli/views/parts/document.hpp"
#include "cli/views/parts/printable.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/output_file.hpp"

namespace atl {
namespace {

struct TraceOptions {
  std::string run;
  std::string path;
};

Status write_trace(const Invocation& invocation, const TraceOptions& options, std::size_t& count) {
  ATOLL_TRY(OutputFile::check(options.path));
  ATOLL_ASSIGN(CoordinatorClient client, CoordinatorClient::open(invocation));
  nlohmann::json arguments = {{"run", options.run}, {"after", 0}};
  TraceEvents events;
  while (true) {
    ATOLL_ASSIGN(const nlohmann::json document, client.ask("spans", arguments));
    const auto& spans = list_at(document, "spans");
    if (spans.empty()) {
      break;
    }
    for (const nlohmann::json& span : spans) {
      events.add(span);
    }
    arguments["run"] = text_at(document, "run");
    arguments["after"] = static_cast<std::uint64_t>(number_at(document, "next").value_or(0));
  }
  count = events.count();
  if (count == 0) {
    return Error{Code::not_found, "nothing is known of how the islands of run " + printable(options.run, 100) +
                                      " spent their time: none has begun, or they run an older atoll"};
  }
  ATOLL_ASSIGN(const Interrupt interrupt, Interrupt::open());
  ATOLL_ASSIGN(OutputFile file, OutputFile::create(options.path, [&] { return interrupt.came(); }));
  ATOLL_TRY(file.write(as_bytes(events.text())));
  return file.finish();
}

Exit trace(const Invocation& invocation, const TraceOptions& options) {
  std::size_t count = 0;
  const Status written = write_trace(invocation, options, count);
  if (!written) {
    const Exit exit = report(invocation, written.error());
    return written.error().code == Code::cancelled ? Exit::interrupted : exit;
  }
  if (invocation.json) {
    invocation.streams.out << json_line({{"schema", 1}, {"run", options.run}, {"file", options.path}, {"spans", count}}) << "\n";
  } else {
    invocation.streams.err << "wrote " << count << " spans to " << printable(options.path, 1000) << "; open it at ui.perfetto.dev\n";
  }
  return Exit::ok;
}

}  // namespace

Command trace_command() {
  auto options = std::make_shared<TraceOptions>();
  Command command;
  command.name = "trace";
  command.summary = "writes a timeline of every island: steps, encoding, sending, receiving, outer steps, waits";
  command.options = {
      {"RUN", "the run", &options->run, true, {}, Completes::runs},
      {"-o,--output", "the file to write, for ui.perfetto.dev or chrome://tracing", &options->path, true, {}, Completes::files}};
  command.asks_coordinator = true;
  command.short_output = false;
  command.run = [options](Invocation& invocation) { return trace(invocation, *options); };
  return command;
}

}  // namespace atl
