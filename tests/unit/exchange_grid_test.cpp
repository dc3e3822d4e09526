// The grid of exchanges with two levels: every member has a place, every shard an owner, and nobody has many peers.
#include "transport/base/exchange_grid.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "tests/catch.hpp"
#include "transport/base/rng.hpp"

namespace of_exchange_grid_test {

using namespace atl;

namespace {

// What holds for any grid.
void check_grid(const ExchangeGrid& grid, std::size_t members) {
  REQUIRE(grid.group.size() == members);
  REQUIRE(grid.column.size() == members);
  REQUIRE(grid.owners.size() == grid.groups * grid.columns);
  CHECK(std::set<std::size_t>(grid.owners.begin(), grid.owners.end()).size() == grid.owners.size());
  for (std::size_t column = 0; column < grid.columns; ++column) {
    for (std::size_t group = 0; group < grid.groups; ++group) {
      CHECK(grid.group[grid.owner(group, column)] == group);
      CHECK(grid.column[grid.owner(group, column)] == column);
    }
  }
  std::vector<std::size_t> sizes(grid.groups);
  for (std::size_t member = 0; member < members; ++member) {
    ++sizes.at(grid.group[member]);
    for (const std::size_t peer : peers_in(grid, member)) {
      const std::vector<std::size_t> back = peers_in(grid, peer);
      CHECK(std::ranges::find(back, member) != back.end());
    }
  }
  const auto [least, most] = std::ranges::minmax(sizes);
  CHECK(most - least <= 1);
}

}  // namespace

TEST_CASE("up to 32 members exchange on one level, more on two") {
  for (std::size_t members = 0; members <= kOneLevelMembers; ++members) {
    CHECK_FALSE(cut_grid(members));
  }
  CHECK(kOneLevelMembers == 32);
  CHECK(cut_grid(33));
  CHECK_FALSE(cut_grid(3, {}, 2));
  CHECK(cut_grid(4, {}, 2));
  CHECK_FALSE(cut_grid(4, {}, 4));
}

TEST_CASE("of 4 to 1,100 members every shard has one owner, and nobody more than about twice the root of peers") {
  for (std::size_t members = 4; members <= 1100; members += members < 80 ? 1 : 37) {
    CAPTURE(members);
    const std::optional<ExchangeGrid> grid = cut_grid(members, {}, 3);
    REQUIRE(grid);
    check_grid(*grid, members);
    const double root = std::sqrt(static_cast<double>(members));
    CHECK(static_cast<double>(grid->columns) > root - 1);
    CHECK(static_cast<double>(grid->groups) < root + 3);
    CHECK(members - grid->owners.size() < grid->columns);
    for (std::size_t member = 0; member < members; ++member) {
      CHECK(static_cast<double>(peers_in(*grid, member).size()) < 2 * root + 3);
    }
  }
  const ExchangeGrid large = cut_grid(1024).value();
  CHECK(large.groups == 32);
  CHECK(large.columns == 32);
  CHECK(peers_in(large, 517).size() == 62);
}

TEST_CASE("members without a share sum nothing and do not talk to each other, and the groups stay what they were") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Rng rng(seed);
    const std::size_t members = 4 + rng.below(70);
    std::vector<std::uint8_t> shares(members, 1);
    for (std::uint8_t& share : shares) {
      share = rng.chance(0.2) ? 0 : 1;
    }
    CAPTURE(seed, members);
    const std::optional<ExchangeGrid> grid = cut_grid(members, shares, 3);
    const ExchangeGrid everybody = cut_grid(members, {}, 3).value();
    if (!grid) {
      const auto nobody_in = [&](std::size_t group) {
        for (std::size_t member = 0; member < members; ++member) {
          if (everybody.group[member] == group && shares[member] != 0) {
            return false;
          }
        }
        return true;
      };
      bool found = false;
      for (std::size_t group = 0; group < everybody.groups; ++group) {
        found = found || nobody_in(group);
      }
      CHECK(found);
      continue;
    }
    check_grid(*grid, members);
    CHECK(grid->group == everybody.group);
    for (std::size_t member = 0; member < members; ++member) {
      if (shares[member] == 0) {
        CHECK(grid->column[member] == kNoColumn);
        for (const std::size_t peer : peers_in(*grid, member)) {
          CHECK(shares[peer] != 0);
        }
      }
    }
  }
}

}  // namespace of_exchange_grid_test
