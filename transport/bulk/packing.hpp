// Packed pieces: what a codec leaves redundant is taken out on the wire (Zstandard, RFC 8878, its fastest level). A piece has one size
// where it is computed with, and another one, which differs from piece to piece, where it travels; nothing is lost.
//
// What it takes out depends on the values: docs/results/speed.md has figures. Cost: one more pass over the bytes on each side.
// Threads: any; each keeps a context of its own.
#pragma once

#include <optional>
#include <span>

#include "transport/base/bytes.hpp"
#include "transport/base/result.hpp"

namespace atl {

// The bytes packed; nothing if they do not become smaller by it.
std::optional<Bytes> pack(ByteView bytes);

// Trusts nothing. Errors: corrupt if the bytes are no packed form of exactly as many as there is room for; `bytes` is unspecified then.
Status unpack(ByteView packed, std::span<std::byte> bytes);

}  // namespace atl
