#include "strategies/pairing.hpp"

#include <algorithm>
#include <utility>

#include "transport/base/check.hpp"
#include "transport/base/rng.hpp"

namespace atl {
namespace {

// The places that sit out, in the order of the circle.
std::vector<std::size_t> left_over(std::uint64_t seed, Round round, std::size_t members, std::uint32_t group_size) {
  const std::uint64_t count = members % group_size;
  if (count == 0) {
    return {};
  }
  std::vector<std::pair<std::uint64_t, std::size_t>> circle;
  for (std::size_t place = 0; place < members; ++place) {
    circle.emplace_back(Rng(seed, stream_of("sitting out", place)).next_u64(), place);
  }
  std::sort(circle.begin(), circle.end());
  std::vector<std::size_t> out;
  for (std::uint64_t k = 0; k < count; ++k) {
    // (round · count + k) mod P without overflow
    const std::uint64_t at = (round.value % members * count + k) % members;
    out.push_back(circle[static_cast<std::size_t>(at)].second);
  }
  return out;
}

}  // namespace

std::vector<std::vector<IslandId>> pairing(std::uint64_t seed, Round round, std::span<const IslandId> members, std::uint32_t group_size) {
  ATOLL_CHECK(group_size >= 2, "a group has at least two members");
  const std::vector<std::size_t> out = left_over(seed, round, members.size(), group_size);
  std::vector<std::size_t> meeting;
  for (std::size_t place = 0; place < members.size(); ++place) {
    if (std::find(out.begin(), out.end(), place) == out.end()) {
      meeting.push_back(place);
    }
  }
  Rng rng(seed, stream_of("pairing", round.value));
  for (std::size_t i = meeting.size(); i > 1; --i) {
    std::swap(meeting[i - 1], meeting[static_cast<std::size_t>(rng.below(i))]);
  }
  std::vector<std::vector<IslandId>> groups;
  for (std::size_t start = 0; start < meeting.size(); start += group_size) {
    const auto first = meeting.begin() + static_cast<std::ptrdiff_t>(start);
    std::sort(first, first + static_cast<std::ptrdiff_t>(group_size));
    std::vector<IslandId>& group = groups.emplace_back();
    for (std::uint32_t i = 0; i < group_size; ++i) {
      group.push_back(members[first[i]]);
    }
  }
  for (const std::size_t place : out) {
    groups.push_back({members[place]});
  }
  return groups;
}

std::vector<IslandId> group_of(const IslandId& self, std::uint64_t seed, Round round, std::span<const IslandId> members,
                               std::uint32_t group_size) {
  for (std::vector<IslandId>& group : pairing(seed, round, members, group_size)) {
    if (std::find(group.begin(), group.end(), self) != group.end()) {
      return std::move(group);
    }
  }
  return {self};
}

}  // namespace atl
