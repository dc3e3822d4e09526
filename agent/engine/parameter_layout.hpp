// Which parameters a model has, and where each lies in the arena and in the outer state.
//
// Arena, parameters and momentum share one layout: fragments one after another, each beginning at a multiple of 16 floats. It
// follows from the trainer's manifest and the strategy's fragments alone, so all islands have the same. A checkpoint keeps
// the manifest (metadata `atoll.manifest`), so that an island has its outer state before its trainer runs.
// Threads: a plain value.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "agent/island_link/messages.hpp"
#include "agent/storage/given_tensors.hpp"
#include "strategies/aggregate.hpp"
#include "strategies/fragments.hpp"
#include "strategies/outer_optimizer.hpp"
#include "transport/base/result.hpp"

namespace atl {

inline constexpr const char* kManifestKey = "atoll.manifest";
inline constexpr const char* kDescriptionKey = "atoll.description";  // of the model, as the trainer gave it; not of every trainer

class ParameterLayout {
 public:
  // Errors: invalid_argument naming what is wrong with the manifest, or that the plan does not suit it.
  static Result<ParameterLayout> make(island_link::Manifest manifest, const FragmentPlan& plan);
  // That of a checkpoint's outer.safetensors. Errors: corrupt.
  static Result<ParameterLayout> from_checkpoint(const SafetensorsHeader& header, const FragmentPlan& plan);

  [[nodiscard]] std::uint64_t total() const { return layout_.bytes / sizeof(float); }  // floats, gaps included
  [[nodiscard]] const std::vector<island_link::Fragment>& fragments() const { return layout_.fragments; }
  [[nodiscard]] const island_link::Manifest& manifest() const { return manifest_; }
  // For the trainer; the path is still empty.
  [[nodiscard]] const island_link::ArenaLayout& arena() const { return layout_; }
  // Whether a fragment is the one of the embeddings (strategies/fragments.hpp).
  [[nodiscard]] bool of_embeddings(std::uint32_t fragment) const { return of_embeddings_[fragment]; }
  // What is not trained of a fragment, in its order.
  [[nodiscard]] std::vector<BufferRange> buffers(std::uint32_t fragment) const;
  // The manifest's names and blocks as JSON, in its order, and what becomes of buffers.
  [[nodiscard]] std::string manifest_text() const;

  // Given parameters, by their names: F32, BF16 or F16. Tensors that the trainer has not declared are left alone.
  // Errors: as holds_parameters.
  [[nodiscard]] Status read_given(const GivenTensors& given, std::span<float> parameters) const;

  // Of each buffer all parameters as tensors, F32 or BF16, as they lie in memory.
  [[nodiscard]] std::vector<TensorView> tensors(const std::vector<OuterBuffer>& buffers) const;
  // Reads them back. Errors: corrupt if the file has not exactly these tensors, or another type of them than is kept.
  Status read(const SafetensorsFile& file, const std::vector<OuterBuffer>& buffers) const;

  friend bool operator==(const ParameterLayout& a, const ParameterLayout& b) {
    return a.manifest_ == b.manifest_ && a.layout_ == b.layout_;
  }

 private:
  island_link::Manifest manifest_;
  island_link::ArenaLayout layout_;
  std::vector<bool> of_embeddings_;  // by fragment
};

// Whether every parameter of a manifest is there, in its shape and in a type that is read.
// Errors: invalid_argument naming the first that it has not.
Status holds_parameters(const GivenTensors& given, const island_link::Manifest& manifest);

// Where two manifests first differ, for a person: "parameter 3 is 'h.1.weight' (64 × 32) on lyon, and 'h.0.weight' (32 × 32) on
// oslo". `here` and `there` say of which islands they are ("on lyon", "in the run"). Empty if they are the same.
std::string first_difference(const island_link::Manifest& ours, const island_link::Manifest& theirs, const std::string& here,
                             const std::string& there);

}  // namespace atl
