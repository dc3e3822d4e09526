#include "transport/base/shards.hpp"

#include <algorithm>

namespace atl {

Result<std::vector<Shard>> split_shards(std::uint64_t count, std::size_t members, std::uint64_t granularity) {
  if (members == 0 || granularity == 0) {
    return Error{Code::invalid_argument, "a vector is split among at least one member, in granules of at least one value"};
  }
  const std::uint64_t granules = count / granularity + (count % granularity == 0 ? 0 : 1);
  const std::uint64_t each = granules / members;
  const std::uint64_t longer = granules % members;  // the first so many have one granule more
  std::vector<Shard> shards;
  shards.reserve(members);
  std::uint64_t offset = 0;
  for (std::size_t member = 0; member < members; ++member) {
    const std::uint64_t size = (each + (member < longer ? 1 : 0)) * granularity;
    const std::uint64_t taken = std::min(size, count - offset);
    shards.push_back({offset, taken});
    offset += taken;
  }
  return shards;
}

}  // namespace atl
