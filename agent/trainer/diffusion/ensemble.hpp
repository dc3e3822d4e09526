// An ensemble on disk: ensemble.json, experts/K.safetensors, router.safetensors and, if one was distilled, dense.safetensors, as a run of
// phases leaves them.
//
// ensemble.json: {"format": "atoll-ensemble", "version": 1, "run": id, "experts": [{"file", "sha256", "bytes"}…], "router": {…} (none with
// one expert), "dense": {…} (where one was distilled), "training_flops": {…} (of an expert: what one island of its group did),
// "validation": {…}}. Whoever opens a folder has checked the digests (cli/models/ensemble_folder.hpp). Threads: one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/trainer/diffusion/dit.hpp"
#include "agent/trainer/diffusion/ensemble_flow.hpp"
#include "transport/base/result.hpp"

namespace atl {

struct Ensemble {
  std::vector<std::optional<Dit>> experts;  // empty: absent
  std::optional<Dit> router;
  std::string run;

  // Each file is read once. `allow_missing`: experts without a file are absent; else that is an error that names it.
  // Errors: not_found, corrupt; conflict for models of different runs or shapes.
  static Result<Ensemble> open(const std::string& folder, bool allow_missing, const at::Device& device);
  // The model that was distilled from the ensemble, as an ensemble of one expert. Errors: not_found, corrupt, conflict.
  static Result<Ensemble> open_dense(const std::string& folder, const at::Device& device);
  // The file of one model, which a run of rounds has made, as an ensemble of one expert. Errors: not_found, corrupt, naming the file.
  static Result<Ensemble> open_model(const std::string& path, const at::Device& device);
  [[nodiscard]] const DitSizes& expert_sizes() const;
  // The flow under this choice. `image_class`: with a condition; `guidance` g: u_none + g·(u_class − u_none), as in classifier-free
  // guidance (arXiv:2207.12598).
  [[nodiscard]] EnsembleFlow flow(const ExpertChoice& choice, std::optional<std::uint32_t> image_class, double guidance) const;
};

}  // namespace atl
