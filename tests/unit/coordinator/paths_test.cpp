// Between whom data pass, as the coordinator remembers it, and who sums then.
#include "coordinator/core/paths.hpp"

#include <algorithm>

#include "tests/catch.hpp"

namespace of_coordinator_paths_test {

using namespace atl;
using namespace atl::coordinator;
using namespace std::chrono_literals;

namespace {

const TimePoint kStart = from_unix_ms(1'700'000'000'000);
const IslandId a("a");
const IslandId b("b");
const IslandId c("c");

}  // namespace

TEST_CASE("a path that breaks again and again is used again later each time") {
  Paths paths;
  TimePoint at = kStart;
  CHECK(paths.usable(a, b, at));
  std::vector<Duration> away;
  for (int time = 0; time < 4; ++time) {
    CHECK(paths.broken(a, b, "nothing came", at));
    CHECK_FALSE(paths.broken(a, b, "nothing came", at + 1s));
    CHECK_FALSE(paths.usable(b, a, at + 1s));
    CHECK(paths.why_not(a, b, at + 1s) == "nothing came");
    CHECK(paths.usable(a, c, at + 1s));
    CHECK_FALSE(paths.usable(a, b, at + 2s, true));
    CHECK(paths.whole(a, b, at + 2s));
    CHECK(paths.usable(a, b, at + 2s, true));  // who cannot do without it does not wait
    const TimePoint back = paths.next_change(at + 2s).value();
    CHECK_FALSE(paths.usable(a, b, back - 1ms));
    CHECK(paths.usable(a, b, back));
    away.push_back(back - at);
    at = back + 1min;
  }
  CHECK(away == std::vector<Duration>{5s, 10s, 20s, 40s});
  paths.broken(a, b, "nothing came", at);
  CHECK(paths.usable(a, b, at + 1h));  // without news it gets another chance
  paths.broken(a, b, "nothing came", at + 4h);
  CHECK(paths.whole(a, b, at + 4h));
  CHECK(paths.next_change(at + 4h) == at + 4h + 5s);  // a good while makes it new
}

TEST_CASE("what was found of an island that was lost is forgiven") {
  Paths paths;
  paths.broken(a, b, "nothing came", kStart);
  paths.broken(c, a, "nothing came", kStart);
  paths.forgive(b, kStart + 1s);
  CHECK(paths.usable(a, b, kStart + 1s));
  CHECK_FALSE(paths.usable(a, c, kStart + 1s));
  CHECK(paths.any(kStart + 1s));
  CHECK_FALSE(paths.whole(a, b, kStart + 1s));
}

TEST_CASE("decide_detour: every graph of up to five islands: nobody sums who misses somebody, and few are left out") {
  for (std::size_t count = 1; count <= 5; ++count) {
    std::vector<IslandId> members;
    std::vector<std::pair<IslandId, IslandId>> pairs;
    for (std::size_t i = 0; i < count; ++i) {
      members.emplace_back("i" + std::to_string(i));
      for (std::size_t j = 0; j < i; ++j) {
        pairs.emplace_back(members[j], members[i]);
      }
    }
    for (std::uint32_t world = 0; world < (1U << (pairs.size() + count)); ++world) {
      const std::uint32_t graph = world & ((1U << pairs.size()) - 1);
      DetourInput input{members, {}};
      for (std::size_t i = 0; i < count; ++i) {
        if ((world >> (pairs.size() + i) & 1U) != 0) {
          input.suspected.insert(members[i]);
        }
      }
      for (std::size_t i = 0; i < pairs.size(); ++i) {
        if ((graph >> i & 1U) != 0) {
          input.apart.insert(pairs[i]);
        }
      }
      const DetourDecision decision = decide_detour(input);
      CAPTURE(count, graph, input.suspected.size());
      std::vector<IslandId> staying;
      std::ranges::copy_if(members, std::back_inserter(staying),
                           [&](const IslandId& island) { return std::ranges::find(decision.left_out, island) == decision.left_out.end(); });
      REQUIRE(staying.size() >= std::min<std::size_t>(count, 2));
      const auto misses = [&](const IslandId& island) {
        return std::ranges::count_if(staying, [&](const IslandId& other) { return input.apart.contains(std::minmax(island, other)); });
      };
      if (graph == 0) {
        CHECK(decision.left_out.empty());
      }
      if (decision.shares.empty()) {
        CHECK((staying.size() == 2 || std::ranges::none_of(staying, [&](const IslandId& island) { return misses(island) > 0; })));
        continue;
      }
      REQUIRE(decision.shares.size() == staying.size());
      CHECK(std::ranges::count(decision.shares, 1) > 0);
      for (std::size_t i = 0; i < staying.size(); ++i) {
        CHECK((decision.shares[i] == 1) == (misses(staying[i]) == 0));
        CHECK(misses(staying[i]) * 2 <= static_cast<std::ptrdiff_t>(staying.size() - 1));
      }
    }
  }
  // One that reaches nobody goes; two that miss each other stay.
  CHECK(decide_detour({{a, b, c}, {{a, c}, {b, c}}}).left_out == std::vector<IslandId>{c});
  CHECK(decide_detour({{a, b, c}, {{a, b}}}).shares == std::vector<std::uint8_t>{0, 0, 1});
  // Where all are apart those go whose own links were away.
  CHECK(decide_detour({{a, b, c}, {{a, b}, {a, c}, {b, c}}}).left_out == std::vector<IslandId>{c});
  CHECK(decide_detour({{a, b, c}, {{a, b}, {a, c}, {b, c}}, {a, b}}).left_out == std::vector<IslandId>{b});
  CHECK(decide_detour({{a, b, c}, {{a, c}, {b, c}}, {a, b}}).left_out == std::vector<IslandId>{c});
}

}  // namespace of_coordinator_paths_test
