#include "cli/models/given_parameters.hpp"

#include <nlohmann/json.hpp>
#include <system_error>

#include "agent/engine/built_in_model.hpp"
#include "agent/storage/given_tensors.hpp"
#include "cli/models/hub_model.hpp"
#include "cli/views/parts/document.hpp"
#include "strategies/specification/run_rules.hpp"

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

namespace {

// What is there, in the run file's words where it has any.
Status pin_to(RunSpec& spec, const fs::path& path) {
  std::error_code failure;
  if (!fs::exists(path, failure)) {
    return !spec.model.sha256.empty()
               ? Status()
               : Error{Code::not_found, path.string() + " (model.from) is not on this machine: put it there, or give model.sha256"};
  }
  ATOLL_ASSIGN(const Digest digest, digest_of_given(path));
  const std::string sha256 = to_hex(digest);
  if (!spec.model.sha256.empty() && spec.model.sha256 != sha256) {
    return Error{Code::invalid_argument,
                 path.string() + " (model.from) has SHA-256 " + sha256 + ", and the run file says " + spec.model.sha256};
  }
  if (const Status suits = suits_model(path, spec); !suits) {
    return with_context(suits.error(), "model.from");
  }
  spec.model.sha256 = sha256;
  return {};
}

}  // namespace

Status pin_file(RunSpec& spec, const fs::path& path) { return begins_from_file(spec) ? pin_to(spec, path) : Status(); }

Result<fs::path> pin_hub_model(RunSpec& spec, const Environment& environment) {
  const HubModel model = hub_model_to_begin_from(spec.model.from).value();
  Result<fs::path> folder = fetch_hub_model(model, environment);
  if (!folder) {
    return with_context(folder.error(), "model.from = \"" + spec.model.from + "\"");
  }
  ATOLL_TRY(pin_to(spec, *folder));
  spec.model.from = "hf:" + model.repository + "@" + folder->filename().string();
  return folder;
}

}  // namespace atl
