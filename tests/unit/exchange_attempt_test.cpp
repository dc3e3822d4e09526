// The exchange over the simulated network: the same bytes on every island, whatever the network does.
#include "transport/bulk/exchange_attempt.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/exchange_cluster.hpp"

namespace of_exchange_attempt_test {

using namespace atl_test;

TEST_CASE("every subset of up to four contributors, sizes around the granules, gives the direct computation") {
  for (std::size_t members = 1; members <= 4; ++members) {
    for (std::uint32_t subset = 1; subset < (1U << members); ++subset) {
      for (const std::size_t elements : {1, 15, 16, 17, 48, 100, 1000}) {
        Case what;
        what.elements = elements;
        for (std::size_t i = 0; i < members; ++i) {
          what.weights.push_back((subset >> i & 1U) != 0 ? i + 1 : 0);
        }
        CAPTURE(members, subset, elements);
        Cluster cluster(subset, what, PathConditions{});
        REQUIRE(cluster.run(60s));
        cluster.check_equal();
      }
    }
  }
}

TEST_CASE("one to six members under loss, replay, duplication, delay and late beginners end with the same bytes") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Rng rng(seed);
    Case what;
    const std::size_t members = 1 + rng.below(6);
    what.elements = 1 + rng.below(3000);
    what.piece_elements = 16 * (1 + rng.below(8));
    what.late = 5s;
    what.reduce_window = 1 + rng.below(4096);
    what.packed = seed % 2 == 0;
    what.budget = seed % 3 == 0 ? 1 + rng.below(20'000) : 0;
    for (std::size_t i = 0; i < members; ++i) {
      what.weights.push_back(i == 0 ? 1 : rng.below(4));
    }
    CAPTURE(seed, members, what.elements, what.packed);
    Cluster cluster(seed, what, hostile(rng));
    REQUIRE(cluster.run(3600s));
    cluster.check_equal();
  }
}

TEST_CASE("a quiet network carries exactly the bytes of the cost formula") {
  for (std::size_t members = 1; members <= 6; ++members) {
    Case what;
    what.elements = 16 * 60 * members;
    what.weights.assign(members, 1);
    Cluster cluster(members, what, PathConditions{});
    REQUIRE(cluster.run(60s));
    const std::uint64_t whole = what.elements * 4;
    const std::uint64_t formula = members == 2 ? whole : 2 * (members - 1) * whole / members;
    for (const auto& island : cluster.islands()) {
      const ExchangeProgress progress = island->exchange->progress();
      CHECK(progress.bytes_received == formula);
      CHECK(progress.bytes_to_receive == formula);
      CHECK(island->store->bytes_served(RunId("r")) == formula);
    }
  }
}

TEST_CASE("contributions from afar are read ahead as far as their path holds, and no further than the budget") {
  constexpr std::size_t kElements = 12'000'000;  // shards of 16 MB
  PathConditions far;
  far.latency = 200ms;
  far.bytes_per_second = 100e6;
  const auto second_attempt = [&](std::uint64_t budget) {
    Case what;
    what.elements = kElements;
    what.piece_elements = 1 << 16;
    what.weights = {1, 1, 1};
    what.budget = budget;
    Cluster cluster(3, what, far);
    REQUIRE(cluster.run(60s));
    const TimePoint start = cluster.network().now();
    for (const auto& island : cluster.islands()) {
      cluster.begin(*island, Attempt(2));
    }
    REQUIRE(cluster.run(60s));
    cluster.check_equal();
    return seconds(cluster.network().now() - start);
  };
  const double fixed = second_attempt(0);  // 8 MiB of each contributor ahead
  const double follows = second_attempt(256 << 20);
  const double tight = second_attempt(8 << 20);  // 4 MiB
  // Each path carries two shards, one after the other: 0.32 s, and two round trips less what overlaps.
  CHECK(follows < 0.32 + 0.85);
  CHECK(follows < fixed - 0.3);
  CHECK(tight > fixed);
}

