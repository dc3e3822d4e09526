// The parameters of the built-in models: names, shapes and blocks. The decoder-only transformer's names are those of Hugging Face's Llama,
// the diffusion transformer's those of its authors' code.
//
// The trainer declares them to the agent; the command line counts them before any trainer runs. Both call this.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "agent/island_link/messages.hpp"
#include "transport/base/result.hpp"

namespace atl::island_link {

// The hidden width of the feed-forward layer: `feed_forward`, or 8/3 of the width rounded up to a multiple of 32 where it is 0.
std::uint32_t feed_forward_width(const Model& sizes);

// Its arithmetic, as readers of its parameters must know it.
inline constexpr double kNormEpsilon = 1e-5;    // added to the mean square
inline constexpr double kRotaryBase = 10000.0;  // position · base^(−2i/D)

// Fills feed_forward in if it is 0. Errors: invalid_argument for sizes that do not fit one another.
Result<Model> checked_model(Model sizes);

// In the trainer's order: embeddings (block −1), the layers (0…L−1), final norm and, unless tied, head (L).
Manifest model_manifest(const Model& sizes);

// A language model as its file describes it: an exported one, or a checkpoint's outer.safetensors.
struct LanguageModelFile {
  Model sizes;
  bool bytes = true;            // its tokens are the bytes of texts; else they are numbers
  std::uint32_t context = 128;  // the length of the sequences that it was trained on, where the file says so
};
// From the metadata of the file. Errors: corrupt, saying what is missing or out of bounds.
Result<LanguageModelFile> describe_language_model(const std::map<std::string, std::string>& metadata);

// What a diffusion transformer's parameters depend on besides [model].
struct ImageModel {
  std::uint32_t channels = 1;
  std::uint32_t patch = 2;
  std::uint32_t classes = 0;  // of the condition; 0: none
  std::uint32_t outputs = 0;  // of a router; 0: a flow
};
inline constexpr std::uint64_t kTimeFrequencies = 128;  // sines and cosines each

// In the trainer's order: embeddings of patches, time and class (block −1), the layers (0…L−1), the final layer (L). A feed_forward of 0 is
// four widths.
Manifest image_model_manifest(const Model& sizes, const ImageModel& images);

}  // namespace atl::island_link
