#include "strategies/diloco.hpp"

#include <algorithm>
#include <string>

#include "strategies/schedule.hpp"
#include "transport/base/shards.hpp"

namespace atl {

namespace {

struct CostOfSending {
  RoundCost cost;
  // One blob to each of so many readers: the values of these shards, which follow one another.
  void send(const CodecSettings& codec, std::span<const Shard> shards, std::uint64_t readers) {
    std::uint64_t bytes = 0;
    for (const Shard& shard : shards) {
      bytes += encoded_bytes(codec, shard.count);
    }
    cost.messages += bytes > 0 ? readers : 0;
    cost.bytes += bytes * readers;
  }
};

Result<RoundCost> cost_on_two_levels(const ExchangeGrid& grid, std::uint64_t values, std::size_t member, const CodecSettings& codec,
                                     const CodecSettings& reduce_codec) {
  ATOLL_ASSIGN(const auto shards, split_shards(values, grid.owners.size(), shard_granularity(codec, reduce_codec)));
  const auto strip = [&](std::size_t column) { return std::span(shards).subspan(column * grid.groups, grid.groups); };
  CostOfSending sending;
  const std::size_t own = grid.column[member];
  for (std::size_t column = 0; column < grid.columns; ++column) {
    sending.send(codec, strip(column), column == own ? 0 : 1);
  }
  if (own == kNoColumn) {
    return sending.cost;
  }
  for (std::size_t group = 0; group < grid.groups; ++group) {
    sending.send(reduce_codec, strip(own).subspan(group, 1), group == grid.group[member] ? grid.groups - 1 : 1);
  }
  const auto in_group = std::ranges::count(grid.group, grid.group[member]);
  sending.send(reduce_codec, strip(own), static_cast<std::uint64_t>(in_group) - 1);
  return sending.cost;
}

}  // namespace

Result<RoundCost> exchange_cost(std::uint64_t values, std::uint32_t members, std::uint32_t member, const CodecSettings& codec,
                                const CodecSettings& reduce_codec, std::size_t one_level) {
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
  if (const std::optional<ExchangeGrid> grid = cut_grid(members, {}, one_level)) {
    return cost_on_two_levels(*grid, values, member, codec, reduce_codec);
  }
  ATOLL_ASSIGN(const auto shards, split_shards(values, members, shard_granularity(codec, reduce_codec)));
  CostOfSending sending;
  for (std::uint32_t owner = 0; owner < members; ++owner) {
    sending.send(codec, std::span(shards).subspan(owner, 1), owner == member ? 0 : 1);
  }
  sending.send(reduce_codec, std::span(shards).subspan(member, 1), members - 1);
  return sending.cost;
}

Result<RoundCost> diloco_cost(std::uint64_t values, std::uint64_t total_steps, std::uint64_t inner_steps, std::uint32_t members,
                              std::uint32_t member, const CodecSettings& codec, const CodecSettings& reduce_codec) {
  ATOLL_ASSIGN(const Schedule schedule, Schedule::make(total_steps, inner_steps));
  ATOLL_ASSIGN(const RoundCost round, exchange_cost(values, members, member, codec, reduce_codec));
  return RoundCost{round.messages * schedule.rounds(), round.bytes * schedule.rounds()};
}

}  // namespace atl
