// Exporting a run's model: fetched from an island, digest-checked, written as safetensors that other tools read.
//
// What the island sends is its checkpoint's outer.safetensors. The exported file has the parameters under their names, without the
// outer optimiser's momentum, and says in its metadata what it is: atoll.model (JSON of [model]), atoll.format ([data].format),
// atoll.sequence_length, atoll.run and atoll.round.
// Threads: one.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "cli/coordinator_client.hpp"
#include "cli/interrupt.hpp"
#include "transport/base/result.hpp"

namespace atl {

// Bytes that came and bytes in all.
using ExportProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

// Fetches the run's newest checkpoint (of `island`, unless that is empty: then of any) into `path` (replaced when everything is there and verified; nothing is left otherwise).
// Errors: those of the coordinator; unavailable if no island that has it can be reached; corrupt; io; cancelled when interrupted.
Status export_model(CoordinatorClient& client, const std::string& run, const std::filesystem::path& path, const Interrupt& interrupt,
                    const ExportProgress& progress = {}, const std::string& island = "");

// The same for a command: asks the coordinator of the invocation, shows how far it is if stderr is a terminal, and heeds Ctrl-C. Errors: also
// those of CoordinatorClient::open.
Status export_model(const Invocation& invocation, const std::string& run, const std::filesystem::path& path, const std::string& island = "");

// Reports why there is no model, as `report` does; what was interrupted ends with 130.
Exit report_no_model(const Invocation& invocation, const Error& error);

// The parameters of a checkpoint's file as a model's file; nothing is left of it otherwise. Errors: corrupt, io; cancelled when interrupted.
Status write_model(const std::filesystem::path& checkpoint, const std::filesystem::path& path, const Interrupt* interrupt = nullptr);

}  // namespace atl
