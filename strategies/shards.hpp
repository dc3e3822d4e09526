// Shards and pieces: who reduces which part of a contribution, and in what portions it travels.
//
// In an exchange of P members, member j reduces shard j of the fragment. Shards are contiguous, in the order of the members,
// begin at multiples of the codec's piece granularity and differ by at most one granule; the last that is not empty may
// end in a part of one. Where there are fewer granules than members, the last shards are empty.
// Both halves of an exchange cut at the same shards, so the granularity has to suit both codecs: see shard_granularity.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "strategies/codec.hpp"
#include "transport/base/result.hpp"

namespace atl {

// In values of the fragment.
struct Shard {
  std::uint64_t offset = 0;
  std::uint64_t count = 0;
  friend bool operator==(const Shard&, const Shard&) = default;
};

// A part of a shard that is encoded, sent, checked and decoded alone. In values of the fragment.
struct Piece {
  std::uint64_t offset = 0;
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;        // encoded
  std::uint64_t byte_offset = 0;  // within the encoded shard
  friend bool operator==(const Piece&, const Piece&) = default;
};

// The least common multiple of the two codecs' piece granularities.
std::uint64_t shard_granularity(const CodecSettings& contribution, const CodecSettings& reduced);

// `members` shards that cover [0, count). Errors: invalid_argument for 0 members or a granularity of 0.
Result<std::vector<Shard>> split_shards(std::uint64_t count, std::uint32_t members, std::uint64_t granularity);

// The pieces of a shard, in order, each of at most max_bytes encoded bytes; none for an empty shard.
// Errors: invalid_argument if one granule does not fit max_bytes or the shard does not begin at a granule.
Result<std::vector<Piece>> split_pieces(const Shard& shard, const CodecSettings& codec, std::uint64_t max_bytes);

}  // namespace atl
