// The exchange over the simulated network: the same bytes on every island, whatever the network does.
#include "transport/bulk/exchange_attempt.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "transport/base/rng.hpp"
#include "transport/simulated/simulated_network.hpp"

namespace {

using namespace atl;
using namespace std::chrono_literals;

constexpr std::uint64_t kGranule = 16;

std::vector<float> floats_of(std::uint64_t seed, std::size_t count) {
  Rng rng(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    value = static_cast<float>(rng.normal());
  }
  return values;
}

Payload payload_of(const std::vector<float>& values) {
  const auto copy = std::make_shared<std::vector<float>>(values);
  return Payload{std::as_bytes(std::span(*copy)), copy};
}

// sum of weight · contribution in member order, in float32.
void add_weighted(ByteView contribution, std::uint64_t weight, std::span<float> sum) {
  for (std::size_t i = 0; i < sum.size(); ++i) {
    float value = 0;
    std::memcpy(&value, contribution.data() + 4 * i, 4);
    sum[i] += static_cast<float>(weight) * value;
  }
}

std::optional<ReduceFailure> reduce_floats(const ReducePiece& task) {
  std::vector<float> sum(task.elements, 0.0F);
  for (std::size_t i = 0; i < task.contributions.size(); ++i) {
    add_weighted(task.contributions[i], task.weights[i], sum);
  }
  std::memcpy(task.reduced.data(), sum.data(), task.reduced.size());
  return std::nullopt;
}

ExchangeLayout layout_of(std::size_t elements, std::size_t members, std::uint64_t piece_elements,
                         std::span<const std::uint8_t> shares = {}) {
  const auto bytes = [](std::uint64_t count) { return count * 4; };
  return cut_pieces(elements, members, kGranule, bytes, bytes, piece_elements, shares);
}

struct Island {
  IslandId id;
  std::shared_ptr<BlobStore> store = std::make_shared<BlobStore>();
  std::unique_ptr<BulkLink> link;
  std::unique_ptr<ExchangeAttempt> exchange;
  TimePoint begins;  // hears of the exchange then
  std::shared_ptr<PathWindows> paths;
  std::shared_ptr<ReceiveBuffers> buffers = std::make_shared<ReceiveBuffers>();
};

struct Case {
  std::size_t elements = 1000;
  std::uint64_t piece_elements = 64;
  std::vector<std::uint64_t> weights;
  Duration late{};  // islands begin at random instants up to this
  std::uint64_t reduce_window = 0;
  std::vector<std::uint8_t> shares = {};
  bool packed = false;
  std::uint64_t budget = 0;  // of windows that follow the paths; 0: they are fixed
};

class Cluster {
 public:
  Cluster(std::uint64_t seed, const Case& what, const PathConditions& conditions) : what_(what), network_(seed) {
    network_.set_conditions(conditions);
    for (std::size_t i = 0; i < what.weights.size(); ++i) {
      ids_.emplace_back("i" + std::to_string(i));
      members_.push_back(Member{ids_.back(), "", "", ""});
      values_.push_back(floats_of(seed * 100 + i, what.elements));
    }
    Rng rng(seed, stream_of("begin"));
    for (const IslandId& id : ids_) {
      auto island = std::make_unique<Island>();
      island->id = id;
      island->begins = network_.now() + Duration(static_cast<Duration::rep>(rng.uniform() * static_cast<double>(what.late.count())));
      island->link = network_.bulk_link(id, island->store);
      island->paths = what.budget > 0 ? std::make_shared<PathWindows>(what.budget) : nullptr;
      islands_.push_back(std::move(island));
    }
    for (const auto& island : islands_) {
      REQUIRE(island->link->set_peers(members_));
      island->store->set_readers(RunId("r"), ids_);
    }
  }

  // Until all are done or the time is over.
  bool run(Duration at_most) {
    const TimePoint end = network_.now() + at_most;
    while (!finished() && network_.now() < end) {
      TimePoint next = end;
      for (const auto& island : islands_) {
        step(*island);
        if (!island->exchange) {
          next = std::min(next, std::max(island->begins, network_.now() + 1ns));
        } else if (const auto deadline = island->exchange->next_deadline()) {
          next = std::min(next, std::max(*deadline, network_.now() + 1ns));
        }
      }
      if (finished()) {
        break;  // at this instant
      }
      if (const auto event = network_.next_event()) {
        next = std::min(next, *event);
      }
      network_.advance_to(next);
    }
    return finished();
  }

