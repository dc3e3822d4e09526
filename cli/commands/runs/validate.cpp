// `atoll validate`: everything that is wrong with run files, without a network.
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>
#include <span>

#include "agent/engine/built_in_model.hpp"
#include "agent/service/data_access.hpp"
#include "agent/trainer/data/token_stream.hpp"
#include "cli/line/command.hpp"
#include "cli/run_file/run_file.hpp"
#include "strategies/codec.hpp"
#include "strategies/specification/model_kind.hpp"
#include "strategies/specification/run_notes.hpp"
#include "transport/base/bytes.hpp"

namespace atl {
namespace {

struct ValidateOptions {
  std::vector<std::string> files;
  bool keys_markdown = false;
};

// Bytes of an island's contribution to the largest round, as its codec writes it; 0 where nothing is sent, or not known.
std::uint64_t contribution_bytes(const RunSpec& spec) {
  const Result<Composition> parts = compose(spec.strategy);
  if (!parts || parts->group == Group::nobody || parts->group == Group::expert || model_parameter_bytes(spec) == 0) {
    return 0;
  }
  const Result<std::vector<std::uint64_t>> fragments = fragment_values(spec, parts->fragments);
  return fragments && !fragments->empty() ? encoded_bytes(parts->codec, *std::ranges::max_element(*fragments)) : 0;
}

// Of a trainer of one's own, as far as the run file says it.
std::string own_trainer_text(const RunSpec& spec) {
  const double bytes = model_parameter_bytes(spec);
  std::array<char, 32> millions{};
  std::snprintf(millions.data(), millions.size(), "%.1f M parameters", bytes / 4e6);
  const std::uint64_t sent = contribution_bytes(spec);
  return (bytes > 0 ? std::string(millions.data()) : "parameters") + " of trainer " + spec.trainer.name +
         (sent > 0 ? ", contributions of " + human_bytes(sent) : "") +
         (bytes > 0 ? ", an arena of " + human_bytes(static_cast<std::uint64_t>(bytes)) : "") + ", " +
         std::to_string(tokens_per_sequence(spec)) + (tokens_per_sequence(spec) == 1 ? " token" : " tokens") + " a sample";
}

std::string summary_of(const RunSpec& spec) {
  const StrategySpec& strategy = spec.strategy;
  const std::string islands = (spec.islands.min == spec.islands.max ? "" : std::to_string(spec.islands.min) + " to ") +
                              std::to_string(spec.islands.max) + " islands";
  if (strategy.group == Group::expert) {
    const std::uint32_t experts = spec.diffusion.experts;
    return "valid: " + strategy.name + ", " + std::to_string(experts) + (experts == 1 ? " expert" : " experts") + " of " +
           std::to_string(spec.training.steps) + " steps" +
           (experts == 1 ? "" : ", a router of " + std::to_string(spec.diffusion.router_steps)) +
           (spec.diffusion.distill_steps == 0 ? "" : ", a dense model of " + std::to_string(spec.diffusion.distill_steps)) + ", " +
           islands + (spec.data.spread == 0 ? "" : ", images from " + std::to_string(spec.data.spread) + " of them");
  }
  const double bytes = model_parameter_bytes(spec);
  std::array<char, 32> millions{};
  std::snprintf(millions.data(), millions.size(), "%.1f M parameters", bytes / 4e6);
  const std::string model = has_own_trainer(spec) ? own_trainer_text(spec) : std::string(millions.data());
  std::string text = "valid: " + strategy.name + ", " + std::to_string(spec.rounds) + (spec.rounds == 1 ? " round" : " rounds") + " of " +
                     std::to_string(strategy.inner_steps) + (strategy.inner_steps == 1 ? " inner step" : " inner steps") + ", " + model +
                     ", " + islands;
  return text;
}

// What the built-in trainer would read of this machine's files; a note where it would not.
struct DataHere {
  std::string reads;
  std::vector<std::string> notes;
};

// That the model has a place for each of the first tokens, as many as are looked at within a second.
Status check_tokens(const TokenStream& tokens, std::uint64_t vocabulary) {
  constexpr std::uint64_t kBlock = std::uint64_t{1} << 16;
  const std::uint64_t most = tokens.all_known(vocabulary) ? 0 : std::min(tokens.size(), std::uint64_t{1} << 26);
  std::vector<std::int64_t> block(kBlock);
  for (std::uint64_t at = 0; at < most; at += kBlock) {
    ATOLL_TRY(tokens.read(at, vocabulary, std::span(block).first(static_cast<std::size_t>(std::min(kBlock, most - at)))));
  }
  return {};
}

// Tokens are counted as the trainer counts them; images only as files, for they would have to be read whole.
Result<DataHere> reading_of(const RunSpec& spec) {
  ATOLL_ASSIGN(const std::vector<std::filesystem::path> found, resolve_data(spec.data, {{}, {"/"}}, {}, DataReader::built_in));
  if (model_kind(spec) == ModelKind::diffusion) {
    return DataHere{listing_of(found), {}};
  }
  std::vector<std::string> files;
  std::ranges::transform(found, std::back_inserter(files), [](const std::filesystem::path& file) { return file.string(); });
  ATOLL_ASSIGN(const TokenStream tokens, TokenStream::open(files, spec.data.format));
  DataHere here{tokens.listing(), {}};
  if (const Status known = check_tokens(tokens, spec.model.vocabulary); !known) {
    here.notes.push_back("the run would fail on these data: " + known.error().why);
  }
  return here;
}

// A data set by name, or an url, is none of this machine's.
DataHere data_here(const RunSpec& spec) {
  if (has_own_trainer(spec) || spec.data.files.empty()) {
    return {};
  }
  Result<DataHere> here = reading_of(spec);
  if (here) {
    return *std::move(here);
  }
  const bool absent = here.error().code == Code::not_found;
  return {"",
          {(absent ? "the data are not on this machine (" : "on this machine the data cannot be read (") + here.error().why +
           "); each island reads these paths on its own disk, within what its agent allows (--allow-data)"}};
}

nlohmann::json document_of(const RunFile& file) {
  const DataHere data = file.valid() ? data_here(file.spec) : DataHere();
  std::vector<std::string> notes = file.valid() ? notes_on(file.spec) : std::vector<std::string>();
  notes.insert(notes.end(), data.notes.begin(), data.notes.end());
  nlohmann::json problems = nlohmann::json::array();
  for (const TomlProblem& problem : file.problems) {
    problems.push_back(
        {{"line", problem.line}, {"column", problem.column}, {"section", problem.section}, {"key", problem.key}, {"why", problem.why}});
  }
  return {
      {"file", file.source},
      {"valid", file.valid()},
      {"problems", std::move(problems)},
      {"parameters", file.valid() ? nlohmann::json(static_cast<std::uint64_t>(model_parameter_bytes(file.spec) / 4)) : nlohmann::json()},
      {"contribution_bytes", file.valid() ? nlohmann::json(contribution_bytes(file.spec)) : nlohmann::json()},
      {"reads", data.reads.empty() ? nlohmann::json() : nlohmann::json(data.reads)},
      {"notes", std::move(notes)},
      {"spec", file.valid() ? nlohmann::json::parse(to_json(file.spec)) : nlohmann::json()}};
}

Exit validate(Invocation& invocation, const ValidateOptions& options) {
  if (options.keys_markdown) {
    invocation.streams.out << run_keys_markdown();
    return Exit::ok;
  }
  if (options.files.empty()) {
    return report(invocation, Error{Code::invalid_argument, "no run file given; try: atoll validate run.toml"});
  }
  Exit exit = Exit::ok;
  nlohmann::json documents = nlohmann::json::array();
  for (const std::string& path : options.files) {
    const Result<RunFile> file = read_run_file(path);
    if (!file) {
      exit = Exit::usage;
      report(invocation, file.error());
      continue;
    }
    if (!file->valid()) {
      exit = Exit::usage;
    }
    if (invocation.json) {
      documents.push_back(document_of(*file));
    } else if (file->valid()) {
      invocation.streams.out << file->source << ": " << summary_of(file->spec) << "\n";
      const DataHere data = data_here(file->spec);
      if (!data.reads.empty()) {
        invocation.streams.out << file->source << ": reads " << data.reads << "\n";
      }
      for (const std::vector<std::string>& notes : {notes_on(file->spec), data.notes}) {
        for (const std::string& note : notes) {
          invocation.streams.err << file->source << ": note: " << note << "\n";
        }
      }
    } else {
      invocation.streams.err << problems_text(*file);
    }
  }
  if (invocation.json) {
    const nlohmann::json document = {{"schema", 1}, {"files", std::move(documents)}};
    invocation.streams.out << document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  }
  return exit;
}

}  // namespace

Command validate_command() {
  auto options = std::make_shared<ValidateOptions>();
  Command command;
  command.name = "validate";
  command.summary = "checks run files, without a network; all mistakes at once";
  command.options = {{"FILE", "run files (TOML)", &options->files, false, {}, Completes::files},
                     {"--keys-markdown", "print the table of all keys of a run file, as in docs/run-file.md", &options->keys_markdown}};
  command.run = [options](Invocation& invocation) { return validate(invocation, *options); };
  return command;
}

}  // namespace atl