TEST_CASE("a slow start of one side is waited for: its wants are parked, nothing is sent twice") {
  Case what;
  what.weights = {1, 1, 1};
  Cluster cluster(7, what, PathConditions{});
  cluster.islands()[2]->begins = cluster.network().now() + 1500ms;
  REQUIRE(cluster.run(60s));
  cluster.check_equal();
  for (const auto& island : cluster.islands()) {
    CHECK(island->exchange->progress().bytes_received == island->exchange->progress().bytes_to_receive);
    CHECK(island->store->parked() == 0);
  }
}

TEST_CASE("two islands that are cut from each other end with the same bytes where only others own shards") {
  for (const std::size_t members : {3, 4, 5}) {
    for (std::size_t a = 0; a < members; ++a) {
      for (std::size_t b = a + 1; b < members; ++b) {
        Case what;
        what.weights.assign(members, 2);
        what.shares.assign(members, 1);
        what.shares[a] = 0;
        what.shares[b] = 0;
        CAPTURE(members, a, b);
        Cluster cluster(7, what, PathConditions{});
        const std::string one = "i" + std::to_string(a);
        const std::string other = "i" + std::to_string(b);
        cluster.network().cut(one, other);
        cluster.network().cut(other, one);
        REQUIRE(cluster.run(60s));
        cluster.check_equal();
        what.shares.clear();
        Cluster stuck(7, what, PathConditions{});
        stuck.network().cut(one, other);
        stuck.network().cut(other, one);
        REQUIRE_FALSE(stuck.run(60s));
        for (std::size_t i = 0; i < members; ++i) {
          for (const Stall& stall : stuck.islands()[i]->exchange->stalled(stuck.network().now(), 20s)) {
            if (stall.contribution) {  // only the two miss each other's; the rest waits for what they sum
              CHECK(((i == a && stall.accused.text == other) || (i == b && stall.accused.text == one)));
            }
          }
        }
      }
    }
  }
}

TEST_CASE("who does not deliver is named") {
  Case what;
  what.weights = {1, 1, 1};
  Cluster cluster(3, what, PathConditions{});
  for (const char* other : {"i0", "i2"}) {
    cluster.network().cut("i1", other);
    cluster.network().cut(other, "i1");
  }
  CHECK_FALSE(cluster.run(20s));
  const std::vector<Stall> stalls = cluster.islands()[0]->exchange->stalled(cluster.network().now(), 10s);
  REQUIRE_FALSE(stalls.empty());
  CHECK(stalls.front().accused == IslandId("i1"));
  CHECK(stalls.front().why.find("contribution") != std::string::npos);
  cluster.network().heal_all();
  REQUIRE(cluster.run(60s));
  cluster.check_equal();
}

TEST_CASE("the next attempt works from the retained contributions, and the earlier one is refused") {
  Case what;
  what.weights = {2, 1, 1, 3};
  Cluster cluster(11, what, PathConditions{});
  REQUIRE_FALSE(cluster.run(30ms));
  for (const auto& island : cluster.islands()) {
    cluster.begin(*island, Attempt(2));
  }
  REQUIRE(cluster.run(60s));
  cluster.check_equal();
  Want old{BlobId{RunId("r"), Epoch(1), Round(1), Attempt(1), BlobKind::contribution, 0}, 0, 64};
  const StoreAnswer answer = cluster.islands()[0]->store->answer(IslandId("i1"), old);
  REQUIRE(std::holds_alternative<Gone>(answer));
}