  void step(Island& island) {
    const TimePoint now = network_.now();
    if (!island.exchange && now >= island.begins) {
      begin(island, Attempt(1));
    }
    if (!island.exchange) {
      return;
    }
    while (island.link->receive(now, *island.exchange)) {
    }
    while (island.exchange->reduce_one()) {
    }
    for (const OutgoingWant& want : island.exchange->take_wants(now)) {
      if (!island.link->want(want)) {
        island.exchange->not_sent(now, want);
      }
    }
  }

  void begin(Island& island, Attempt attempt) {
    ExchangePlan plan{RunId("r"), Epoch(1),      Round(1),  attempt,
                      ids_,       what_.weights, island.id, layout_of(what_.elements, ids_.size(), what_.piece_elements, what_.shares)};
    ExchangeAttempt::Settings settings;
    plan.packed = what_.packed;
    settings.wants.paths = island.paths;
    settings.buffers = island.buffers;
    if (what_.reduce_window > 0) {
      settings.reduce_window_bytes = what_.reduce_window;
    }
    auto begun = ExchangeAttempt::begin(std::move(plan), own_payload(island), reduce_floats, *island.store, network_.now(), settings);
    REQUIRE(begun);
    island.exchange = std::move(begun).value();
  }

  Payload own_payload(const Island& island) const {
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      if (ids_[i] == island.id) {
        return what_.weights[i] > 0 ? payload_of(values_[i]) : Payload{};
      }
    }
    return {};
  }

  bool finished() const {
    return std::all_of(islands_.begin(), islands_.end(), [](const auto& island) { return island->exchange && island->exchange->done(); });
  }

  // The weighted sum every island ends with, from its ExchangeResult.
  std::vector<float> sum_at(std::size_t island) const {
    const ExchangeResult result = islands_[island]->exchange->result();
    std::vector<float> sum(what_.elements, 0.0F);
    if (result.gathered) {
      for (std::size_t i = 0; i < result.parts.size(); ++i) {
        add_weighted(result.parts[i].bytes, result.weights[i], sum);
      }
    } else {
      REQUIRE(result.parts.size() == 1);
      REQUIRE(result.parts[0].bytes.size() == sum.size() * 4);
      std::memcpy(sum.data(), result.parts[0].bytes.data(), sum.size() * 4);
    }
    return sum;
  }

  std::vector<float> expected() const {
    std::vector<float> sum(what_.elements, 0.0F);
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      if (what_.weights[i] > 0) {
        add_weighted(std::as_bytes(std::span(values_[i])), what_.weights[i], sum);
      }
    }
    return sum;
  }

  void check_equal() const {
    const std::vector<float> reference = expected();
    for (std::size_t i = 0; i < islands_.size(); ++i) {
      const std::vector<float> sum = sum_at(i);
      CHECK(std::memcmp(sum.data(), reference.data(), sum.size() * 4) == 0);
    }
  }

  SimulatedNetwork& network() { return network_; }
  std::vector<std::unique_ptr<Island>>& islands() { return islands_; }

 private:
  Case what_;
  SimulatedNetwork network_;
  std::vector<IslandId> ids_;
  std::vector<Member> members_;
  std::vector<std::vector<float>> values_;
  std::vector<std::unique_ptr<Island>> islands_;
};

PathConditions hostile(Rng& rng) {
  PathConditions conditions;
  conditions.latency = Duration(static_cast<Duration::rep>(rng.below(100'000'000)));
  conditions.jitter = 30ms;
  conditions.loss = rng.uniform() * 0.3;
  conditions.duplication = rng.uniform() * 0.2;
  conditions.reordering = rng.uniform() * 0.3;
  conditions.replay = rng.uniform() * 0.3;
  conditions.bytes_per_second = rng.chance(0.5) ? 20'000.0 : 0;
  return conditions;
}

}  // namespace

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
  CHECK(refused([](ExchangePlan& plan) { plan.weights = {0, 0}; }));
  CHECK(refused([](ExchangePlan& plan) { plan.weights = {1}; }));
  CHECK(refused([](ExchangePlan& plan) { plan.run = RunId(std::string(65, 'x')); }));
  CHECK(refused([](ExchangePlan& plan) { plan.layout.shards.back() = 7; }));
  CHECK(refused([](ExchangePlan& plan) { plan.layout.contribution.back() += 4; }));
  CHECK(refused([](ExchangePlan& plan) { plan.layout = ExchangeLayout{}; }));
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
