#include "transport/base/exchange_grid.hpp"

#include <algorithm>

namespace atl {
namespace {

std::size_t whole_root(std::size_t number) {
  std::size_t root = 0;
  while ((root + 1) * (root + 1) <= number) {
    ++root;
  }
  return root;
}

}  // namespace

std::optional<ExchangeGrid> cut_grid(std::size_t members, std::span<const std::uint8_t> shares, std::size_t one_level) {
  if (members <= one_level || members < 4) {
    return std::nullopt;
  }
  ExchangeGrid grid;
  grid.groups = members / whole_root(members);
  std::vector<std::vector<std::size_t>> able(grid.groups);  // of each group, those who may sum
  for (std::size_t member = 0; member < members; ++member) {
    grid.group.push_back(member % grid.groups);
    if (member >= shares.size() || shares[member] != 0) {
      able[grid.group.back()].push_back(member);
    }
  }
  grid.columns = std::ranges::min_element(able, {}, [](const auto& group) { return group.size(); })->size();
  if (grid.columns == 0) {
    return std::nullopt;
  }
  grid.column.assign(members, kNoColumn);
  for (std::size_t column = 0; column < grid.columns; ++column) {
    for (const std::vector<std::size_t>& group : able) {
      grid.column[group[column]] = column;
      grid.owners.push_back(group[column]);
    }
  }
  return grid;
}

std::vector<std::size_t> peers_in(const ExchangeGrid& grid, std::size_t member) {
  const bool owns = grid.column[member] != kNoColumn;
  std::vector<std::size_t> peers;
  for (std::size_t other = 0; other < grid.group.size(); ++other) {
    const bool other_owns = grid.column[other] != kNoColumn;
    const bool in_group = grid.group[other] == grid.group[member] && (owns || other_owns);
    const bool in_column = owns && grid.column[other] == grid.column[member];
    if (other != member && (in_group || in_column)) {
      peers.push_back(other);
    }
  }
  return peers;
}

}  // namespace atl
