// Pairings: a function of seed, round and members; uniform, independent and fair.
#include "strategies/pairing.hpp"

#include <algorithm>
#include <iterator>
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

// ---- paths that are avoided

namespace {

std::size_t place_of(const std::vector<IslandId>& members, const IslandId& id) {
  return static_cast<std::size_t>(std::find(members.begin(), members.end(), id) - members.begin());
}

// Whether all of these places, or all but one of an odd number, can be paired without an avoided couple: by trying everything.
bool has_pairs(const std::vector<std::size_t>& left, const PlaceCouples& avoided) {
  if (left.size() < 2) {
    return true;
  }
  const auto without = [&](std::size_t a, std::size_t b) {
    std::vector<std::size_t> rest;
    std::copy_if(left.begin(), left.end(), std::back_inserter(rest), [&](std::size_t each) { return each != a && each != b; });
    return rest;
  };
  for (std::size_t i = 1; i < left.size(); ++i) {
    if (!contains(avoided, left[0], left[i]) && has_pairs(without(left[0], left[i]), avoided)) {
      return true;
    }
  }
  return left.size() % 2 == 1 && has_pairs(without(left[0], left[0]), avoided);
}

}  // namespace

TEST_CASE("pairing: without a path to avoid, or with one between places that there are not, nothing is other than it was", "[pairing]") {
  for (const std::size_t count : {2U, 5U, 8U}) {
    const std::vector<IslandId> members = islands(count);
    for (std::uint64_t round = 1; round <= 50; ++round) {
      CHECK(pairing(4, Round(round), members, 2, {}) == pairing(4, Round(round), members));
      CHECK(pairing(4, Round(round), members, 2, {{90, 91}}) == pairing(4, Round(round), members));
    }
  }
}

TEST_CASE("pairing: everybody has a partner over a path that is not avoided wherever that can be, of up to six members", "[pairing]") {
  for (const std::size_t count : {2U, 3U, 4U, 5U, 6U}) {
    const std::vector<IslandId> members = islands(count);
    std::vector<std::pair<std::uint32_t, std::uint32_t>> couples;
    std::vector<std::size_t> all;
    for (std::uint32_t b = 0; b < count; ++b) {
      all.push_back(b);
      for (std::uint32_t a = 0; a < b; ++a) {
        couples.emplace_back(a, b);
      }
    }
    for (std::size_t chosen = 0; chosen < std::size_t{1} << couples.size(); ++chosen) {
      PlaceCouples avoided;
      for (std::size_t i = 0; i < couples.size(); ++i) {
        if ((chosen >> i & 1U) != 0) {
          avoided.push_back(couples[i]);
        }
      }
      std::sort(avoided.begin(), avoided.end());
      const bool can_be = has_pairs(all, avoided);
      const Round round(1 + chosen % 7);
      std::set<IslandId> seen;
      std::size_t over_avoided = 0;
      const auto groups = pairing(9, round, members, 2, avoided);
      for (const std::vector<IslandId>& group : groups) {
        seen.insert(group.begin(), group.end());
        over_avoided += group.size() == 2 && contains(avoided, place_of(members, group[0]), place_of(members, group[1])) ? 1U : 0U;
      }
      REQUIRE(seen.size() == count);
      REQUIRE(groups.size() == (count + 1) / 2);
      REQUIRE((over_avoided == 0) == can_be);
      if (chosen % 64 == 0) {
        for (const std::vector<IslandId>& group : groups) {
          for (const IslandId& member : group) {
            REQUIRE(group_of(member, 9, round, members, 2, avoided) == group);
          }
        }
      }
    }
  }
}

TEST_CASE("pairing: around avoided paths every matching that is left is equally likely", "[pairing]") {
  struct Case {
    std::size_t islands;
    PlaceCouples avoided;
    std::size_t matchings;
    double chi_squared;  // of one degree of freedom less: below it with probability 0.999
  };
  // Of four 2 of 3 matchings are left; of six 12 of 15; of the complete bipartite graph of 4 and 4 there are 4! = 24.
  PlaceCouples within;
  for (std::uint32_t a = 0; a < 8; ++a) {
    for (std::uint32_t b = a + 1; b < 8; ++b) {
      if (a / 4 == b / 4) {
        within.emplace_back(a, b);
      }
    }
  }
  for (const Case& one : {Case{4, {{0, 1}}, 2, 10.9}, Case{6, {{2, 5}}, 12, 31.3}, Case{8, within, 24, 49.8}}) {
    CAPTURE(one.islands);
    const std::vector<IslandId> members = islands(one.islands);
    std::map<std::set<std::vector<IslandId>>, int> counts;
    constexpr int kRounds = 12'000;
    for (int round = 1; round <= kRounds; ++round) {
      const auto groups = pairing(81, Round(static_cast<std::uint64_t>(round)), members, 2, one.avoided);
      ++counts[{groups.begin(), groups.end()}];
    }
    REQUIRE(counts.size() == one.matchings);
    const double expected = kRounds / static_cast<double>(one.matchings);
    double chi_squared = 0;
    for (const auto& [matching, count] : counts) {
      chi_squared += (count - expected) * (count - expected) / expected;
    }
    CHECK(chi_squared < one.chi_squared);
  }
}

TEST_CASE("pairing: of three whose first two do without their path the third meets both equally often, and groups avoid a path, too",
          "[pairing]") {
  const std::vector<IslandId> three = islands(3);
  std::map<std::vector<IslandId>, int> met;
  for (std::uint64_t round = 1; round <= 3000; ++round) {
    for (const auto& group : pairing(5, Round(round), three, 2, {{0, 1}})) {
      met[group] += group.size() == 2 ? 1 : 0;
    }
  }
  CHECK(met[{three[0], three[1]}] == 0);
  CHECK(met[{three[0], three[2]}] == Approx(1500).margin(80));
  CHECK(met[{three[1], three[2]}] == Approx(1500).margin(80));
  const std::vector<IslandId> seven = islands(7);
  for (std::uint64_t round = 1; round <= 500; ++round) {
    for (const auto& group : pairing(5, Round(round), seven, 3, {{0, 1}, {2, 6}})) {
      const auto has = [&](std::size_t place) { return std::find(group.begin(), group.end(), seven[place]) != group.end(); };
      CHECK_FALSE((has(0) && has(1)));
      CHECK_FALSE((has(2) && has(6)));
    }
  }
}

// As many members as there are at most, with as many paths to avoid: milliseconds, and nobody meets over one.
TEST_CASE("pairing: a hundred members go around five hundred paths", "[pairing]") {
  const std::vector<IslandId> members = [] {
    std::vector<IslandId> ids;
    for (std::size_t i = 0; i < 100; ++i) {
      ids.emplace_back("i" + std::to_string(i));
    }
    return ids;
  }();
  PlaceCouples avoided;
  for (std::uint32_t i = 0; i < 100; ++i) {
    for (std::uint32_t step = 1; step <= 5; ++step) {
      avoided.emplace_back(std::min(i, (i + 7 * step) % 100), std::max(i, (i + 7 * step) % 100));
    }
  }
  std::sort(avoided.begin(), avoided.end());
  for (std::uint64_t round = 1; round <= 100; ++round) {
    for (const auto& group : pairing(6, Round(round), members, 2, avoided)) {
      REQUIRE(group.size() == 2);
      REQUIRE_FALSE(contains(avoided, place_of(members, group[0]), place_of(members, group[1])));
    }
  }
}

}  // namespace of_pairing_test