TEST_CASE("a refusal, a foreign size and an unusable contribution accuse their sender") {
  const auto plan = [] {
    return ExchangePlan{
        RunId("r"),          Epoch(1), Round(1), Attempt(1), {IslandId("a"), IslandId("b"), IslandId("c")}, {1, 1, 1}, IslandId("a"),
        layout_of(96, 3, 16)};
  };
  const BlobId blob{RunId("r"), Epoch(1), Round(1), Attempt(1), BlobKind::contribution, 0};
  const std::vector<float> values(96, 1.0F);
  const TimePoint now = from_unix_ms(0);
  BlobStore store;
  {
    auto exchange = ExchangeAttempt::begin(plan(), payload_of(values), reduce_floats, store, now).value();
    exchange->gone(now, IslandId("c"), Gone{blob, Code::not_found, "over"});
    REQUIRE(exchange->failure());
    CHECK(exchange->failure()->accused == IslandId("c"));
    CHECK(exchange->take_wants(now).empty());
  }
  {
    auto exchange = ExchangeAttempt::begin(plan(), payload_of(values), reduce_floats, store, now).value();
    CHECK(exchange->destination(IslandId("b"), BlobPiece{blob, 0, 400, 64}).empty());
    REQUIRE(exchange->failure());
    CHECK(exchange->failure()->accused == IslandId("b"));
    CHECK(exchange->failure()->error.code == Code::corrupt);
  }
  {
    const auto refuse = [](const ReducePiece&) { return std::optional(ReduceFailure{2, Error{Code::corrupt, "not finite"}}); };
    auto exchange = ExchangeAttempt::begin(plan(), payload_of(values), refuse, store, now).value();
    const BlobPiece piece{blob, 0, 384, 64};
    CHECK(exchange->destination(IslandId("b"), piece).empty());  // nobody asked for it: it costs no memory
    CHECK(exchange->take_wants(now).size() == 8);
    for (const char* peer : {"b", "c"}) {
      REQUIRE(exchange->destination(IslandId(peer), piece).size() == 64);
      exchange->arrived(now, IslandId(peer), piece);
    }
    CHECK_FALSE(exchange->reduce_one());
    REQUIRE(exchange->failure());
    CHECK(exchange->failure()->accused == IslandId("c"));
  }
}

TEST_CASE("pieces of another epoch, round, attempt or sender find no place") {
  ExchangePlan plan{RunId("r"),          Epoch(4), Round(5), Attempt(6), {IslandId("a"), IslandId("b")}, {1, 1}, IslandId("a"),
                    layout_of(64, 2, 64)};
  BlobStore store;
  auto exchange = ExchangeAttempt::begin(plan, payload_of(std::vector<float>(64)), reduce_floats, store, from_unix_ms(0)).value();
  const BlobPiece good{BlobId{RunId("r"), Epoch(4), Round(5), Attempt(6), BlobKind::contribution, 0}, 0, 256, 128};
  CHECK(exchange->destination(IslandId("b"), good).size() == 128);
  CHECK(exchange->destination(IslandId("c"), good).empty());
  for (int field = 0; field < 6; ++field) {
    BlobPiece piece = good;
    BlobId& blob = piece.blob;
    field == 0   ? blob.epoch.value = 3
    : field == 1 ? blob.round.value = 4
    : field == 2 ? blob.attempt.value = 5
    : field == 3 ? piece.offset = 64
    : field == 4 ? piece.length = 127
                 : blob.part = 1;
    CHECK(exchange->destination(IslandId("b"), piece).empty());
  }
  exchange->arrived(from_unix_ms(0), IslandId("b"), good);
  CHECK(exchange->destination(IslandId("b"), good).empty());
  CHECK_FALSE(exchange->failure());
}

TEST_CASE("plans that cannot be are refused") {
  const ExchangePlan good{RunId("r"),          Epoch(1), Round(1), Attempt(1), {IslandId("a"), IslandId("b")}, {1, 1}, IslandId("a"),
                          layout_of(64, 2, 64)};
  const Payload own = payload_of(std::vector<float>(64));
  const auto refused = [&](auto change) {
    ExchangePlan plan = good;
    change(plan);
    BlobStore store;
    auto begun = ExchangeAttempt::begin(plan, own, reduce_floats, store, from_unix_ms(0));
    return !begun && begun.error().code == Code::invalid_argument;
  };
  CHECK_FALSE(refused([](ExchangePlan&) {}));
  CHECK(refused([](ExchangePlan& plan) { plan.self = IslandId("z"); }));
  CHECK(refused([](ExchangePlan& plan) { plan.members[1] = IslandId("a"); }));
  CHECK(refused([](ExchangePlan& plan) { plan.weights = {1}; }));
  CHECK(refused([](ExchangePlan& plan) { plan.run = RunId(std::string(65, 'x')); }));
  CHECK(refused([](ExchangePlan& plan) { plan.layout.shards.back() = 7; }));
  CHECK(refused([](ExchangePlan& plan) { plan.layout.contribution.back() += 4; }));
  CHECK(refused([](ExchangePlan& plan) { plan.layout = ExchangeLayout{}; }));
}

