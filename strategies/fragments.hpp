// Fragments: how a model's parameters are cut into the pieces that are synchronised as one, and where each parameter
// lies in the arena.
//
// A trainer declares its parameters as a manifest, in its own order. `lay_out` decides which fragment each parameter
// belongs to and orders the arena so that every fragment is one contiguous range of floats. Parameters are never cut:
// a trainer copies whole tensors. Within a fragment they keep the manifest's order. There is no padding: the sum of the
// parameters' counts is the arena's length.
// Choices (Streaming DiLoCo, arXiv:2501.18512, §2.2 and Fig. 17b): the whole model as one fragment; consecutive
// ("sequential") or strided transformer blocks, with the embeddings and the head together as one more, last fragment;
// for models that do not name their blocks, fragments balanced by size.
// Threads: pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/result.hpp"

namespace atl {

constexpr std::int32_t kEmbeddings = -1;  // ParameterInfo::block of the embeddings
constexpr std::int32_t kNoBlock = -2;     // of every parameter of a model that does not name its blocks

struct ParameterInfo {
  std::string name;                 // unique in the manifest, not empty
  std::vector<std::int64_t> shape;  // empty: a scalar
  // -1: embeddings; 0..L-1: transformer blocks; L: final norm and head, so the largest number in a manifest names them;
  // -2: the model does not name its blocks.
  std::int32_t block = kNoBlock;
  std::uint64_t count = 0;  // product of shape
  friend bool operator==(const ParameterInfo&, const ParameterInfo&) = default;
};

enum class FragmentKind : std::uint8_t {
  whole,       // one fragment
  sequential,  // consecutive blocks; then embeddings and head
  strided,     // block l in fragment l mod F; then embeddings and head
  // F fragments of about equal size, blocks ignored: the largest parameter first, each into the smallest fragment so far, so that the
  // largest fragment is at most 4/3 of the best possible (Graham 1969). Decoupled DiLoCo's (arXiv:2604.21428).
  balanced,
};
inline constexpr std::array<std::string_view, 4> kFragmentKinds = {"whole", "sequential", "strided", "balanced"};
constexpr std::span<const std::string_view> names_of(FragmentKind) { return kFragmentKinds; }

struct FragmentPlan {
  FragmentKind kind = FragmentKind::whole;
  // F of balanced; of sequential and strided the fragments of blocks, without the last one of embeddings and head, and 0
  // says F = ceil(L / k). Sequential puts block l into fragment floor(l·F/L), or floor(l/k) where F is 0.
  std::uint32_t fragments = 0;
  std::uint32_t layers_per_fragment = 3;  // k, of sequential and strided
  friend bool operator==(const FragmentPlan&, const FragmentPlan&) = default;
};

struct ArenaEntry {
  std::uint32_t parameter = 0;  // index into the manifest
  std::uint64_t offset = 0;     // of its first float in the arena
  friend bool operator==(const ArenaEntry&, const ArenaEntry&) = default;
};

// In floats.
struct FragmentRange {
  std::uint64_t offset = 0;
  std::uint64_t count = 0;
  friend bool operator==(const FragmentRange&, const FragmentRange&) = default;
};

struct ArenaLayout {
  std::vector<ArenaEntry> entries;       // in arena order
  std::vector<FragmentRange> fragments;  // in arena order, adjacent
  std::uint64_t total = 0;               // floats
  friend bool operator==(const ArenaLayout&, const ArenaLayout&) = default;
};

// The largest arena that is laid out: 2^48 floats.
constexpr std::uint64_t kMaxArenaFloats = 1ULL << 48;

// Errors: invalid_argument naming the parameter or the plan: an empty manifest, a name that is empty or given twice, a
// shape that is negative or does not multiply to `count`, more than kMaxArenaFloats, blocks that are missing or not
// numbered without gaps, more fragments than blocks or parameters, no float at all in a fragment.
// Cost: O(n log n) in parameters.
Result<ArenaLayout> lay_out(std::span<const ParameterInfo> manifest, const FragmentPlan& plan);

// Whether a fragment is the one of the embeddings: more than half of its values are of embeddings or of final norm and head, and it is not
// the whole model. Of models that do not name their blocks no fragment is.
bool is_of_embeddings(std::span<const ParameterInfo> manifest, const ArenaLayout& layout, std::uint32_t fragment);

// Every parameter exactly once, adjacent and without overlap, every fragment a union of whole parameters, all covered.
// For layouts that came from elsewhere (a checkpoint, a peer). Errors: invalid_argument naming what is wrong.
Status check_layout(std::span<const ParameterInfo> manifest, const ArenaLayout& layout);

}  // namespace atl
