// The grid of a large exchange: who sums what where an exchange has two levels, so that nobody talks to everybody.
//
// Up to kOneLevelMembers members exchange on one level: each sums a shard for all. Of more, n members are cut into about √n *groups* of
// about √n, by their place in the member list alone; of each group as many members as the smallest has stand in a *column* each. The
// vector is cut into one *strip* a column, and a strip into one shard a group:
//
//             column 0   column 1   …   no column          strip 0 = the shards of all groups' members in column 0
//   group 0      0          g       …                      member (group a, column j) sums the strip j of its own group, then its shard of
//   group 1      1          g+1     …      n−1             strip j of all groups, and gives strip j of the result to its group
//     …
// A member without a column sums nothing: one that is left over, or that has no share (see cut_pieces in transport/bulk/exchange_plan.hpp).
// A member talks to its group and to its column: fewer than 2·√n + 3 peers where everybody has a share.
// Which group a contribution is summed in depends on the number of members alone, so that the result does not depend on shares.
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace atl {

inline constexpr std::size_t kOneLevelMembers = 32;
inline constexpr std::size_t kNoColumn = SIZE_MAX;

struct ExchangeGrid {
  std::size_t groups = 0;
  std::size_t columns = 0;
  std::vector<std::size_t> group;   // per member
  std::vector<std::size_t> column;  // per member, or kNoColumn
  std::vector<std::size_t> owners;  // of each shard in the order of the vector: columns · groups members, those of column 0 first

  // Who sums strip `in_column` of this group, and the shard of this place.
  [[nodiscard]] std::size_t owner(std::size_t of_group, std::size_t in_column) const { return owners[in_column * groups + of_group]; }
  friend bool operator==(const ExchangeGrid&, const ExchangeGrid&) = default;
};

// Nothing: the exchange has one level, for there are no more than `one_level` members, fewer than four, or a group in which nobody has a
// share. shares: per member, 0: it sums nothing; none: everybody may.
std::optional<ExchangeGrid> cut_grid(std::size_t members, std::span<const std::uint8_t> shares = {},
                                     std::size_t one_level = kOneLevelMembers);

// Whom this member sends to or reads from, in order.
std::vector<std::size_t> peers_in(const ExchangeGrid& grid, std::size_t member);

}  // namespace atl
