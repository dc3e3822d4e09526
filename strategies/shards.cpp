#include "strategies/shards.hpp"

#include <algorithm>
#include <numeric>
#include <string>

namespace atl {

std::uint64_t shard_granularity(const CodecSettings& contribution, const CodecSettings& reduced) {
  return std::lcm(std::uint64_t{piece_granularity(contribution)}, std::uint64_t{piece_granularity(reduced)});
}

Result<std::vector<Shard>> split_shards(std::uint64_t count, std::uint32_t members, std::uint64_t granularity) {
  if (members == 0 || granularity == 0) {
    return Error{Code::invalid_argument, "a fragment is split among at least one member, in granules of at least one value"};
  }
  const std::uint64_t granules = count / granularity + (count % granularity == 0 ? 0 : 1);
  const std::uint64_t each = granules / members;
  const std::uint64_t longer = granules % members;  // the first so many have one granule more
  std::vector<Shard> shards;
  shards.reserve(members);
  std::uint64_t offset = 0;
  for (std::uint32_t member = 0; member < members; ++member) {
    const std::uint64_t size = (each + (member < longer ? 1 : 0)) * granularity;
    const std::uint64_t taken = std::min(size, count - offset);
    shards.push_back({offset, taken});
    offset += taken;
  }
  return shards;
}

Result<std::vector<Piece>> split_pieces(const Shard& shard, const CodecSettings& codec, std::uint64_t max_bytes) {
  ATOLL_TRY(check_codec(codec));
  const std::uint64_t granule = piece_granularity(codec);
  const std::uint64_t granule_bytes = encoded_bytes(codec, granule);
  if (max_bytes < granule_bytes) {
    return Error{Code::invalid_argument, "a piece of at most " + std::to_string(max_bytes) + " bytes cannot hold " +
                                             std::to_string(granule) + " values of codec " + std::string(to_string(codec.kind)) +
                                             "; allow at least " + std::to_string(granule_bytes)};
  }
  if (shard.offset % granule != 0) {
    return Error{Code::invalid_argument,
                 "a shard at value " + std::to_string(shard.offset) + " does not begin at a multiple of " + std::to_string(granule)};
  }
  const std::uint64_t values = max_bytes / granule_bytes * granule;
  std::vector<Piece> pieces;
  std::uint64_t byte_offset = 0;
  for (std::uint64_t done = 0; done < shard.count;) {
    const std::uint64_t taken = std::min(values, shard.count - done);
    const std::uint64_t bytes = encoded_bytes(codec, taken);
    pieces.push_back({shard.offset + done, taken, bytes, byte_offset});
    done += taken;
    byte_offset += bytes;
  }
  return pieces;
}

}  // namespace atl
