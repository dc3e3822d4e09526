#include "cli/models/ensemble_folder.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <system_error>
#include <vector>

#include "agent/storage/content_shelf.hpp"
#include "agent/storage/durable_file.hpp"
#include "cli/views/parts/document.hpp"
#include "transport/base/own_disk.hpp"
#include "transport/identity/sha256.hpp"

namespace atl {
namespace {

namespace fs = std::filesystem;
constexpr const char* kDocument = "ensemble.json";
constexpr std::size_t kLargestDocument = std::size_t{16} << 20;

// Where the result of a task lies in the folder; empty for those that are no part of the ensemble.
std::string file_of(const std::string& task) {
  return task == "assemble"             ? kDocument
         : task == "router"             ? "router.safetensors"
         : task == "distill"            ? "dense.safetensors"
         : task.starts_with("experts/") ? task + ".safetensors"
                                        : "";
}

struct WantedFile {
  fs::path path;
  BlobFetchPlan fetch;
  std::vector<Member> islands;  // that have it
};

Result<std::vector<WantedFile>> wanted_files(const nlohmann::json& document, const fs::path& folder) {
  std::vector<WantedFile> files;
  for (const nlohmann::json& result : list_at(document, "results")) {
    const std::string name = file_of(text_at(result, "task"));
    if (name.empty() || name.find("..") != std::string::npos) {
      continue;
    }
    WantedFile file;
    file.path = folder / name;
    ATOLL_ASSIGN(file.fetch.digest, digest_from_hex(text_at(result, "sha256")));
    file.fetch.blob = content_blob(RunId(text_at(document, "run")), *file.fetch.digest);
    file.fetch.size = static_cast<std::uint64_t>(std::clamp(number_at(result, "bytes").value_or(0), 0.0, 1e15));
    file.fetch.path = on_this_machine(file.path);
    file.islands = members_at(result, "sources");
    files.push_back(std::move(file));
  }
  // The description last: a folder that has it is whole.
  std::ranges::stable_sort(
      files, [](const WantedFile& a, const WantedFile& b) { return (a.path.filename() == kDocument) < (b.path.filename() == kDocument); });
  return files;
}

// The file that an entry of ensemble.json names: one inside the folder, whoever wrote the description.
Result<fs::path> named_file(const fs::path& folder, const nlohmann::json& entry) {
  const fs::path name = text_at(entry, "file");
  const bool inside = !name.empty() && name.is_relative() && name.has_filename() && std::ranges::find(name, fs::path("..")) == name.end();
  if (!inside) {
    return Error{Code::corrupt, (folder / kDocument).string() + ": the file '" + name.string().substr(0, 200) +
                                    "' that it names does not lie beside it; export the ensemble again"};
  }
  return folder / name;
}

Status check_file(const fs::path& path, const nlohmann::json& entry) {
  const Result<FileFacts> facts = facts_of(on_this_machine(path));
  if (!facts) {
    return facts.error();
  }
  const Result<Digest> digest = digest_from_hex(text_at(entry, "sha256"));
  if (!digest || facts->sha256 != *digest) {
    return Error{Code::corrupt, path.string() + ": altered: it is not the file that ensemble.json names (SHA-256 " +
                                    text_at(entry, "sha256") + "); export the ensemble again"};
  }
  return {};
}

}  // namespace

Status check_ensemble_folder(const fs::path& folder) {
  std::error_code failure;
  if (folder.empty() || (fs::exists(folder, failure) && !fs::is_directory(folder, failure))) {
    return Error{Code::invalid_argument, folder.string() + ": is no folder, and an ensemble is written as one; give another name"};
  }
  return {};
}

Status fetch_ensemble(CoordinatorClient& client, const std::string& run, const fs::path& folder, const Interrupt& interrupt,
                      const ExportProgress& progress) {
  ATOLL_ASSIGN(const nlohmann::json document, client.ask("results", {{"run", run}, {"reader_key", client.access().keys.public_key}}));
  ATOLL_ASSIGN(std::vector<WantedFile> files, wanted_files(document, folder));
  ATOLL_TRY(check_ensemble_folder(folder));
  std::error_code failure;
  ATOLL_TRY(on_this_machine(folder / "experts").make_folders());
  std::vector<Member> everybody;
  for (const WantedFile& file : files) {
    add_islands(everybody, file.islands);
  }
  Holders holders = Holders::dial(everybody, kDialPatience);
  for (WantedFile& file : files) {
    if (const Result<FileFacts> there = facts_of(on_this_machine(file.path)); there && there->sha256 == *file.fetch.digest) {
      continue;
    }
    if (const fs::file_status there = fs::symlink_status(file.path, failure); fs::exists(there) && !fs::is_regular_file(there)) {
      return Error{Code::conflict, file.path.string() + ": is there already and no regular file; remove it, or give another folder"};
    }
    const Status fetched = fetch_from(client.access(), holders, file.islands, std::move(file.fetch), interrupt, progress);
    if (!fetched) {
      return with_context(fetched.error(), "ensemble of run " + run + ", " + file.path.filename().string());
    }
  }
  return {};
}

Status check_ensemble(const fs::path& folder, bool allow_missing, bool dense) {
  const fs::path path = folder / kDocument;
  Result<Bytes> bytes = read_file(on_this_machine(path), kLargestDocument);
  if (!bytes) {
    return bytes.error().code == Code::not_found
               ? Error{Code::not_found, path.string() + ": there is no such file; `atoll export RUN -o FOLDER` writes an ensemble"}
               : bytes.error();
  }
  const nlohmann::json document = nlohmann::json::parse(reinterpret_cast<const char*>(bytes->data()),
                                                        reinterpret_cast<const char*>(bytes->data() + bytes->size()), nullptr, false);
  if (!document.is_object() || list_at(document, "experts").empty()) {
    return Error{Code::corrupt, path.string() + ": not the description of an ensemble"};
  }
  if (dense) {
    if (!document.contains("dense")) {
      return Error{
          Code::not_found,
          folder.string() + ": no dense model was distilled from this ensemble; set diffusion.distill_steps in the run file for one"};
    }
    ATOLL_ASSIGN(const fs::path file, named_file(folder, document["dense"]));
    return check_file(file, document["dense"]);
  }
  for (const nlohmann::json& entry : list_at(document, "experts")) {
    ATOLL_ASSIGN(const fs::path file, named_file(folder, entry));
    const Status good = check_file(file, entry);
    if (good) {
      continue;
    }
    if (good.error().code != Code::not_found) {
      return good.error();
    }
    if (!allow_missing) {
      return Error{Code::not_found,
                   file.string() + ": this expert is missing; export the ensemble again, or sample without it with --allow-missing"};
    }
  }
  if (document.contains("router")) {
    ATOLL_ASSIGN(const fs::path file, named_file(folder, document["router"]));
    ATOLL_TRY(check_file(file, document["router"]));
  }
  return {};
}

}  // namespace atl
