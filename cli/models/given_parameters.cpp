#include "cli/models/given_parameters.hpp"

#include <nlohmann/json.hpp>

#include "agent/engine/built_in_model.hpp"
#include "agent/engine/parameter_layout.hpp"
#include "agent/storage/durable_file.hpp"
#include "agent/storage/safetensors.hpp"
#include "cli/views/parts/document.hpp"
#include "strategies/specification/run_rules.hpp"
#include "transport/base/own_disk.hpp"

namespace atl {
namespace fs = std::filesystem;

Status pin_run(RunSpec& spec, CoordinatorClient& client, Duration patience) {
  if (run_to_begin_from(spec.model.from).empty()) {
    return {};
  }
  const nlohmann::json question = {{"run", std::string(run_to_begin_from(spec.model.from))},
                                   {"reader_key", client.access().keys.public_key}};
  const TimePoint deadline = now() + patience;
  Result<nlohmann::json> document = client.ask("export", question, patience);
  while (!document && document.error().code == Code::unavailable && now() < deadline) {
    pause_between_questions(std::chrono::milliseconds(200));
    document = client.ask("export", question, patience);
  }
  if (!document) {
    return with_context(document.error(), "model.from = \"" + spec.model.from + "\"");
  }
  const std::string sha256 = text_at(*document, "file_sha256");
  if (!spec.model.sha256.empty() && spec.model.sha256 != sha256) {
    return Error{Code::invalid_argument, "model.from = \"" + spec.model.from + "\": its newest checkpoint has SHA-256 " + sha256 +
                                             ", and the run file says " + spec.model.sha256};
  }
  spec.model.from = "run:" + text_at(*document, "run");
  spec.model.sha256 = sha256;
  return {};
}

Status pin_file(RunSpec& spec, const fs::path& path) {
  if (!begins_from_file(spec)) {
    return {};
  }
  const DiskPath file = on_this_machine(path);
  if (!file.exists()) {
    return !spec.model.sha256.empty()
               ? Status()
               : Error{Code::not_found, path.string() + " (model.from) is not on this machine: put it there, or give model.sha256"};
  }
  ATOLL_ASSIGN(const FileFacts facts, facts_of(file));
  const std::string sha256 = to_hex(facts.sha256);
  if (!spec.model.sha256.empty() && spec.model.sha256 != sha256) {
    return Error{Code::invalid_argument,
                 path.string() + " (model.from) has SHA-256 " + sha256 + ", and the run file says " + spec.model.sha256};
  }
  ATOLL_ASSIGN(const SafetensorsFile opened, SafetensorsFile::open(file));
  if (model_kind(spec) == ModelKind::language) {  // else the model is known on the islands alone
    if (const Status fits = holds_parameters(opened.header(), manifest_of(spec)); !fits) {
      return with_context(fits.error(), path.string() + " (model.from)");
    }
  }
  spec.model.sha256 = sha256;
  return {};
}

}  // namespace atl
