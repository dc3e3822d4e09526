// What every bulk link does, simulated or ZeroMQ, sealed or plain.
#include <algorithm>
#include <string>

#include "tests/contract/bulk_link_fields.hpp"
#include "transport/base/rng.hpp"
#include "transport/bulk/blob_fetch.hpp"

namespace of_bulk_link_contract_test {

namespace {

using namespace atl_test;

const RunId kRun("r");

BlobId checkpoint(std::uint32_t part = 0) { return BlobId{kRun, Epoch(), Round(3), Attempt(), BlobKind::checkpoint_file, part}; }
BlobId contribution() { return BlobId{kRun, Epoch(1), Round(3), Attempt(1), BlobKind::contribution, 0}; }

Payload random_payload(std::size_t count) {
  Rng rng(count);
  const auto bytes = std::make_shared<Bytes>(count);
  for (std::byte& byte : *bytes) {
    byte = static_cast<std::byte>(rng.next_u32());
  }
  return Payload{*bytes, bytes};
}

bool equal(ByteView a, ByteView b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

// Two islands that know each other, the second serving to the first.
template <typename Kind>
struct Pair {
  Pair() {
    field.add();
    field.add();
    field.introduce();
    owner().store->set_readers(kRun, {reader().id});
    REQUIRE(field.until([&] { return field.connected(reader(), owner()); }));
  }
  FieldIsland& reader() { return *field.islands[0]; }
  FieldIsland& owner() { return *field.islands[1]; }
  Kind field;
};

}  // namespace

TEMPLATE_TEST_CASE("wants are answered with the bytes asked for, cut at the blob's end", "[bulk]", SimulatedField, SealedField,
                   PlainField) {
  Pair<TestType> pair;
  const Payload payload = random_payload(100'000);
  pair.owner().store->put(checkpoint(), payload);
  for (std::uint64_t offset = 0; offset < 100'000; offset += 3'000) {
    REQUIRE(pair.reader().link->want({pair.owner().id, Want{checkpoint(), offset, 3'000}}));
  }
  Basket& basket = pair.reader().basket;
  REQUIRE(pair.field.until([&] { return basket.bytes == 100'000; }));
  for (const auto& [key, bytes] : basket.pieces) {
    CHECK(std::get<0>(key) == pair.owner().id);
    CHECK(equal(bytes, payload.bytes.subspan(std::get<2>(key), std::min<std::uint64_t>(3'000, 100'000 - std::get<2>(key)))));
  }
  CHECK(basket.last.total == 100'000);
  CHECK(pair.owner().store->bytes_served(kRun) == 100'000);
  const PeerTraffic row = pair.reader().link->traffic().at(0);
  CHECK(row.peer == pair.owner().id);
  CHECK(row.bytes_received >= 100'000);
  CHECK(row.bytes_sent > 0);
  CHECK(row.frames_rejected == 0);
}

TEMPLATE_TEST_CASE("who wants pieces packed gets the same bytes in fewer, and as they are where that is no gain", "[bulk]", SimulatedField,
                   SealedField, PlainField) {
  Pair<TestType> pair;
  const Payload random = random_payload(30'000);  // nothing can be taken out of it
  const auto sparse = std::make_shared<Bytes>(30'000);
  for (std::size_t i = 0; i < sparse->size(); i += 97) {
    (*sparse)[i] = random.bytes[i];
  }
  pair.owner().store->put(checkpoint(0), random);
  pair.owner().store->put(checkpoint(1), Payload{*sparse, sparse});
  for (const std::uint32_t part : {0U, 1U}) {
    for (std::uint64_t offset = 0; offset < 30'000; offset += 7'000) {
      REQUIRE(pair.reader().link->want({pair.owner().id, Want{checkpoint(part), offset, 7'000, true}}));
    }
  }
  Basket& basket = pair.reader().basket;
  REQUIRE(pair.field.until([&] { return basket.bytes == 60'000; }));
  for (const auto& [key, bytes] : basket.pieces) {
    const ByteView all = std::get<1>(key) == checkpoint(0) ? random.bytes : ByteView(*sparse);
    CHECK(equal(bytes, all.subspan(std::get<2>(key), bytes.size())));
  }
  const std::uint64_t served = pair.owner().store->bytes_served(kRun);  // as they travelled
  CHECK(served > 30'000);
  CHECK(served < 32'000);
  CHECK(basket.refusals.empty());
}

TEMPLATE_TEST_CASE("the largest piece and an empty blob pass", "[bulk]", SimulatedField, SealedField, PlainField) {
  Pair<TestType> pair;
  const Payload payload = random_payload(kMaxPieceBytes);
  pair.owner().store->put(checkpoint(0), payload);
  pair.owner().store->put(checkpoint(1), Payload{});
  REQUIRE(pair.reader().link->want({pair.owner().id, Want{checkpoint(0), 0, kMaxPieceBytes}}));
  REQUIRE(pair.reader().link->want({pair.owner().id, Want{checkpoint(1), 0, 10}}));
  Basket& basket = pair.reader().basket;
  REQUIRE(pair.field.until([&] { return basket.pieces.size() == 2; }));
  CHECK(equal(basket.pieces.at({pair.owner().id, checkpoint(0), 0}), payload.bytes));
  CHECK(basket.pieces.at({pair.owner().id, checkpoint(1), 0}).empty());
}

TEMPLATE_TEST_CASE("a want for what is not ready is parked and answered later, what is not there is refused", "[bulk]", SimulatedField,
                   SealedField, PlainField) {
  Pair<TestType> pair;
  Basket& basket = pair.reader().basket;
  REQUIRE(pair.reader().link->want({pair.owner().id, Want{contribution(), 0, 64}}));
  REQUIRE(pair.reader().link->want({pair.owner().id, Want{checkpoint(), 0, 64}}));
  REQUIRE(pair.field.until([&] { return basket.refusals.size() == 1 && pair.owner().store->parked() == 1; }));
  CHECK(basket.refusals[0].second.blob == checkpoint());
  CHECK(basket.refusals[0].second.code == Code::not_found);
  const Payload payload = random_payload(128);
  pair.owner().store->announce(contribution(), payload);
  pair.owner().store->mark_ready(contribution(), 64, 64);
  REQUIRE(pair.field.until([&] { return pair.owner().store->parked() == 1; }));
  pair.owner().store->mark_ready(contribution(), 0, 64);
  REQUIRE(pair.field.until([&] { return basket.pieces.size() == 1; }));
  CHECK(equal(basket.pieces.begin()->second, payload.bytes.first(64)));
  CHECK(pair.owner().store->parked() == 0);
}

TEMPLATE_TEST_CASE("readers get what they may read", "[bulk]", SimulatedField, SealedField, PlainField) {
  Pair<TestType> pair;
  pair.owner().store->put(checkpoint(), random_payload(10));
  pair.owner().store->put(contribution(), random_payload(10));
  pair.owner().store->set_readers(kRun, {}, {pair.reader().id});
  REQUIRE(pair.reader().link->want({pair.owner().id, Want{contribution(), 0, 10}}));
  REQUIRE(pair.reader().link->want({pair.owner().id, Want{checkpoint(), 0, 10}}));
  Basket& basket = pair.reader().basket;
  REQUIRE(pair.field.until([&] { return basket.pieces.size() == 1; }));
  CHECK(basket.last.blob == checkpoint());
  pair.owner().store->set_readers(kRun, {});
  REQUIRE(pair.reader().link->want({pair.owner().id, Want{checkpoint(), 0, 10}}));
  REQUIRE(pair.field.until([&] { return basket.refusals.size() == 1; }));
  CHECK(basket.refusals[0].second.code == Code::unauthorized);
}

TEMPLATE_TEST_CASE("a peer that is not admitted does not connect, and disturbs nobody", "[bulk]", SimulatedField, SealedField, PlainField) {
  Pair<TestType> pair;
  FieldIsland& stranger = pair.field.add();
  REQUIRE(stranger.link->set_peers(pair.field.members()));
  pair.owner().store->put(checkpoint(), random_payload(1'000'000));
  Basket& basket = pair.reader().basket;
  for (std::uint64_t offset = 0; offset < 1'000'000; offset += 1'000) {
    REQUIRE(pair.reader().link->want({pair.owner().id, Want{checkpoint(), offset, 1'000}}));
  }
  REQUIRE(pair.field.until([&] { return basket.bytes == 1'000'000; }));
  CHECK_FALSE(pair.field.connected(stranger, pair.owner()));
  const Status status = stranger.link->want({pair.owner().id, Want{checkpoint(), 0, 10}});
  REQUIRE_FALSE(status);
  CHECK(status.error().code == Code::unavailable);
  // Once it is admitted it connects by itself.
  pair.owner().store->set_readers(kRun, {stranger.id});
  REQUIRE(pair.owner().link->set_peers(pair.field.members()));
  REQUIRE(pair.field.until([&] { return pair.field.connected(stranger, pair.owner()); }));
  REQUIRE(stranger.link->want({pair.owner().id, Want{checkpoint(), 0, 10}}));
  REQUIRE(pair.field.until([&] { return stranger.basket.bytes == 10; }));
}

TEMPLATE_TEST_CASE("a peer that comes back is connected again, and what it lost is asked for again", "[bulk]", SimulatedField, SealedField,
                   PlainField) {
  Pair<TestType> pair;
  Basket& basket = pair.reader().basket;
  // The link counts as connected a moment before it says so.
  REQUIRE(pair.field.until([&] { return basket.connections[pair.owner().id] > 0; }));
  const int before = basket.connections[pair.owner().id];
  REQUIRE(pair.reader().link->want({pair.owner().id, Want{contribution(), 0, 64}}));
  REQUIRE(pair.field.until([&] { return pair.owner().store->parked() == 1; }));
  pair.owner().link.reset();
  pair.owner().store = std::make_shared<BlobStore>();
  pair.owner().store->set_readers(kRun, {pair.reader().id});
  pair.field.open(pair.owner());
  REQUIRE(pair.owner().link->set_peers(pair.field.members()));
  REQUIRE(
      pair.field.until([&] { return basket.connections[pair.owner().id] > before && pair.field.connected(pair.reader(), pair.owner()); }));
  pair.owner().store->put(contribution(), random_payload(64));
  // As readers do: again with every connection, of which the second may replace the first when both sides dial.
  int asked = 0;
  REQUIRE(pair.field.until([&] {
    if (const int connections = basket.connections[pair.owner().id];
        connections != asked && pair.field.connected(pair.reader(), pair.owner())) {
      asked = connections;
      (void)pair.reader().link->want({pair.owner().id, Want{contribution(), 0, 64}});
    }
    return basket.bytes >= 64;
  }));
}

TEMPLATE_TEST_CASE("a budget that is set later holds for what leaves then, and is lifted again", "[bulk]", SimulatedField, SealedField,
                   PlainField) {
  Pair<TestType> pair;
  const Payload payload = random_payload(400'000);
  pair.owner().store->put(checkpoint(), payload);
  const auto seconds_of_fetch = [&] {
    Basket& basket = pair.reader().basket;
    const std::uint64_t before = basket.bytes;
    const TimePoint began = pair.field.time();
    for (std::uint64_t offset = 0; offset < 400'000; offset += 20'000) {
      REQUIRE(pair.reader().link->want({pair.owner().id, Want{checkpoint(), offset, 20'000}}));
    }
    REQUIRE(pair.field.until([&] { return basket.bytes == before + 400'000; }));
    return seconds(pair.field.time() - began);
  };
  pair.owner().link->set_uplink(8e6);
  (void)seconds_of_fetch();                // wants may come in before the link's thread has heard of the budget
  CHECK(seconds_of_fetch() >= 0.9 * 0.4);  // 0.4 MB at 1 MB/s, less the burst
  pair.owner().link->set_uplink(0);
  double fastest = seconds_of_fetch();
  for (int i = 0; i < 50 && fastest > 0.3; ++i) {  // a busy machine is excused some times
    fastest = std::min(fastest, seconds_of_fetch());
  }
  CHECK(fastest < 0.3);
}

TEMPLATE_TEST_CASE("a fetch survives a source that disappears in the middle", "[bulk]", SimulatedField, SealedField, PlainField) {
  TestType field;
  FieldIsland& reader = field.add();
  const Payload payload = random_payload(8'000'000);
  for (int i = 0; i < 2; ++i) {
    FieldIsland& owner = field.add();
    owner.store->set_readers(kRun, {reader.id});
    owner.store->put(checkpoint(), payload);
  }
  field.introduce();
  BlobFetchPlan plan;
  plan.blob = checkpoint();
  plan.piece_bytes = 64 << 10;
  plan.sources = {field.islands[1]->id, field.islands[2]->id};
  BlobFetch::Settings settings;
  settings.wants.window_bytes = 256 << 10;
  settings.wants.again_after = 300ms;
  auto fetch = BlobFetch::begin(plan, field.time(), settings).value();
  bool killed = false;
  const TimePoint end = field.time() + field.patience();
  while (!fetch->done() && !fetch->failure() && field.time() < end) {
    while (reader.link->receive(field.time(), *fetch)) {
    }
    for (const OutgoingWant& want : fetch->take_wants(field.time())) {
      if (!reader.link->want(want)) {
        fetch->not_sent(field.time(), want);
      }
    }
    if (!killed && fetch->progress(field.time()).bytes_done > 2'000'000) {
      killed = true;
      field.islands[1]->link.reset();
    }
    field.pause();
  }
  REQUIRE(fetch->done());
  CHECK(killed);
  CHECK(equal(fetch->take_bytes(), payload.bytes));
  CHECK(field.until([&] { return !field.connected(reader, *field.islands[1]); }));
}

TEMPLATE_TEST_CASE("a peer that is named no more is disconnected", "[bulk]", SimulatedField, SealedField, PlainField) {
  Pair<TestType> pair;
  REQUIRE(pair.owner().link->set_peers(std::vector<Member>{}));
  REQUIRE(pair.reader().link->set_peers(std::vector<Member>{}));
  REQUIRE(pair.field.until([&] { return !pair.reader().link->want({pair.owner().id, Want{checkpoint(), 0, 10}}); }));
  REQUIRE(pair.field.until([&] { return pair.reader().link->traffic().empty(); }));
}

TEMPLATE_TEST_CASE("whoever dials no more stays connected with a peer that dials", "[bulk]", SimulatedField, SealedField, PlainField) {
  Pair<TestType> pair;
  FieldIsland& owner = pair.owner();
  FieldIsland& reader = pair.reader();
  owner.store->put(checkpoint(), random_payload(1'000));
  REQUIRE_FALSE(pair.field.until([] { return false; }, 500ms));  // what both dial is there
  for (const bool dials : {false, true}) {
    Member known = owner.member;
    known.bulk_address = dials ? known.bulk_address : "";
    REQUIRE(reader.link->set_peers(std::vector<Member>{known}));
    bool cut = false;
    for (std::uint64_t offset = 0; offset < 500; offset += 10) {
      int connections = -1;
      const std::uint64_t before = reader.basket.bytes;
      REQUIRE(pair.field.until([&] {
        if (std::exchange(connections, reader.basket.connections[owner.id]) != reader.basket.connections[owner.id]) {
          REQUIRE(reader.link->want({owner.id, Want{checkpoint(), offset, 10}}));  // again, after one of the connections has ended
        }
        cut = cut || !pair.field.connected(reader, owner) || !pair.field.connected(owner, reader);
        return reader.basket.bytes >= before + 10;
      }));
    }
    CHECK_FALSE(cut);
  }
}

}  // namespace of_bulk_link_contract_test
