// On a far path the two sides of an exchange do not ask over one connection: wants would wait behind pieces that go the same way.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/catch.hpp"
#include "tests/delaying_proxy.hpp"
#include "transport/base/address.hpp"
#include "transport/bulk/exchange_attempt.hpp"
#include "transport/identity/identity.hpp"
#include "transport/zmq/zmq_bulk_link.hpp"

namespace of_divided_connections_test {

namespace {

using namespace atl;
using namespace std::chrono_literals;
using atl_test::DelayingProxy;

const RunId kRun("r");
constexpr std::size_t kValues = 2'000'000;

struct Side {
  explicit Side(Duration round_trip, double bytes_per_second = 0)
      : keys(make_key_pair().value()), id(island_of(keys.public_key)), values(kValues, 1.5F) {
    ZmqBulkSettings settings;
    settings.island = id;
    settings.public_key = keys.public_key;
    settings.secret_key = keys.secret_key;
    settings.bind = "tcp://127.0.0.1:0";
    settings.ping_every = 100ms;
    link = ZmqBulkLink::open(settings, store).value();
    wire = std::make_unique<DelayingProxy>(parse_address(link->bound_address()).value().port, round_trip, bytes_per_second);
  }
  [[nodiscard]] Member member(bool reachable) const { return {id, "", keys.public_key, reachable ? wire->address() : ""}; }

  KeyPair keys;
  IslandId id;
  std::vector<float> values;
  std::shared_ptr<BlobStore> store = std::make_shared<BlobStore>();
  std::unique_ptr<ZmqBulkLink> link;
  std::unique_ptr<DelayingProxy> wire;  // before its port
};

void exchange(Side& side, const std::vector<IslandId>& members, Round round = Round(1)) {
  const auto bytes = [](std::uint64_t count) { return 4 * count; };
  ExchangePlan plan{kRun, Epoch(1), round, Attempt(1), members, {1, 1}, side.id, cut_pieces(kValues, 2, 16, bytes, bytes)};
  const Payload own{std::as_bytes(std::span(side.values)), nullptr};
  const auto none = [](const ReducePiece&) { return std::optional<ReduceFailure>(); };
  auto attempt = ExchangeAttempt::begin(std::move(plan), own, none, *side.store, now()).value();
  for (const TimePoint end = now() + 60s; !attempt->done() && now() < end;) {
    const bool received = side.link->receive(now(), *attempt);
    for (const OutgoingWant& want : attempt->take_wants(now())) {
      if (!side.link->want(want)) {
        attempt->not_sent(now(), want);
      }
    }
    if (!received) {
      side.link->wait(20ms);
    }
  }
}

using Carried = std::array<std::array<std::uint64_t, 2>, DelayingProxy::kCounted>;

Carried carried(const DelayingProxy& wire) {
  Carried bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = {wire.carried_there(i), wire.carried_back(i)};
  }
  return bytes;
}

// The smaller of what each connection carried in its two directions, of the one with most.
std::uint64_t most_shared(const DelayingProxy& wire, const Carried& before = {}) {
  const Carried after = carried(wire);
  std::uint64_t most = 0;
  for (std::size_t i = 0; i < after.size(); ++i) {
    most = std::max(most, std::min(after[i][0] - before[i][0], after[i][1] - before[i][1]));
  }
  return most;
}

}  // namespace

TEST_CASE("on a far path no connection carries pieces both ways, whether both islands are dialled or one alone") {
  const bool both = GENERATE(true, false);
  CAPTURE(both);
  Side one(40ms);
  Side other(40ms);
  for (Side* side : {&one, &other}) {
    side->store->set_readers(kRun, {one.id, other.id});
    REQUIRE(side->link->set_peers(std::vector<Member>{one.member(true), other.member(both)}));
  }
  const auto knows_the_way = [](const Side& side) {
    const std::vector<PeerTraffic> rows = side.link->traffic();
    return rows.size() == 1 && rows[0].connected && rows[0].round_trip >= 40ms;
  };
  for (const TimePoint end = now() + 30s; now() < end && !(knows_the_way(one) && knows_the_way(other));) {
    std::this_thread::sleep_for(10ms);
  }
  std::this_thread::sleep_for(100ms);  // the second connection has come, too
  const std::vector<IslandId> members = {one.id, other.id};
  std::thread beside([&] { exchange(other, members); });
  exchange(one, members);
  beside.join();
  CHECK(one.link->traffic()[0].bytes_received > 4 * kValues);
  CHECK(other.link->traffic()[0].bytes_received > 4 * kValues);
  CHECK(most_shared(*one.wire) < 500'000);
  CHECK(most_shared(*other.wire) < 500'000);
}

// Wants would wait behind as much there, in time.
TEST_CASE("nor does one on a short path over a thin line, once pings have waited behind pieces") {
  constexpr double kThin = 100e6 / 8;
  Side one(1ms, kThin);
  Side other(1ms, kThin);
  for (Side* side : {&one, &other}) {
    side->store->set_readers(kRun, {one.id, other.id});
    REQUIRE(side->link->set_peers(std::vector<Member>{one.member(true), other.member(false)}));
  }
  const auto connected = [](const Side& side) {
    const std::vector<PeerTraffic> rows = side.link->traffic();
    return rows.size() == 1 && rows[0].connected && rows[0].round_trip > 0ms && rows[0].round_trip < 10ms;
  };
  for (const TimePoint end = now() + 30s; now() < end && !(connected(one) && connected(other));) {
    std::this_thread::sleep_for(10ms);
  }
  std::this_thread::sleep_for(300ms);  // the second connection has come, too
  const std::vector<IslandId> members = {one.id, other.id};
  const auto both_exchange = [&](Round round) {
    std::thread beside([&] { exchange(other, members, round); });
    exchange(one, members, round);
    beside.join();
  };
  both_exchange(Round(1));
  both_exchange(Round(2));
  const Carried before = carried(*one.wire);
  both_exchange(Round(3));
  const Carried after = carried(*one.wire);
  std::uint64_t there = 0;
  std::uint64_t back = 0;
  for (std::size_t i = 0; i < after.size(); ++i) {
    there += after[i][0] - before[i][0];
    back += after[i][1] - before[i][1];
  }
  CHECK(there > 4 * kValues);
  CHECK(back > 4 * kValues);
  CHECK(most_shared(*one.wire, before) < 500'000);
}

}  // namespace of_divided_connections_test
