#include "strategies/pairing.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <utility>

#include "transport/base/check.hpp"
#include "transport/base/rng.hpp"

namespace atl {
namespace {

// Who sits out when: lap after lap, all places in an order that is drawn for the lap; round r takes the places r·s, r·s + 1, …, r·s + s
// − 1.
class SittingOut {
 public:
  SittingOut(std::uint64_t seed, std::size_t members, std::uint64_t count) : seed_(seed), members_(members), count_(count) {}

  [[nodiscard]] std::vector<std::size_t> of(Round round) const {
    if (count_ == 0) {
      return {};
    }
    // (round − 1) · count as laps and places within the lap, without overflow
    const std::uint64_t index = round.value - 1;
    const std::uint64_t within = index % members_ * count_;
    const std::uint64_t lap = index / members_ * count_ + within / members_;
    const std::uint64_t first = within % members_;
    std::vector<std::size_t> order = order_of(lap);
    std::vector<std::size_t> out;
    for (std::uint64_t k = first; k < first + count_ && k < members_; ++k) {
      out.push_back(order[static_cast<std::size_t>(k)]);
    }
    if (const std::uint64_t missing = count_ - out.size(); missing > 0) {
      order = order_of(lap + 1);
      out.insert(out.end(), order.begin(), order.begin() + static_cast<std::ptrdiff_t>(missing));
    }
    return out;
  }

 private:
  // Places of a lap that its first round takes together with the end of the lap before, and that its last round takes before the next.
  [[nodiscard]] std::size_t begun(std::uint64_t lap) const {
    const std::uint64_t rest = lap % count_ * (members_ % count_) % count_;  // of lap · members, divided by count
    return static_cast<std::size_t>(rest == 0 ? 0 : count_ - rest);
  }
  [[nodiscard]] std::size_t left(std::uint64_t lap) const {
    const std::size_t next = begun(lap + 1);
    return next == 0 ? 0 : static_cast<std::size_t>(count_) - next;
  }

  [[nodiscard]] std::vector<std::size_t> drawn(std::uint64_t lap) const {
    std::vector<std::size_t> order(members_);
    std::iota(order.begin(), order.end(), std::size_t{0});
    // One place at a time needs no other order: nobody sits out together with anybody.
    Rng rng(seed_, stream_of("sitting out", count_ == 1 ? 0 : lap));
    for (std::size_t i = members_; i > 1; --i) {
      std::swap(order[i - 1], order[static_cast<std::size_t>(rng.below(i))]);
    }
    return order;
  }

  // A round that takes the end of one lap and the beginning of the next would take a place twice if it stood in both. Such a place changes
  // with one from the middle of its lap, so that neither end of any lap depends on another lap. There is always one: count < members / 2.
  [[nodiscard]] std::vector<std::size_t> order_of(std::uint64_t lap) const {
    std::vector<std::size_t> order = drawn(lap);
    const std::size_t head = begun(lap);
    if (head == 0) {
      return order;
    }
    const std::vector<std::size_t> before = drawn(lap - 1);
    const auto taken = [&](std::size_t place) {
      return std::find(before.end() - static_cast<std::ptrdiff_t>(left(lap - 1)), before.end(), place) != before.end();
    };
    std::size_t free = head;
    for (std::size_t i = 0; i < head; ++i) {
      if (taken(order[i])) {
        while (taken(order[free])) {
          ++free;
        }
        std::swap(order[i], order[free++]);
      }
    }
    ATOLL_CHECK(free <= members_ - left(lap), "a lap's middle has a place for everybody who would sit out twice");
    return order;
  }

