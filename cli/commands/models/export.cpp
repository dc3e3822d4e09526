// `atoll export`: a run's model as a safetensors file, or as a folder for Hugging Face's transformers.
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>
#include <system_error>

#include "cli/line/command.hpp"
#include "cli/line/scratch_folder.hpp"
#include "cli/link/coordinator_client.hpp"
#include "cli/models/convert_model.hpp"
#include "cli/models/export_model.hpp"
#include "cli/models/hugging_face.hpp"
#include "cli/views/parts/printable.hpp"
#include "transport/base/output_file.hpp"
#include "transport/base/own_disk.hpp"

namespace atl {
namespace {

struct ExportOptions {
  std::string run;
  std::string path;
  std::string folder;  // in Hugging Face's form
  std::string island;
  std::string through;
};

// Everything goes to a folder beside its place first, which gets its name when it is whole.
Result<Exported> fetch_folder(const Invocation& invocation, const ExportOptions& options) {
  std::filesystem::path folder(options.folder);
  folder = folder.has_filename() ? folder : folder.parent_path();  // "FOLDER/"
  ATOLL_TRY(check_hugging_face_folder(folder));
  ATOLL_ASSIGN(const ScratchFolder scratch, ScratchFolder::make_in(folder_of(folder)));
  const std::filesystem::path partial = scratch.path() / "model";
  ATOLL_TRY(on_this_machine(partial).make_folders());
  ATOLL_ASSIGN(const Exported exported, export_run(invocation, options.run, partial / "model.safetensors", options.island));
  if (exported == Exported::ensemble) {
    return Error{Code::invalid_argument, "--hf takes a language model, and this run makes an ensemble of models of images"};
  }
  ATOLL_ASSIGN(const Interrupt interrupt, Interrupt::open());
  ATOLL_TRY(write_hugging_face_files(partial, &interrupt));
  std::error_code failure;
  std::filesystem::rename(partial, folder, failure);
  if (failure) {
    return Error{Code::io, options.folder + ": cannot be given its name: " + failure.message()};
  }
  return exported;
}

// With --through the model goes to a folder of our own first, and the caller's program writes the file that was asked for.
Result<Exported> fetch(const Invocation& invocation, const ExportOptions& options) {
  if (options.path.empty() == options.folder.empty()) {
    return Error{Code::invalid_argument, "give where the model goes: -o FILE, or --hf FOLDER; not both"};
  }
  if (!options.folder.empty()) {
    return options.through.empty() ? fetch_folder(invocation, options)
                                   : Result<Exported>(Error{Code::invalid_argument, "--through writes a file: give -o, and not --hf"});
  }
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
    invocation.streams.out << json_line(
                                  {{"schema", 1}, {"run", options.run}, {"file", options.folder.empty() ? options.path : options.folder}})
                           << "\n";
  } else if (!options.folder.empty()) {
    invocation.streams.err << "wrote " << printable(options.folder, 1000)
                           << "; transformers reads it: AutoModelForCausalLM.from_pretrained(\"" << printable(options.folder, 1000)
                           << "\")\n";
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
      {"-o,--output", "the file (of an ensemble: the folder) to write", &options->path, false, {}, Completes::files},
      {"--hf",
       "in place of -o: a folder to write that Hugging Face's transformers loads (built-in language models)",
       &options->folder,
       false,
       {},
       Completes::files},
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
