// `atoll export`: a run's model as a safetensors file.
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>

#include "cli/line/command.hpp"
#include "cli/line/scratch_folder.hpp"
#include "cli/link/coordinator_client.hpp"
#include "cli/models/convert_model.hpp"
#include "cli/models/export_model.hpp"
#include "cli/views/parts/printable.hpp"

namespace atl {
namespace {

struct ExportOptions {
  std::string run;
  std::string path;
  std::string island;
  std::string through;
};

// With --through the model goes to a folder of our own first, and the caller's program writes the file that was asked for.
Result<Exported> fetch(const Invocation& invocation, const ExportOptions& options) {
  if (options.through.empty()) {
    return export_run(invocation, options.run, options.path, options.island);
  }
  ATOLL_ASSIGN(const ScratchFolder scratch, ScratchFolder::make());
  const std::filesystem::path model = scratch.path() / "model.safetensors";
  ATOLL_ASSIGN(const Exported exported, export_run(invocation, options.run, model, options.island));
  if (exported == Exported::ensemble) {
    return Error{Code::invalid_argument, "--through takes one model, and this run makes an ensemble of several"};
  }
  ATOLL_TRY(convert_model(options.through, invocation.environment("PATH").value_or(""), model, options.path));
  return exported;
}

Exit export_run(const Invocation& invocation, const ExportOptions& options) {
  const Result<Exported> exported = fetch(invocation, options);
  if (!exported) {
    return report_no_model(invocation, exported.error());
  }
  const bool images = *exported != Exported::text_model;
  const bool own = *exported == Exported::own_model;
  if (invocation.json) {
    invocation.streams.out << json_line({{"schema", 1}, {"run", options.run}, {"file", options.path}}) << "\n";
  } else if (!options.through.empty()) {
    invocation.streams.err << "wrote " << printable(options.path, 1000) << " with " << printable(options.through, 1000) << "\n";
  } else if (own) {
    invocation.streams.err << "wrote " << printable(options.path, 1000)
                           << "; it holds the trainer's parameters under their own names (safetensors.torch.load_file reads them)\n";
  } else {
    invocation.streams.err << "wrote " << printable(options.path, 1000) << "; try: atoll " << (images ? "sample " : "generate --model ")
                           << printable(options.path, 1000) << (images ? " -o samples.png" : "") << "\n";
  }
  return Exit::ok;
}

}  // namespace

Command export_command() {
  auto options = std::make_shared<ExportOptions>();
  Command command;
  command.name = "export";
  command.summary = "writes a run's newest synchronised model as safetensors, or its ensemble as a folder";
  command.options = {
      {"RUN", "the run", &options->run, true, {}, Completes::runs},
      {"-o,--output", "the file (of an ensemble: the folder) to write", &options->path, true, {}, Completes::files},
      {"--through",
       "COMMAND: a program of yours that writes the file in another format; it gets the safetensors file and the path to write as two more "
       "arguments",
       &options->through},
      {"--island", "of this island; where islands have models of their own, its own", &options->island, false, {}, Completes::islands}};
  command.asks_coordinator = true;
  command.short_output = false;
  command.run = [options](Invocation& invocation) { return export_run(invocation, *options); };
  return command;
}

}  // namespace atl
