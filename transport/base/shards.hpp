// Shards: which part of a vector each of several members is responsible for.
//
// Contiguous, in the order of the members, beginning at multiples of a granularity and differing by at most one granule; the last that is
// not empty may end in a part of one. Where there are fewer granules than members, the last shards are empty. The one place that says so:
// exchanges cut by it, and costs are counted by it. Threads: pure function.
#pragma once

#include <cstdint>
#include <vector>

#include "transport/base/result.hpp"

namespace atl {

// In values of the vector.
struct Shard {
  std::uint64_t offset = 0;
  std::uint64_t count = 0;
  friend bool operator==(const Shard&, const Shard&) = default;
};

// `members` shards that cover [0, count). Errors: invalid_argument for 0 members or a granularity of 0.
Result<std::vector<Shard>> split_shards(std::uint64_t count, std::size_t members, std::uint64_t granularity);

}  // namespace atl
