// What a run trains, and what is known of it before a trainer has said anything: its size, and what a sample counts.
//
// A new kind of model is an enumerator here. Where kinds differ, code switches over them, and the compiler names the places.
// Threads: pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "strategies/specification/run_spec.hpp"

namespace atl {

enum class ModelKind : std::uint8_t {
  language,   // the built-in decoder-only transformer, trained on tokens
  diffusion,  // the built-in diffusion transformer, trained on images
  own,        // the islands' owners bring the training program: what its model is and what its files hold is its affair
};
// What [data].format may be: the first are of tokens, on which the built-in trainer trains a language model, the others of images.
inline constexpr std::array<std::string_view, 8> kDataFormats = {"bytes",   "uint16", "uint32", "idx",
                                                                 "cifar10", "images", "npy",    "safetensors"};
inline constexpr std::ptrdiff_t kTokenFormats = 3;
// Of a spec whose keys are allowed each alone.
ModelKind model_kind(const RunSpec& spec);
inline bool has_own_trainer(const RunSpec& spec) { return !spec.trainer.name.empty(); }

// What a sequence counts in tokens; an image counts as one, and a sample of an own trainer as [trainer] says.
std::uint64_t tokens_per_sequence(const RunSpec& spec);
// What no inner step counts more than; 0: not known.
std::uint64_t most_tokens_per_step(const RunSpec& spec);

// "1.3B", "350M", "12_000", "7e9": a count from 1 to 2^40; nullopt for any other text.
std::optional<std::uint64_t> parse_count(std::string_view text);
// The least memory that the model's float32 parameters take; of an own trainer what [trainer] says, 0 if it does not; of images what is not
// known before they are read is left out: channels beyond the first, and classes.
double model_parameter_bytes(const RunSpec& spec);
// The hidden width of the feed-forward layer, with 0 resolved.
std::uint32_t feed_forward_width(const ModelSpec& model);

}  // namespace atl
