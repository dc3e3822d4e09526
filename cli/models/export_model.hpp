// Exporting a run's model: fetched from an island, digest-checked, written as safetensors that other tools read.
//
// What the island sends is its checkpoint's outer.safetensors. The exported file has the parameters under their names, without the
// outer optimiser's momentum, and says in its metadata what it is: atoll.format ([data].format), atoll.run and atoll.round; of a language
// model atoll.model (JSON of [model]) and atoll.sequence_length; and atoll.description, where the trainer gave one, as it does of a model
// of images. Threads: one.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/line/interrupt.hpp"
#include "cli/link/coordinator_client.hpp"
#include "cli/link/holders.hpp"
#include "transport/base/result.hpp"
#include "transport/bulk/blob_fetch.hpp"
#include "transport/bulk/bulk_link.hpp"

namespace atl {

// What is told while a model is fetched; either may be empty.
struct ExportProgress {
  std::function<void(std::uint64_t done, std::uint64_t total)> bytes;  // that came, and in all
  std::function<void(const std::string& text)> note;                   // that it is not the newest model, and why
};

// What an exported file or folder can be used for.
enum class Exported { text_model, image_model, ensemble, own_model };

// Fetches the run's newest checkpoint (of `island`, unless that is empty: then of all that have it and can be dialled; where none of them
// can, the newest that another island has, with a note) into `path`, which is written as OutputFile says, when everything has come and is
// verified. Errors: those of OutputFile, before anything is fetched; those of the coordinator; unavailable
// if no island that has it can be reached; corrupt; io; cancelled when interrupted.
Result<Exported> export_model(CoordinatorClient& client, const std::string& run, const std::filesystem::path& path,
                              const Interrupt& interrupt, const ExportProgress& progress = {}, const std::string& island = "");

// The model of a run, or of a run of phases its ensemble: then `path` is a folder. Errors: as export_model and fetch_ensemble;
// invalid_argument for an island of an ensemble.
Result<Exported> export_run(CoordinatorClient& client, const std::string& run, const std::filesystem::path& path,
                            const Interrupt& interrupt, const ExportProgress& progress = {}, const std::string& island = "");
// The same for a command.
Result<Exported> export_run(const Invocation& invocation, const std::string& run, const std::filesystem::path& path,
                            const std::string& island = "");
// The trainer of one's own that a model's file is of; empty for any other file.
std::string own_trainer_of(const std::filesystem::path& path);
// True for the file of a model that images are drawn from.
bool is_model_of_images(const std::filesystem::path& path);

// A bulk link that only reads, to these islands. Errors: those of the link.
Result<std::unique_ptr<BulkLink>> open_reader_link(const CoordinatorAccess& access, const std::vector<Member>& sources);
// The islands in a document of the coordinator.
std::vector<Member> members_at(const nlohmann::json& document, const std::string& key);
// How long an island that may be behind a router is dialled.
inline constexpr Duration kDialPatience = std::chrono::seconds(4);
// Fetches what the plan names, whatever its sources, from those of `islands` that were reached. Errors: unavailable where none was; those
// of the fetch; they name the islands.
Status fetch_from(const CoordinatorAccess& access, Holders& holders, const std::vector<Member>& islands, BlobFetchPlan plan,
                  const Interrupt& interrupt, const ExportProgress& progress);
// Moves wants and pieces until the blob is here or cannot come. Errors: those of the fetch; cancelled when interrupted.
Status fetch_blob(BulkLink& link, BlobFetch& blob, const Interrupt& interrupt, const ExportProgress& progress);

// export_model for a command: asks the coordinator of the invocation, shows how far it is if stderr is a terminal, and heeds Ctrl-C.
// Errors: also those of CoordinatorClient::open.
Result<Exported> export_model(const Invocation& invocation, const std::string& run, const std::filesystem::path& path,
                              const std::string& island = "");

// Reports why there is no model, as `report` does; what was interrupted ends with 130.
Exit report_no_model(const Invocation& invocation, const Error& error);

// The parameters of a checkpoint's file as a model's file. Errors: corrupt; those of OutputFile; cancelled when interrupted.
Status write_model(const std::filesystem::path& checkpoint, const std::filesystem::path& path, const Interrupt* interrupt = nullptr);

}  // namespace atl
