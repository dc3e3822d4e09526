#include "strategies/diloco.hpp"

#include <string>

#include "strategies/schedule.hpp"
#include "transport/base/shards.hpp"

namespace atl {

Result<RoundCost> exchange_cost(std::uint64_t values, std::uint32_t members, std::uint32_t member, const CodecSettings& codec,
                                const CodecSettings& reduce_codec) {
  if (member >= members) {
    return Error{Code::invalid_argument, "an exchange of " + std::to_string(members) + " has no member " + std::to_string(member)};
  }
  ATOLL_TRY(check_codec(codec));
  ATOLL_TRY(check_codec(reduce_codec));
  if (members == 1) {
    return RoundCost{};
  }
  if (members == 2) {
    return RoundCost{1, encoded_bytes(codec, values)};
  }
  ATOLL_ASSIGN(const auto shards, split_shards(values, members, shard_granularity(codec, reduce_codec)));
  RoundCost cost;
  for (std::uint32_t owner = 0; owner < members; ++owner) {
    if (owner != member && shards[owner].count > 0) {
      ++cost.messages;
      cost.bytes += encoded_bytes(codec, shards[owner].count);
    }
  }
  if (shards[member].count > 0) {
    cost.messages += members - 1;
    cost.bytes += (members - 1) * encoded_bytes(reduce_codec, shards[member].count);
  }
  return cost;
}

Result<RoundCost> diloco_cost(std::uint64_t values, std::uint64_t total_steps, std::uint64_t inner_steps, std::uint32_t members,
                              std::uint32_t member, const CodecSettings& codec, const CodecSettings& reduce_codec) {
  ATOLL_ASSIGN(const Schedule schedule, Schedule::make(total_steps, inner_steps));
  ATOLL_ASSIGN(const RoundCost round, exchange_cost(values, members, member, codec, reduce_codec));
  return RoundCost{round.messages * schedule.rounds(), round.bytes * schedule.rounds()};
}

}  // namespace atl
