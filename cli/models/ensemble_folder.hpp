// A run's ensemble as a folder: fetched from islands, every file named by its digest; and the check of such a folder.
//
//   FOLDER/ensemble.json            what it is (agent/trainer/diffusion/ensemble.hpp)
//   FOLDER/experts/K.safetensors    the experts
//   FOLDER/router.safetensors       unless there is one expert
// Threads: one.
#pragma once

#include <filesystem>
#include <string>

#include "cli/line/interrupt.hpp"
#include "cli/link/coordinator_client.hpp"
#include "cli/models/export_model.hpp"
#include "transport/base/result.hpp"

namespace atl {

// Fetches what is missing into the folder (files that are there and whole are not fetched again); ensemble.json comes last.
// Errors: those of the coordinator (invalid_argument for a run of rounds); unavailable if no island that has it can be reached; corrupt;
// io; cancelled.
Status fetch_ensemble(CoordinatorClient& client, const std::string& run, const std::filesystem::path& folder, const Interrupt& interrupt,
                      const ExportProgress& progress = {});

// Whether an ensemble can be written there, before anything is fetched. Errors: invalid_argument for what is there and no folder.
Status check_ensemble_folder(const std::filesystem::path& folder);

// Compares every file with the size and SHA-256 that ensemble.json names. With `allow_missing` experts may be absent, but not altered.
// With `dense` only the model that was distilled from the ensemble is looked at.
// Errors: not_found, corrupt, each naming the file and what to do.
Status check_ensemble(const std::filesystem::path& folder, bool allow_missing, bool dense);

}  // namespace atl
