// [model].from: the parameters that a run begins with, pinned by digest before the run is submitted.
//
// So every island begins with the same bytes, or refuses. Threads: one.
#pragma once

#include <filesystem>

#include "cli/link/coordinator_client.hpp"
#include "strategies/specification/run_spec.hpp"
#include "transport/base/result.hpp"

namespace atl {

// Where model.from names a file or a folder: fills in model.sha256. `path`: where that would lie on this machine; it may be missing here if
// the run file has its digest. Errors: not_found; invalid_argument if it has another digest than the run file says, or not the parameters
// of [model]; corrupt; io.
Status pin_file(RunSpec& spec, const std::filesystem::path& path);

// Where it names a model of the hub: that is fetched, and has its commit in model.from and its digest in model.sha256. The folder of it
// here. Errors: also those of fetch_hub_model.
Result<std::filesystem::path> pin_hub_model(RunSpec& spec, const Environment& environment);

// Where model.from names a run: fills in the run's id, and model.sha256 from its newest checkpoint. `patience`: for islands that are still
// connecting.
// Errors: not_found; invalid_argument if the checkpoint has another digest than the run file says; unavailable if no connected island has a
// checkpoint of the run; those of CoordinatorClient::ask.
Status pin_run(RunSpec& spec, CoordinatorClient& client, Duration patience = kPatience);

}  // namespace atl
