#include "strategies/diloco.hpp"

#include <algorithm>
#include <string>

#include "strategies/schedule.hpp"
#include "transport/base/shards.hpp"

namespace atl {

namespace {

struct CostOfSending {
  RoundCost cost;
  // One blob to each of so many readers.
  void send(std::uint64_t bytes, std::uint64_t readers) {
    cost.messages += bytes > 0 ? readers : 0;
    cost.bytes += bytes * readers;
  }
};

Result<RoundCost> cost_on_two_levels(const ExchangeGrid& grid, std::uint64_t values, std::size_t member, const CodecSettings& codec,
                                     const CodecSettings& reduce_codec) {
  ATOLL_ASSIGN(const auto shards, split_shards(values, grid.owners.size(), shard_granularity(codec, reduce_codec)));
  const auto strip = [&](const CodecSettings& of, std::size_t column) {
    std::uint64_t bytes = 0;
    for (std::size_t group = 0; group < grid.groups; ++group) {
      bytes += encoded_bytes(of, shards[column * grid.groups + group].count);
    }
    return bytes;
  };
  CostOfSending sending;
  const std::size_t own = grid.column[member];
  for (std::size_t column = 0; column < grid.columns; ++column) {
    sending.send(strip(codec, column), column == own ? 0 : 1);
  }
  if (own == kNoColumn) {
    return sending.cost;
  }
  const std::size_t first = own * grid.groups;
  for (std::size_t group = 0; group < grid.groups; ++group) {
    sending.send(encoded_bytes(reduce_codec, shards[first + group].count), group == grid.group[member] ? grid.groups - 1 : 1);
  }
  const auto in_group = std::ranges::count(grid.group, grid.group[member]);
  sending.send(strip(reduce_codec, own), static_cast<std::uint64_t>(in_group) - 1);
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