  std::uint64_t seed_;
  std::size_t members_;
  std::uint64_t count_;
};

constexpr int kShuffles = 64;
constexpr std::size_t kMostLooks = 1'000'000;  // of a search: some milliseconds

// How many avoided couples stand in one group.
std::size_t avoided_in(std::span<const std::size_t> meeting, std::uint32_t group_size, const PlaceCouples& avoided) {
  std::size_t count = 0;
  for (std::size_t i = 0; !avoided.empty() && i < meeting.size(); ++i) {
    for (std::size_t j = i + 1; j < meeting.size() && j / group_size == i / group_size; ++j) {
      count += contains(avoided, meeting[i], meeting[j]) ? 1U : 0U;
    }
  }
  return count;
}

// Pairs of these places without an avoided one, one behind the other; empty: there are none, or they were not found. First is paired who
// has the fewest left to choose from.
std::vector<std::size_t> find_pairs(std::vector<std::size_t> left, const PlaceCouples& avoided, std::size_t& looks) {
  std::vector<std::size_t> partners;  // of the place that is paired now
  std::size_t chosen = 0;
  for (std::size_t i = 0; i < left.size() && (i == 0 || !partners.empty()); ++i) {
    std::vector<std::size_t> able;
    std::ranges::copy_if(left, std::back_inserter(able),
                         [&](std::size_t other) { return other != left[i] && !contains(avoided, left[i], other); });
    if (i == 0 || able.size() < partners.size()) {
      chosen = i;
      partners = std::move(able);
    }
  }
  const std::size_t place = left[chosen];
  for (const std::size_t partner : partners) {
    looks += left.size() * left.size();
    if (looks > kMostLooks) {
      break;
    }
    std::vector<std::size_t> others;
    std::ranges::copy_if(left, std::back_inserter(others), [&](std::size_t other) { return other != place && other != partner; });
    std::vector<std::size_t> pairs = others.empty() ? others : find_pairs(std::move(others), avoided, looks);
    if (pairs.size() + 2 == left.size()) {
      pairs.insert(pairs.end(), {place, partner});
      return pairs;
    }
  }
  return {};
}

// The same where one of an odd number sits out: the one whose turn it is, or another.
void search_pairs(std::vector<std::size_t>& meeting, std::vector<std::size_t>& out, const PlaceCouples& avoided) {
  std::size_t looks = 0;
  for (std::size_t i = 0; i <= (out.empty() ? 0 : meeting.size()); ++i) {
    std::vector<std::size_t> all = meeting;
    if (i > 0) {
      std::swap(all[i - 1], out.front());
    }
    if (std::vector<std::size_t> pairs = find_pairs(all, avoided, looks); !pairs.empty()) {
      meeting = std::move(pairs);
      return;
    }
    if (i > 0) {
      std::swap(all[i - 1], out.front());
    }
  }
}

}  // namespace

std::vector<std::vector<IslandId>> pairing(std::uint64_t seed, Round round, std::span<const IslandId> members, std::uint32_t group_size,
                                           const PlaceCouples& avoided) {
  ATOLL_CHECK(group_size >= 2, "a group has at least two members");
  std::vector<std::size_t> out = SittingOut(seed, members.size(), members.size() % group_size).of(round);
  std::vector<std::size_t> meeting;
  for (std::size_t place = 0; place < members.size(); ++place) {
    if (std::find(out.begin(), out.end(), place) == out.end()) {
      meeting.push_back(place);
    }
  }
  Rng rng(seed, stream_of("pairing", round.value));
  std::size_t fewest = SIZE_MAX;
  std::vector<std::size_t> order = meeting;
  for (int shuffle = 0; shuffle < kShuffles && fewest > 0; ++shuffle) {
    for (std::size_t i = order.size(); i > 1; --i) {
      std::swap(order[i - 1], order[static_cast<std::size_t>(rng.below(i))]);
    }
    if (const std::size_t count = avoided_in(order, group_size, avoided); count < fewest) {
      fewest = count;
      meeting = order;
    }
  }
  if (fewest > 0 && group_size == 2) {
    search_pairs(meeting, out, avoided);
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
                               std::uint32_t group_size, const PlaceCouples& avoided) {
  for (std::vector<IslandId>& group : pairing(seed, round, members, group_size, avoided)) {
    if (std::find(group.begin(), group.end(), self) != group.end()) {
      return std::move(group);
    }
  }
  return {self};
}

}  // namespace atl
