// Pairings: a function of seed, round and members; uniform, independent and fair.
#include "strategies/pairing.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "tests/catch.hpp"

namespace of_pairing_test {

using namespace atl;

namespace {

std::vector<IslandId> islands(std::size_t count) {
  std::vector<IslandId> ids;
  for (std::size_t i = 0; i < count; ++i) {
    ids.emplace_back("island-" + std::string(1, static_cast<char>('a' + i)));
  }
  return ids;
}

}  // namespace

TEST_CASE("pairing: everyone is in exactly one group, and sees it as its partner does", "[pairing]") {
  for (std::size_t count = 1; count <= 11; ++count) {
    for (const std::uint32_t size : {2U, 3U, 4U}) {
      const std::vector<IslandId> members = islands(count);
      for (std::uint64_t round = 1; round <= 50; ++round) {
        std::multiset<IslandId> seen;
        std::size_t alone = 0;
        for (const std::vector<IslandId>& group : pairing(4, Round(round), members, size)) {
          REQUIRE((group.size() == size || group.size() == 1));
          REQUIRE(std::is_sorted(group.begin(), group.end()));  // as the members are
          alone += group.size() == 1 ? 1U : 0U;
          for (const IslandId& member : group) {
            seen.insert(member);
            REQUIRE(group_of(member, 4, Round(round), members, size) == group);
          }
        }
        REQUIRE(seen == std::multiset<IslandId>(members.begin(), members.end()));
        REQUIRE(alone == count % size);
      }
    }
  }
}

TEST_CASE("pairing: places decide, whoever has them, and seed and round", "[pairing]") {
  const std::vector<IslandId> members = islands(9);
  const auto there = pairing(1, Round(7), members);
  std::vector<IslandId> others = members;
  std::reverse(others.begin(), others.end());
  const auto theirs = pairing(1, Round(7), others);
  REQUIRE(theirs.size() == there.size());
  const auto place = [](const std::vector<IslandId>& list, const IslandId& id) {
    return std::find(list.begin(), list.end(), id) - list.begin();
  };
  for (std::size_t g = 0; g < there.size(); ++g) {
    REQUIRE(theirs[g].size() == there[g].size());
    for (std::size_t i = 0; i < there[g].size(); ++i) {
      CHECK(place(others, theirs[g][i]) == place(members, there[g][i]));
    }
  }
  CHECK(pairing(1, Round(8), members) != there);
  CHECK(pairing(2, Round(7), members) != there);
}

TEST_CASE("pairing: every matching is equally likely", "[pairing]") {
  // Six islands have 15 matchings; chi-squared with 14 degrees of freedom is below 36.1 with probability 0.999.
  const std::vector<IslandId> members = islands(6);
  std::map<std::set<std::vector<IslandId>>, int> counts;
  constexpr int kRounds = 15'000;
  for (int round = 1; round <= kRounds; ++round) {
    const auto groups = pairing(77, Round(static_cast<std::uint64_t>(round)), members);
    ++counts[{groups.begin(), groups.end()}];
  }
  REQUIRE(counts.size() == 15);
  double chi_squared = 0;
  for (const auto& [matching, count] : counts) {
    chi_squared += (count - kRounds / 15.0) * (count - kRounds / 15.0) / (kRounds / 15.0);
  }
  CHECK(chi_squared < 36.1);
}

TEST_CASE("pairing: every partition into groups of three or four is equally likely", "[pairing]") {
  struct Case {
    std::size_t islands;
    std::uint32_t size;
    std::size_t partitions;
    double chi_squared;  // below it with probability 0.999
  };
  // 6!/(3!²·2!) = 10, 9 degrees of freedom; 8!/(4!²·2!) = 35, 34 degrees.
  for (const Case& one : {Case{6, 3, 10, 27.9}, Case{8, 4, 35, 65.2}}) {
    CAPTURE(one.islands, one.size);
    const std::vector<IslandId> members = islands(one.islands);
    std::map<std::set<std::vector<IslandId>>, int> counts;
    constexpr int kRounds = 14'000;
    for (int round = 1; round <= kRounds; ++round) {
      const auto groups = pairing(78, Round(static_cast<std::uint64_t>(round)), members, one.size);
      ++counts[{groups.begin(), groups.end()}];
    }
    REQUIRE(counts.size() == one.partitions);
    const double expected = kRounds / static_cast<double>(one.partitions);
    double chi_squared = 0;
    for (const auto& [partition, count] : counts) {
      chi_squared += (count - expected) * (count - expected) / expected;
    }
    CHECK(chi_squared < one.chi_squared);
  }
}

TEST_CASE("pairing: consecutive rounds are independent", "[pairing]") {
  // Of four islands, a meets the partner of the round before again in a third of all rounds.
  const std::vector<IslandId> members = islands(4);
  int again = 0;
  constexpr int kRounds = 9'000;
  std::vector<IslandId> before;
  for (int round = 1; round <= kRounds; ++round) {
    const auto group = group_of(members[0], 5, Round(static_cast<std::uint64_t>(round)), members);
    again += group == before ? 1 : 0;
    before = group;
  }
  CHECK(again == Approx(kRounds / 3.0).margin(5 * 44.7));  // five standard deviations, sqrt(9000·2/9)
}

TEST_CASE("pairing: nobody sits out twice before everybody has once", "[pairing]") {
  for (const std::size_t count : {std::size_t{3}, std::size_t{5}, std::size_t{9}}) {
    const std::vector<IslandId> members = islands(count);
    std::vector<IslandId> out;
    for (std::uint64_t round = 1; round <= 10 * count; ++round) {
      for (const auto& group : pairing(3, Round(round), members)) {
        if (group.size() == 1) {
          out.push_back(group.front());
        }
      }
    }
    REQUIRE(out.size() == 10 * count);
    for (std::size_t start = 0; start + count <= out.size(); ++start) {  // any window of as many rounds as members
      const auto first = out.begin() + static_cast<std::ptrdiff_t>(start);
      REQUIRE(std::set<IslandId>(first, first + static_cast<std::ptrdiff_t>(count)).size() == count);
    }
  }
  // The islands do not sit out in the order of their names: it depends on the seed.
  std::set<std::vector<IslandId>> orders;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    std::vector<IslandId> order;
    for (std::uint64_t round = 5; round < 10; ++round) {
      for (const auto& group : pairing(seed, Round(round), islands(5))) {
        if (group.size() == 1) {
          order.push_back(group.front());
        }
      }
    }
    orders.insert(order);
  }
  CHECK(orders.size() > 10);
}

