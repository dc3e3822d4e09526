#include "agent/service/given_parameters.hpp"

#include <cstdlib>
#include <optional>

#include "agent/engine/built_in_model.hpp"
#include "agent/storage/checkpoint.hpp"
#include "agent/storage/given_tensors.hpp"
#include "strategies/specification/run_rules.hpp"
#include "transport/base/own_disk.hpp"

namespace atl {
namespace {

namespace fs = std::filesystem;
using Found = std::variant<fs::path, Lacking>;

// Of another run this island may have had part in.
Result<Found> find_checkpoint(const std::string& run, const Digest& wanted, const DiskPath& runs) {
  const CheckpointStore store = CheckpointStore::look_at(runs / run / "checkpoints");
  for (const CheckpointMeta& meta : store.list()) {
    if (meta.outer() != nullptr && meta.outer()->sha256 == wanted) {
      const DiskPath file = store.folder_of(meta.round) / kOuterFile;
      ATOLL_ASSIGN(const FileFacts facts, facts_of(file));
      return facts.sha256 == wanted ? Found(fs::path(file.text())) : Found(Lacking{file.text() + " is damaged"});
    }
  }
  return Found(Lacking{"this island has not the checkpoint of run " + run + " with SHA-256 " + to_hex(wanted)});
}

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? std::nullopt : std::optional<std::string>(value);
}

}  // namespace

fs::path hub_snapshot(const HubModel& model) {
  const fs::path caches = variable("XDG_CACHE_HOME").value_or(variable("HOME").value_or("/") + "/.cache");
  const fs::path home = variable("HF_HOME").value_or(caches / "huggingface");
  std::string folder = "models--" + model.repository;
  if (const std::size_t slash = folder.find('/'); slash != std::string::npos) {
    folder.replace(slash, 1, "--");
  }
  return fs::path(variable("HF_HUB_CACHE").value_or(home / "hub")) / folder / "snapshots" / model.revision;
}

Result<Found> resolve_parameters(const RunSpec& spec, const DataPermissions& permissions, const Downloader& download,
                                 const DiskPath& runs) {
  const ModelSpec& model = spec.model;
  const Result<Digest> wanted = digest_from_hex(model.sha256);
  if (!wanted) {
    return Error{Code::invalid_argument, "model.from = \"" + model.from + "\" has no digest; submit the run with `atoll submit`"};
  }
  if (const std::string run(run_to_begin_from(model.from)); !run.empty()) {
    return find_checkpoint(run, *wanted, runs);
  }
  const std::optional<HubModel> hub = hub_model_to_begin_from(model.from);
  const std::string from = hub ? hub_snapshot(*hub).string() : model.from;
  DataSpec named;
  (hub || begins_from_file(spec) ? named.files.emplace_back() : named.url) = from;
  named.sha256 = model.sha256;
  // Of a folder all that lies below it, so that each link is known to be allowed.
  const Result<std::vector<fs::path>> files = resolve_data(named, permissions, download);
  if (!files && files.error().code == Code::not_found && hub) {
    return Found(Lacking{files.error().why + "; fetch it there by `hf download " + hub->repository + " --revision " + hub->revision + "`"});
  }
  if (!files && (files.error().code == Code::not_found || files.error().code == Code::unauthorized || worth_retrying(files.error().code))) {
    return Found(Lacking{files.error().why});
  }
  if (!files) {
    return files.error();
  }
  std::error_code failure;
  const bool folder = fs::is_directory(from, failure);
  if (!folder && files->size() != 1) {
    return Error{Code::invalid_argument, model.from + " (model.from) stands for " + std::to_string(files->size()) + " files; name one"};
  }
  const fs::path found = folder ? fs::path(from) : files->front();
  const Result<Digest> digest = digest_of_given(found);
  if (!digest && digest.error().code == Code::not_found) {
    return Found(Lacking{digest.error().why});
  }
  if (!digest) {
    return digest.error();
  }
  if (*digest != *wanted) {
    return Error{Code::invalid_argument, found.string() + " has SHA-256 " + to_hex(*digest) +
                                             ", and the run begins with the parameters of " + model.sha256 + " (model.from)"};
  }
  if (folder) {  // of a file the parameters themselves say all
    ATOLL_TRY(suits_model(found, spec));
  }
  return Found(found);
}

}  // namespace atl
