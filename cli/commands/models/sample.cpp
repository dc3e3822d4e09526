// `atoll sample`: images from an ensemble or a model of images: what `atoll export` wrote, or a run's.
#include <cmath>
#include <filesystem>
#include <memory>
#include <ostream>
#include <system_error>

#include "cli/line/command.hpp"
#include "cli/line/scratch_folder.hpp"
#include "cli/models/ensemble_folder.hpp"
#include "cli/settings/trainer_module.hpp"
#include "transport/base/output_file.hpp"

namespace atl {
namespace {

namespace fs = std::filesystem;

struct SampleOptions {
  std::string source;
  std::uint64_t count = 64;
  std::string router = "top-1";
  std::uint64_t steps = 50;
  std::uint64_t seed = 1;
  std::string solver = "euler";
  std::string image_class;
  double guidance = 1;
  std::uint64_t columns = 0;
  std::uint64_t threads = 1;
  std::string device = "auto";
  std::string output;
  bool allow_missing = false;
  bool dense = false;
};

Status check(const SampleOptions& options) {
  if (options.count == 0 || options.count > 100'000) {
    return Error{Code::invalid_argument, "--count is from 1 to 100000"};
  }
  if (options.steps == 0 || options.steps > 10'000) {
    return Error{Code::invalid_argument, "--steps is from 1 to 10000"};
  }
  if (!std::isfinite(options.guidance) || options.guidance < 0 || options.guidance > 100) {
    return Error{Code::invalid_argument, "--guidance is from 0 to 100; 1 is none"};
  }
  if (options.guidance != 1 && options.image_class.empty()) {
    return Error{Code::invalid_argument, "--guidance has no effect without --class"};
  }
  ATOLL_TRY(OutputFile::check(options.output));
  if (options.dense && (options.router != SampleOptions{}.router || options.allow_missing)) {
    return Error{Code::invalid_argument, "--dense draws from one model: --router and --allow-missing have no effect with it"};
  }
  return {};
}

Status check_one_model(const SampleOptions& options, const fs::path& path) {
  if (options.dense || options.allow_missing || options.router != SampleOptions{}.router) {
    return Error{Code::invalid_argument,
                 "--router, --allow-missing and --dense are of an ensemble, and " + options.source + " has one model"};
  }
  if (const std::string trainer = own_trainer_of(path); !trainer.empty()) {
    return Error{Code::invalid_argument, options.source + ": a model of the trainer '" + trainer +
                                             "', which is not Atoll's own: its own program has to draw with it"};
  }
  if (!is_model_of_images(path)) {
    return Error{Code::invalid_argument,
                 options.source + ": not a model that images are drawn from (`atoll generate` writes text with a language model)"};
  }
  return {};
}

// `source`: a folder with an ensemble, or the file of a model.
Exit write_images(const Invocation& invocation, const SampleOptions& options, const fs::path& source) {
  std::error_code error;
  const bool ensemble = fs::is_directory(source, error);
  const Status good = ensemble ? check_ensemble(source, options.allow_missing, options.dense) : check_one_model(options, source);
  if (!good) {
    return report(invocation, good.error());
  }
  invocation.streams.out.flush();
  std::vector<std::string> arguments = {ensemble ? "--folder" : "--model",
                                        source.string(),
                                        "--count",
                                        std::to_string(options.count),
                                        "--router",
                                        options.router,
                                        "--steps",
                                        std::to_string(options.steps),
                                        "--seed",
                                        std::to_string(options.seed),
                                        "--solver",
                                        options.solver,
                                        "--class",
                                        options.image_class,
                                        "--guidance",
                                        std::to_string(options.guidance),
                                        "--columns",
                                        std::to_string(options.columns),
                                        "--threads",
                                        std::to_string(options.threads),
                                        "--device",
                                        options.device,
                                        "--output",
                                        options.output};
  if (options.allow_missing) {
    arguments.emplace_back("--allow-missing");
  }
  if (options.dense) {
    arguments.emplace_back("--dense");
  }
  if (invocation.json) {
    arguments.emplace_back("--json");
  }
  const Result<int> code = call_trainer_module(invocation.environment, "atoll_sample_main", "sample", arguments);
  return code ? static_cast<Exit>(*code) : report(invocation, code.error());
}

Exit sample(const Invocation& invocation, const SampleOptions& options) {
  if (const Status checked = check(options); !checked) {
    return report(invocation, checked.error());
  }
  std::error_code error;
  if (fs::exists(options.source, error)) {
    return write_images(invocation, options, options.source);
  }
  const Result<ScratchFolder> folder = ScratchFolder::make();
  if (!folder) {
    return report(invocation, folder.error());
  }
  const fs::path model = folder->path() / "model";
  if (const Result<Exported> fetched = export_run(invocation, options.source, model); !fetched) {
    return report_no_model(invocation, fetched.error());
  }
  return write_images(invocation, options, model);
}

}  // namespace

Command sample_command() {
  auto options = std::make_shared<SampleOptions>();
  Command command;
  command.name = "sample";
  command.summary = "draws images from an ensemble, or from a model of images, into one PNG";
  command.details =
      "SOURCE is a folder or file that `atoll export` wrote, or a run: what it has made is fetched into $TMPDIR and removed again.\n"
      "--router says which experts are run: full, top-K, threshold:P or nucleus:P.";
  command.options = {{"SOURCE", "a folder with an ensemble, the file of a model, or a run", &options->source, true, {}, Completes::runs},
                     {"-o,--output", "the PNG to write", &options->output, true, {}, Completes::files},
                     {"--count", "how many images", &options->count},
                     {"--router",
                      "the choice of experts",
                      &options->router,
                      false,
                      {},
                      Completes::nothing,
                      {"full", "top-1", "top-2", "threshold:0.1", "nucleus:0.9"}},
                     {"--steps", "of the solver", &options->steps},
                     {"--solver", "euler or heun", &options->solver, false, {}, Completes::nothing, {"euler", "heun"}},
                     {"--seed", "of the noise that the images begin as", &options->seed},
                     {"--class", "of the images, where the experts know classes", &options->image_class},
                     {"--guidance", "how strongly the class is followed; 1: as trained", &options->guidance},
                     {"--columns", "of the grid; 0: a square", &options->columns},
                     {"--threads", "of the arithmetic", &options->threads},
                     {"--device", "auto, cpu or cuda:N", &options->device},
                     {"--dense", "of the model that was distilled from the ensemble, if one was", &options->dense},
                     {"--allow-missing", "go on without experts whose files are gone", &options->allow_missing}};
  command.asks_coordinator = true;
  command.short_output = false;
  command.run = [options](Invocation& invocation) { return sample(invocation, *options); };
  return command;
}

}  // namespace atl
