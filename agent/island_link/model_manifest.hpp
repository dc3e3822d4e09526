// The parameters of the built-in models: names, shapes and blocks. The decoder-only transformer's names are those of Hugging Face's Llama,
// the diffusion transformer's those of its authors' code.
//
// The trainer declares them to the agent; the command line counts them before any trainer runs. Both call this.
// Threads: pure functions.
#pragma once

#include "agent/island_link/messages.hpp"

namespace atl::island_link {

// The hidden width of the feed-forward layer: `feed_forward`, or 8/3 of the width rounded up to a multiple of 32 where it is 0.
std::uint32_t feed_forward_width(const Model& sizes);

// In the trainer's order: embeddings (block −1), the layers (0…L−1), final norm and, unless tied, head (L).
Manifest model_manifest(const Model& sizes);

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
