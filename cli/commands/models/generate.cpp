// `atoll generate`: text from an exported model or from a run's newest one.
#include <fcntl.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <ostream>
#include <system_error>
#include <utility>

#include "cli/line/command.hpp"
#include "cli/line/scratch_folder.hpp"
#include "cli/models/export_model.hpp"
#include "cli/settings/trainer_module.hpp"

namespace atl {
namespace {

struct GenerateOptions {
  std::string model;  // of model and run exactly one is given
  std::string run;
  std::string prompt = "\n";
  std::uint64_t tokens = 200;
  double temperature = 0.8;
  std::uint64_t top_k = 40;
  std::uint64_t seed = 1;
  std::string device = "auto";
};

Status check(const GenerateOptions& options) {
  if (options.model.empty() == options.run.empty()) {
    return Error{Code::invalid_argument, "give either --model FILE or --run RUN"};
  }
  std::error_code error;
  if (!options.model.empty() && !std::filesystem::is_regular_file(options.model, error)) {
    return Error{Code::not_found, options.model + ": there is no such model; export one with: atoll export RUN -o model.safetensors"};
  }
  if (options.tokens == 0 || options.tokens > 1'000'000) {
    return Error{Code::invalid_argument, "--tokens is from 1 to 1000000"};
  }
  if (!std::isfinite(options.temperature) || options.temperature < 0 || options.temperature > 100) {
    return Error{Code::invalid_argument, "--temperature is from 0 (always the likeliest token) to 100"};
  }
  if (options.prompt.empty()) {
    return Error{Code::invalid_argument, "--prompt is empty; the model needs at least one token to begin with"};
  }
  return {};
}

// A run's newest model as an open file without a name: whatever ends the process, nothing of it stays.
class FetchedModel {
 public:
  // Errors: those of export_model; io if the temporary folder cannot be written.
  static Result<FetchedModel> fetch(const Invocation& invocation, const std::string& run) {
    ATOLL_ASSIGN(const ScratchFolder folder, ScratchFolder::make());
    const std::string path = folder.path() / "model.safetensors";
    const Result<Exported> exported = export_model(invocation, run, path);
    FetchedModel model(exported ? ::open(path.c_str(), O_RDONLY | O_CLOEXEC) : -1);
    if (!exported) {
      return exported.error();
    }
    if (model.fd_ < 0) {
      return Error{Code::io, path + ": the fetched model cannot be opened"};
    }
    return model;
  }
  FetchedModel(FetchedModel&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FetchedModel& operator=(FetchedModel&&) = delete;
  FetchedModel(const FetchedModel&) = delete;
  FetchedModel& operator=(const FetchedModel&) = delete;
  ~FetchedModel() {
    if (fd_ >= 0) {
      ::close(fd_);
    }
  }
  [[nodiscard]] std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  explicit FetchedModel(int fd) : fd_(fd) {}
  int fd_;
};

Exit write_text(const Invocation& invocation, const GenerateOptions& options, const std::string& model) {
  if (const std::string trainer = own_trainer_of(model); !trainer.empty()) {
    return report(invocation, Error{Code::invalid_argument, "this is a model of the trainer '" + trainer +
                                                                "', which is not Atoll's own: its own program has to write with it"});
  }
  invocation.streams.out.flush();
  std::vector<std::string> arguments = {"--model",       model,
                                        "--prompt",      options.prompt,
                                        "--tokens",      std::to_string(options.tokens),
                                        "--temperature", std::to_string(options.temperature),
                                        "--top-k",       std::to_string(options.top_k),
                                        "--seed",        std::to_string(options.seed),
                                        "--device",      options.device};
  if (invocation.json) {
    arguments.emplace_back("--json");
  }
  const Result<int> code = call_trainer_module(invocation.environment, "atoll_generate_main", "generate", arguments);
  return code ? static_cast<Exit>(*code) : report(invocation, code.error());
}

Exit generate(Invocation& invocation, const GenerateOptions& options) {
  if (const Status checked = check(options); !checked) {
    return report(invocation, checked.error());
  }
  if (options.run.empty()) {
    return write_text(invocation, options, options.model);
  }
  const Result<FetchedModel> model = FetchedModel::fetch(invocation, options.run);
  return model ? write_text(invocation, options, model->path()) : report_no_model(invocation, model.error());
}

}  // namespace

Command generate_command() {
  auto options = std::make_shared<GenerateOptions>();
  Command command;
  command.name = "generate";
  command.summary = "writes text with an exported model or with a run's newest one";
  command.details =
      "Give either --model or --run. The model of --run is fetched as `atoll export` does, into $TMPDIR, and removed again, after Ctrl-C "
      "too.";
  command.options = {{"--model", "a model that `atoll export` wrote", &options->model, false, {}, Completes::files},
                     {"--run", "a run: its newest synchronised model", &options->run, false, {}, Completes::runs},
                     {"--prompt", "the text to go on from", &options->prompt},
                     {"--tokens", "how many to write", &options->tokens},
                     {"--temperature", "0: always the likeliest token; 1: as the model says", &options->temperature},
                     {"--top-k", "choose among the K likeliest tokens; 0: among all", &options->top_k},
                     {"--seed", "of the choice", &options->seed},
                     {"--device", "auto, cpu or cuda:N", &options->device}};
  command.asks_coordinator = true;
  command.run = [options](Invocation& invocation) { return generate(invocation, *options); };
  return command;
}

}  // namespace atl
