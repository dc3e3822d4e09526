// Normally distributed initial parameters: the same bytes on every island, whatever its cores and its device.
//
// The i-th number of a stream is a function of (seed, stream, i) alone (transport/base/rng.hpp), so threads share the work without sharing
// anything else, and a model larger than the memory of one copy is filled in pieces.
// Threads: it starts its own and joins them.
#pragma once

#include <cstdint>
#include <span>

namespace atl {

// to[i] = deviation × number `first` + i of those that normal() of an Rng(seed, stream) gives one after the other, rounded to float.
// threads: 0 for one on each core. Cost: some 15 million values a second and core; no memory.
void fill_with_normals(std::span<float> to, std::uint64_t seed, std::uint64_t stream, double deviation, std::uint64_t first = 0,
                       unsigned threads = 0);

}  // namespace atl
