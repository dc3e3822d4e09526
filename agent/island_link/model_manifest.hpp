// The parameters of the built-in decoder-only transformer: names, shapes and blocks, as Hugging Face's Llama names them.
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

}  // namespace atl::island_link
