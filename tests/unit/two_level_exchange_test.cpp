// The exchange on two levels: the same bytes on every island from few peers, and no more bytes than on one level.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "strategies/diloco.hpp"
#include "tests/catch.hpp"
#include "tests/unit/exchange_cluster.hpp"

namespace of_two_level_exchange_test {

using namespace atl_test;

namespace {

Case everybody(std::size_t members, std::size_t elements) {
  Case what;
  what.elements = elements;
  what.weights.assign(members, 1);
  return what;
}

}  // namespace

TEST_CASE("two levels: 33 to 70 members end with the same bytes") {
  for (std::size_t members = 33; members <= 70; ++members) {
    Rng rng(members);
    Case what;
    what.elements = 1 + rng.below(5000);
    what.late = 2s;
    for (std::size_t i = 0; i < members; ++i) {
      what.weights.push_back(rng.below(3));
    }
    what.weights[rng.below(members)] = 1;
    CAPTURE(members, what.elements);
    Cluster cluster(members, what, PathConditions{});
    REQUIRE(cluster.grid());
    REQUIRE(cluster.run(60s));
    cluster.check_equal();
  }
}

TEST_CASE("two levels: four to twenty members under loss, replay, duplication, delay and late beginners end with the same bytes") {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    Rng rng(seed);
    Case what;
    const std::size_t members = 4 + rng.below(17);
    what.one_level = 3;
    what.elements = 1 + rng.below(6000);
    what.piece_elements = 16 * (1 + rng.below(8));
    what.late = 5s;
    what.reduce_window = 1 + rng.below(4096);
    what.packed = seed % 2 == 0;
    what.budget = seed % 3 == 0 ? 1 + rng.below(20'000) : 0;
    for (std::size_t i = 0; i < members; ++i) {
      what.weights.push_back(i == 0 ? 1 : rng.below(4));
      what.shares.push_back(i < members / 2 || rng.chance(0.8) ? 1 : 0);
    }
    CAPTURE(seed, members, what.elements, what.packed);
    Cluster cluster(seed, what, hostile(rng));
    REQUIRE(cluster.grid());
    REQUIRE(cluster.run(3600s));
    cluster.check_equal();
  }
}

TEST_CASE("two levels: every subset of six contributors gives the same bytes") {
  for (std::uint32_t subset = 1; subset < 1U << 6; ++subset) {
    for (const std::size_t elements : {1, 16, 17, 100, 1000}) {
      Case what;
      what.one_level = 3;
      what.elements = elements;
      for (std::size_t i = 0; i < 6; ++i) {
        what.weights.push_back((subset >> i & 1U) != 0 ? i + 1 : 0);
      }
      CAPTURE(subset, elements);
      Cluster cluster(subset, what, PathConditions{});
      REQUIRE(cluster.run(60s));
      cluster.check_equal();
    }
  }
}

TEST_CASE("two levels: a quiet network carries exactly the bytes of the cost formula, where the grid is full as many as one level") {
  for (const std::size_t members : {36, 42, 40, 47}) {
    const std::size_t elements = 16 * 2 * members * members;
    Cluster cluster(members, everybody(members, elements), PathConditions{});
    REQUIRE(cluster.run(60s));
    const ExchangeGrid& grid = *cluster.grid();
    std::uint64_t most = 0;
    for (std::size_t i = 0; i < members; ++i) {
      const auto& island = cluster.islands()[i];
      const ExchangeProgress progress = island->exchange->progress();
      CHECK(progress.bytes_received == progress.bytes_to_receive);
      CHECK(island->store->bytes_served(RunId("r")) == bytes_others_read(cluster.plan_of(island->id, Attempt(1)), i));
      most = std::max({most, progress.bytes_received, island->store->bytes_served(RunId("r"))});
    }
    const std::uint64_t one_level = 2 * (members - 1) * elements * 4 / members;
    CAPTURE(members, grid.groups, grid.columns, most, one_level);
    if (grid.groups * grid.columns == members) {
      CHECK(most == one_level);
    } else {
      CHECK(most > one_level);
      CHECK(static_cast<double>(most) < 1.25 * static_cast<double>(one_level));
    }
  }
}

TEST_CASE("two levels: what a plan says that others read from a member is what the cost formula says") {
  const CodecSettings fp4{CodecKind::fp4, 32, Rounding::nearest};
  const CodecSettings int8{CodecKind::int8, 48, Rounding::nearest};
  for (const std::size_t members : {33, 36, 50, 64, 70, 1024}) {
    for (const std::uint64_t values : {1ULL, 5'000ULL, 1'000'003ULL}) {
      ExchangePlan plan;
      plan.weights.assign(members, 1);
      plan.members.resize(members);
      plan.grid = cut_grid(members);
      plan.layout = cut_pieces(
          values, plan.grid->owners.size(), shard_granularity(fp4, int8), [&](std::uint64_t n) { return encoded_bytes(fp4, n); },
          [&](std::uint64_t n) { return encoded_bytes(int8, n); });
      CAPTURE(members, values);
      std::uint64_t most = 0;
      for (std::size_t i = 0; i<members; i += members> 100 ? 101 : 1) {
        const RoundCost cost = exchange_cost(values, static_cast<std::uint32_t>(members), static_cast<std::uint32_t>(i), fp4, int8).value();
        CHECK(cost.bytes == bytes_others_read(plan, i));
        most = std::max(most, cost.messages);
      }
      CHECK(most <= 2 * peers_in(*plan.grid, 0).size() + 2);
    }
  }
}

TEST_CASE("two levels: an island is accused of its contribution before anybody is of the sums that wait for it") {
  for (const std::size_t silent : {0, 7, 35}) {
    Cluster cluster(36, everybody(36, 5000), PathConditions{});
    for (const auto& island : cluster.islands()) {
      cluster.network().cut(cluster.islands()[silent]->id.text, island->id.text);
    }
    CHECK_FALSE(cluster.run(20s));
    std::size_t accusers = 0;
    for (std::size_t i = 0; i < 36; ++i) {
      if (i == silent) {
        continue;
      }
      const auto stalls = [&](Duration longer_than) {
        return cluster.islands()[i]->exchange->stalled(cluster.network().now(), longer_than);
      };
      for (const Stall& stall : stalls(15s)) {  // of sums only what has been missing for thirty is
        CHECK(stall.contribution);
        CHECK(stall.accused == cluster.islands()[silent]->id);
        ++accusers;
      }
      CHECK_FALSE(stalls(5s).empty());
    }
    CHECK(accusers == 5);
    cluster.network().heal_all();
    REQUIRE(cluster.run(60s));
    cluster.check_equal();
  }
}

TEST_CASE("two levels: the next attempt works from the retained contributions") {
  Cluster cluster(11, everybody(40, 3000), PathConditions{});
  REQUIRE_FALSE(cluster.run(50ms));
  for (const auto& island : cluster.islands()) {
    cluster.begin(*island, Attempt(2));
  }
  REQUIRE(cluster.run(60s));
  cluster.check_equal();
}

TEST_CASE("two levels: a group's sum that cannot be used accuses who sent it") {
  Case what = everybody(9, 160);
  what.one_level = 3;
  Cluster cluster(5, what, PathConditions{});
  const IslandId self = cluster.islands()[4]->id;
  const auto refuse = [](const ReducePiece& piece) -> std::optional<ReduceFailure> {
    if (piece.of == SumOf::groups) {
      return ReduceFailure{2, Error{Code::corrupt, "not finite"}};
    }
    return reduce_floats(piece);
  };
  auto& island = *cluster.islands()[4];
  island.exchange =
      ExchangeAttempt::begin(cluster.plan_of(self, Attempt(1)), cluster.own_payload(island), refuse, *island.store, cluster.network().now())
          .value();
  CHECK_FALSE(cluster.run(10s));
  REQUIRE(island.exchange->failure());
  CHECK(island.exchange->failure()->accused == cluster.islands()[cluster.grid()->owner(2, 1)]->id);
}

TEST_CASE("two levels: plans whose grid is of other members are refused") {
  Case what = everybody(9, 160);
  what.one_level = 3;
  Cluster cluster(5, what, PathConditions{});
  const auto refused = [&](auto change) {
    ExchangePlan plan = cluster.plan_of(cluster.islands()[0]->id, Attempt(1));
    change(plan);
    BlobStore store;
    return !ExchangeAttempt::begin(plan, cluster.own_payload(*cluster.islands()[0]), reduce_floats, store, from_unix_ms(0));
  };
  CHECK_FALSE(refused([](ExchangePlan&) {}));
  CHECK(refused([](ExchangePlan& plan) { plan.grid = cut_grid(16, {}, 3); }));
  CHECK(refused([](ExchangePlan& plan) { plan.grid.reset(), plan.members.pop_back(), plan.weights.pop_back(); }));
}

}  // namespace of_two_level_exchange_test