TEST_CASE("an exchange to which nobody contributes is done at once, and its result has no parts") {
  for (const std::size_t members : {1, 2, 3, 5}) {
    ExchangePlan plan{RunId("r"), Epoch(1), Round(1), Attempt(1), {}, std::vector<std::uint64_t>(members), IslandId("a"), {}};
    for (std::size_t i = 0; i < members; ++i) {
      plan.members.emplace_back(std::string(1, static_cast<char>('a' + i)));
    }
    plan.layout = layout_of(64, members, 64);
    CHECK(bytes_others_read(plan, 0) == 0);
    BlobStore store;
    const auto begun = ExchangeAttempt::begin(std::move(plan), {}, reduce_floats, store, from_unix_ms(0));
    REQUIRE(begun);
    REQUIRE((*begun)->done());
    CHECK((*begun)->result().gathered);
    CHECK((*begun)->result().parts.empty());
  }
}

TEST_CASE("the cut covers every element once, in granules, with shards within one granule of each other") {
  const auto bytes = [](std::uint64_t count) { return count; };
  for (std::uint64_t elements = 1; elements < 400; elements += 7) {
    for (std::size_t members = 1; members <= 6; ++members) {
      const ExchangeLayout layout = cut_pieces(elements, members, 16, bytes, bytes, 40);
      CAPTURE(elements, members);
      REQUIRE(layout.shards.size() == members + 1);
      CHECK(layout.elements.front() == 0);
      CHECK(layout.elements.back() == elements);
      std::uint64_t least = UINT64_MAX;
      std::uint64_t most = 0;
      for (std::size_t j = 0; j < members; ++j) {
        const std::uint64_t granules = (layout.elements[layout.shards[j + 1]] + 15) / 16 - layout.elements[layout.shards[j]] / 16;
        const std::uint64_t counted = layout.shards[j] == layout.shards[j + 1] ? 0 : granules;
        least = std::min(least, counted);
        most = std::max(most, counted);
      }
      CHECK(most - least <= 1);
      for (std::size_t piece = 0; piece < layout.pieces(); ++piece) {
        CHECK(layout.elements[piece] % 16 == 0);
        CHECK(layout.elements[piece + 1] > layout.elements[piece]);
        CHECK(layout.elements[piece + 1] - layout.elements[piece] <= 32);
      }
    }
  }
}

TEST_CASE("of all members the one that got its last contribution last names the slow link, whoever sums what") {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Rng rng(seed);
    const std::size_t members = 2 + rng.below(4);
    const std::size_t thin = rng.below(members);
    Case what;
    what.elements = 3000 + rng.below(3000);
    what.weights.assign(members, 1);
    PathConditions near;
    near.latency = 1ms;
    near.bytes_per_second = 1e6;
    Cluster cluster(seed, what, near);
    PathConditions slow = near;
    slow.bytes_per_second = 5e3;
    for (const auto& island : cluster.islands()) {
      if (island->id != cluster.islands()[thin]->id) {
        cluster.network().set_path(cluster.islands()[thin]->id.text, island->id.text, slow);
      }
    }
    CAPTURE(seed, members, thin);
    REQUIRE(cluster.run(60s));
    const auto last =
        std::ranges::max_element(cluster.islands(), {}, [](const auto& island) { return island->exchange->progress().slowest_at; });
    CHECK((*last)->exchange->progress().slowest == cluster.islands()[thin]->id);
  }
}

}  // namespace of_exchange_attempt_test
