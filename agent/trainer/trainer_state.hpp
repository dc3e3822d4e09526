// What a trainer saves of itself: parameters, AdamW's two moments, and where it stands.
//
// One safetensors file, `trainer.safetensors`, in a directory of the agent's choosing: for each parameter NAME of the manifest the tensors
// NAME, NAME.exp_avg and NAME.exp_avg_sq, and NAME.ema where an average is kept; in the metadata `atoll.step`, `atoll.position`,
// `atoll.updates`, `atoll.averaged_at`, `atoll.data` and `atoll.checksums` of the flat arrays, so that a flipped bit is found before a step
// is taken with it. Threads: plain functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "agent/island_link/messages.hpp"
#include "transport/base/result.hpp"

namespace atl {

// Flat, in manifest order without gaps; all of the same length, but for an average that is not kept, which is empty.
struct TrainerArrays {
  std::span<float> parameters;
  std::span<float> first;
  std::span<float> second;
  std::span<float> average = {};
};

struct TrainerPlace {
  std::uint64_t step = 0;
  std::uint64_t position = 0;
  std::uint64_t updates = 0;                    // of the optimiser; fewer than steps if it started afresh in the middle of a run
  std::vector<std::uint64_t> averaged_at = {};  // by fragment: the step that the average has come to
  std::string data = {};                        // which it was trained on; empty: not known
};

// Writes under another name, syncs, renames. Errors: io, naming the file (a full disk says so); nothing is left behind then.
Status save_trainer_state(const std::string& directory, const island_link::Manifest& manifest, const TrainerArrays& arrays,
                          const TrainerPlace& place);

// Fills the arrays. Errors: not_found, io; corrupt if the file is broken or of another model (the arrays may be half filled then).
Result<TrainerPlace> load_trainer_state(const std::string& directory, const island_link::Manifest& manifest, const TrainerArrays& arrays);

}  // namespace atl
