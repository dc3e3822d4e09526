#include "strategies/pairing.hpp"

#include <algorithm>
#include <utility>

#include "transport/base/check.hpp"
#include "transport/base/rng.hpp"

namespace atl {
namespace {

// The places in `members` that sit out, in the order of the circle.
std::vector<IslandId> left_over(std::uint64_t seed, Round round, const std::vector<IslandId>& members, std::uint32_t group_size) {
  const std::uint64_t count = members.size() % group_size;
  if (count == 0) {
    return {};
  }
  std::vector<std::pair<std::uint64_t, IslandId>> circle;
  for (const IslandId& member : members) {
    circle.emplace_back(Rng(seed, stream_of("sitting out " + member.text)).next_u64(), member);
  }
  std::sort(circle.begin(), circle.end());
  std::vector<IslandId> out;
  for (std::uint64_t k = 0; k < count; ++k) {
    // (round · count + k) mod P without overflow
    const std::uint64_t place = (round.value % circle.size() * count + k) % circle.size();
    out.push_back(circle[static_cast<std::size_t>(place)].second);
  }
  return out;
}

}  // namespace

std::vector<std::vector<IslandId>> pairing(std::uint64_t seed, Round round, std::span<const IslandId> members, std::uint32_t group_size) {
  ATOLL_CHECK(group_size >= 2, "a group has at least two members");
  std::vector<IslandId> sorted(members.begin(), members.end());
  std::sort(sorted.begin(), sorted.end());
  const std::vector<IslandId> out = left_over(seed, round, sorted, group_size);
  std::vector<IslandId> meeting;
  std::copy_if(sorted.begin(), sorted.end(), std::back_inserter(meeting),
               [&](const IslandId& member) { return std::find(out.begin(), out.end(), member) == out.end(); });
  Rng rng(seed, stream_of("pairing", round.value));
  for (std::size_t i = meeting.size(); i > 1; --i) {
    std::swap(meeting[i - 1], meeting[static_cast<std::size_t>(rng.below(i))]);
  }
  std::vector<std::vector<IslandId>> groups;
  for (std::size_t start = 0; start < meeting.size(); start += group_size) {
    const auto first = meeting.begin() + static_cast<std::ptrdiff_t>(start);
    groups.emplace_back(first, first + static_cast<std::ptrdiff_t>(group_size));
    std::sort(groups.back().begin(), groups.back().end());
  }
  for (const IslandId& alone : out) {
    groups.push_back({alone});
  }
  return groups;
}

std::vector<IslandId> group_of(const IslandId& self, std::uint64_t seed, Round round, std::span<const IslandId> members, std::uint32_t group_size) {
  for (std::vector<IslandId>& group : pairing(seed, round, members, group_size)) {
    if (std::find(group.begin(), group.end(), self) != group.end()) {
      return std::move(group);
    }
  }
  return {self};
}

}  // namespace atl