TEST_CASE("pairing: in larger groups the left-over ones rotate just as fairly", "[pairing]") {
  struct Case {
    std::size_t islands;
    std::uint32_t size;
    std::size_t left_over;
  };
  for (const Case& one : {Case{5, 3, 2}, Case{7, 3, 1}, Case{7, 4, 3}, Case{6, 4, 2}}) {
    CAPTURE(one.islands, one.size);
    const std::vector<IslandId> members = islands(one.islands);
    std::map<IslandId, std::size_t> out;
    for (std::uint64_t round = 1; round <= 10 * one.islands; ++round) {
      for (const auto& group : pairing(3, Round(round), members, one.size)) {
        if (group.size() == 1) {
          ++out[group.front()];
        }
      }
      for (const IslandId& member : members) {  // nobody is ahead of another by more than one round
        for (const IslandId& other : members) {
          REQUIRE(out[member] <= out[other] + 1);
        }
      }
    }
    for (const IslandId& member : members) {
      CHECK(out[member] == 10 * one.left_over);
    }
  }
}

TEST_CASE("pairing: where several sit out, any two islands meet and sit out together equally often", "[pairing]") {
  struct Case {
    std::size_t islands;
    std::uint32_t size;
    double chi_squared;  // of as many degrees of freedom as there are couples, less one: below it with probability 0.999
  };
  for (const Case& one : {Case{7, 4, 45.3}, Case{11, 4, 91.9}, Case{7, 5, 45.3}, Case{15, 8, 154.3}}) {
    CAPTURE(one.islands, one.size);
    const std::vector<IslandId> members = islands(one.islands);
    const double couples = static_cast<double>(one.islands * (one.islands - 1)) / 2;
    std::map<std::pair<IslandId, IslandId>, int> met;
    std::map<std::pair<IslandId, IslandId>, int> both_out;
    const auto count = [](const std::vector<IslandId>& together, auto& counts) {
      for (std::size_t i = 0; i < together.size(); ++i) {
        for (std::size_t j = i + 1; j < together.size(); ++j) {
          ++counts[std::minmax(together[i], together[j])];
        }
      }
    };
    constexpr int kRounds = 1'000;
    for (int round = 1; round <= kRounds; ++round) {
      std::vector<IslandId> out;
      for (const auto& group : pairing(79, Round(static_cast<std::uint64_t>(round)), members, one.size)) {
        if (group.size() == 1) {
          out.push_back(group.front());
        } else {
          count(group, met);
        }
      }
      REQUIRE(std::set<IslandId>(out.begin(), out.end()).size() == one.islands % one.size);
      count(out, both_out);
    }
    const auto distance = [&](const auto& counts, double expected) {
      double sum = (couples - static_cast<double>(counts.size())) * expected;
      for (const auto& [couple, times] : counts) {
        sum += (times - expected) * (times - expected) / expected;
      }
      return sum;
    };
    const auto sit = static_cast<double>(one.islands % one.size);
    const double groups = static_cast<double>(one.islands / one.size);
    CHECK(distance(met, kRounds * groups * one.size * (one.size - 1) / 2 / couples) < one.chi_squared);
    CHECK(distance(both_out, kRounds * sit * (sit - 1) / 2 / couples) < one.chi_squared);
  }
}

TEST_CASE("pairing: where several sit out, each lap has everybody once", "[pairing]") {
  for (const auto& [count, size] : {std::pair<std::size_t, std::uint32_t>{7, 4}, {11, 4}, {7, 5}, {15, 8}, {8, 3}}) {
    CAPTURE(count, size);
    const std::vector<IslandId> members = islands(count);
    std::vector<IslandId> out;
    for (std::uint64_t round = 1; round <= 40 * count; ++round) {
      for (const auto& group : pairing(80, Round(round), members, size)) {
        if (group.size() == 1) {
          out.push_back(group.front());
        }
      }
    }
    for (std::size_t lap = 0; (lap + 1) * count <= out.size(); ++lap) {
      const auto first = out.begin() + static_cast<std::ptrdiff_t>(lap * count);
      REQUIRE(std::set<IslandId>(first, first + static_cast<std::ptrdiff_t>(count)).size() == count);
    }
  }
}

}  // namespace of_pairing_test
