#include "agent/service/given_parameters.hpp"

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

}  // namespace

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
  DataSpec named;
  (begins_from_file(spec) ? named.files.emplace_back() : named.url) = model.from;
  named.sha256 = model.sha256;
  // Of a folder all that lies below it, so that each link is known to be allowed.
  const Result<std::vector<fs::path>> files = resolve_data(named, permissions, download);
  if (!files && (files.error().code == Code::not_found || files.error().code == Code::unauthorized || worth_retrying(files.error().code))) {
    return Found(Lacking{files.error().why});
  }
  if (!files) {
    return files.error();
  }
  std::error_code failure;
  const bool folder = fs::is_directory(model.from, failure);
  if (!folder && files->size() != 1) {
    return Error{Code::invalid_argument, model.from + " (model.from) stands for " + std::to_string(files->size()) + " files; name one"};
  }
  const fs::path found = folder ? fs::path(model.from) : files->front();
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
