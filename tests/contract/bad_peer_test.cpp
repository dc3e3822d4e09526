// A peer of the bulk link that asks for too much, for nothing, again and again, or takes what it asked for a byte at a time: it costs a
// bounded amount of memory, and nobody else anything.
#include <algorithm>
#include <fstream>

#include "tests/contract/bulk_link_fields.hpp"
#include "tests/delaying_proxy.hpp"
#include "transport/base/address.hpp"
#include "transport/base/log.hpp"
#include "transport/bulk/want_schedule.hpp"

namespace {

using namespace atl_test;

const RunId kRun("r");
const BlobId kBlob{kRun, Epoch(), Round(3), Attempt(), BlobKind::checkpoint_file, 0};
constexpr std::uint32_t kPiece = 256U << 10;
constexpr std::uint64_t kBlobBytes = 64ULL << 20;

std::uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t pages = 0;
  file >> pages >> pages;
  return pages * 4096;
}

std::uint64_t growth_since(std::uint64_t before) {
  const std::uint64_t now = resident_bytes();
  return now - std::min(before, now);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// The sanitizers' own: a quarter of a gigabyte of what was freed, with its surroundings, or a shadow of whatever was touched.
constexpr std::uint64_t kMostGrowth = 1ULL << 30;
#else
constexpr std::uint64_t kMostGrowth = 160ULL << 20;
#endif

// An owner, a reader who behaves badly behind a wire that can be made thin, and another reader.
struct BadField {
  BadField() : owner(field.add()), bad(field.add()), good(field.add()) {
    wire = std::make_unique<DelayingProxy>(parse_address(owner.member.bulk_address).value().port, Duration::zero(), 0);
    bad.link.reset();
    ZmqBulkSettings settings;
    settings.island = bad.id;
    settings.public_key = bad.keys.public_key;
    settings.secret_key = bad.keys.secret_key;
    settings.bind = "";
    bad.link = ZmqBulkLink::open(settings, bad.store).value();
    bad.member.bulk_address = "";
    REQUIRE(owner.link->set_peers(field.members()));
    REQUIRE(good.link->set_peers(field.members()));
    std::vector<Member> over_the_wire = field.members();
    over_the_wire.front().bulk_address = wire->address();
    REQUIRE(bad.link->set_peers(over_the_wire));
    const auto zeros = std::make_shared<Bytes>(kBlobBytes);
    owner.store->set_readers(kRun, {bad.id, good.id});
    owner.store->put(kBlob, Payload{*zeros, zeros});
    REQUIRE(field.until([&] { return field.connected(bad, owner) && field.connected(good, owner); }));
  }
  ~BadField() {
    bad.link.reset();  // before its wire
  }

  // Asks until the link takes it, and takes in nothing.
  void ask(const Want& want) {
    while (!bad.link->want({owner.id, want})) {
      field.pause();
    }
  }
  std::uint64_t sent_to_bad() const {
    for (const PeerTraffic& row : owner.link->traffic()) {
      if (row.peer == bad.id) {
        return row.bytes_sent;
      }
    }
    return 0;
  }
  // The other reader gets all of the blob.
  void check_serves() {
    std::vector<std::uint64_t> ends;
    for (std::uint64_t end = 0; end <= kBlobBytes; end += kPiece) {
      ends.push_back(end);
    }
    WantSchedule schedule(owner.id, kBlob, ends, WantSettings{}, now());
    good.basket.pieces.clear();
    REQUIRE(field.until([&] {
      for (const auto& [key, bytes] : good.basket.pieces) {
        if (const auto index =
                schedule.outstanding(BlobPiece{kBlob, std::get<2>(key), kBlobBytes, static_cast<std::uint32_t>(bytes.size())})) {
          schedule.arrived(now(), *index);
        }
      }
      good.basket.pieces.clear();
      std::vector<OutgoingWant> wants;
      schedule.take(now(), SIZE_MAX, wants);
      for (const OutgoingWant& want : wants) {
        if (!good.link->want(want)) {
          schedule.ask_again(now(), 10ms);
        }
      }
      return schedule.done();
    }));
  }

  SealedField field;
  FieldIsland& owner;
  FieldIsland& bad;
  FieldIsland& good;
  std::unique_ptr<DelayingProxy> wire;
};

}  // namespace

TEST_CASE("a peer that asks for two to the sixtieth, or for nothing, gets a word or a new session, and others what they ask for") {
  BadField play;
  constexpr std::uint64_t kFar = std::uint64_t{1} << 60;
  play.ask(Want{kBlob, kFar, kMaxPieceBytes});
  REQUIRE(play.field.until([&] { return play.bad.basket.refusals.size() == 1; }));
  CHECK(play.bad.basket.refusals.front().second.code == Code::invalid_argument);
  CHECK(play.bad.basket.refusals.front().second.why == "it has only 67108864 bytes");
  play.ask(Want{kBlob, kBlobBytes, 1});  // at its end: an empty piece
  REQUIRE(play.field.until([&] { return !play.bad.basket.pieces.empty(); }));
  CHECK(play.bad.basket.bytes == 0);
  std::string said;
  set_log_sink([&](LogLevel level, std::string_view text) { said += level == LogLevel::warning ? std::string(text) + "\n" : ""; });
  const auto rejected = [&] {
    for (const PeerTraffic& row : play.owner.link->traffic()) {
      if (row.peer == play.bad.id) {
        return row.frames_rejected;
      }
    }
    return std::uint64_t{0};
  };
  std::uint64_t impossible = 0;
  for (const Want& want : {Want{kBlob, 0, 0}, Want{kBlob, 0, UINT32_MAX}, Want{kBlob, UINT64_MAX, kMaxPieceBytes}}) {
    const int sessions = play.bad.basket.connections[play.owner.id];
    play.ask(want);
    REQUIRE(play.field.until([&] { return rejected() == impossible + 1; }));
    ++impossible;
    // What is asked before the new session would be lost with the old one.
    REQUIRE(play.field.until([&] { return play.bad.basket.connections[play.owner.id] > sessions; }));
  }
  play.check_serves();
  set_log_sink({});
  CHECK(said.find("island " + play.bad.id.text + " sent") != std::string::npos);
}

TEST_CASE("a peer that asks for the same piece again and again without reading costs one piece at a time") {
  BadField play;
  play.wire->set_rate(1);  // from here on nothing of weight comes through to it
  const std::uint64_t before = resident_bytes();
  for (int i = 0; i < 200'000; ++i) {
    play.ask(Want{kBlob, (i % 2) * std::uint64_t{kPiece}, kPiece});
  }
  play.check_serves();
  CHECK(play.sent_to_bad() < 64ULL << 20);
  CHECK(growth_since(before) < kMostGrowth);
}

TEST_CASE("a peer that reads a byte a second holds a few pieces of its owner's memory, and nobody up") {
  BadField play;
  play.wire->set_rate(1);
  const std::uint64_t before = resident_bytes();
  for (std::uint64_t offset = 0; offset < kBlobBytes; offset += kPiece) {
    play.ask(Want{kBlob, offset, kPiece});
  }
  play.check_serves();
  CHECK(play.sent_to_bad() < kBlobBytes / 2);  // the kernel's buffers, the wire's, and two connections' flights
  CHECK(growth_since(before) < kMostGrowth);
}
