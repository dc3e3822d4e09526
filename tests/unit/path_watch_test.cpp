// Paths that are watched: small and on virtual time.
#include "transport/bulk/path_watch.hpp"

#include "tests/catch.hpp"
#include "transport/bulk/blob_store.hpp"

namespace of_path_watch_test {

using namespace atl;
using namespace std::chrono_literals;

namespace {

const TimePoint kStart = from_unix_ms(1'700'000'000'000);
const IslandId a("a");

// A path whose answers take so long, and which loses what is on it while it is down.
struct Bench {
  PathWatch watch;
  TimePoint at = kStart;
  Duration round_trip = 20ms;
  std::function<bool(TimePoint)> up = [](TimePoint) { return true; };
  std::vector<std::pair<TimePoint, BlobPiece>> coming;
  std::vector<std::pair<TimePoint, Availability>> told;
  std::uint64_t bytes = 0;

  void run(Duration duration, bool doubts = false) {
    BlobStore store;
    for (const TimePoint end = at + duration; at < end; at += 10ms) {
      if (doubts && (at - kStart) % 1s == 0s) {
        watch.doubt(a, at);
      }
      std::erase_if(coming, [&](const auto& piece) {
        if (piece.first > at) {
          return false;
        }
        if (up(at) && !watch.destination(a, piece.second).empty()) {
          watch.arrived(at, a, piece.second);
        }
        return true;
      });
      for (const OutgoingWant& want : watch.take_wants(at)) {
        const StoreAnswer answered = store.answer(IslandId("reader"), want.want);
        REQUIRE(watch.reads(want.want.blob));
        bytes += std::get<Served>(answered).piece.length;
        if (up(at)) {
          coming.emplace_back(at + round_trip, std::get<Served>(answered).piece);
        }
      }
      for (const WatchedPath& path : watch.take_findings(at)) {
        told.emplace_back(at, path.available);
      }
    }
  }
};

bool comes_and_goes(TimePoint at, Duration up, Duration down) { return (at - kStart) % (up + down) < up; }

}  // namespace

TEST_CASE("a path that comes and goes is told with its share and its changes, and at last that it is steady") {
  Bench bench;
  bench.up = [](TimePoint at) { return comes_and_goes(at, 3s, 3s); };
  bench.run(10min, true);
  REQUIRE(bench.told.size() > 20);
  CHECK(bench.told.front().first - kStart < 12s);
  const Availability after = bench.told.back().second;
  CHECK(after.watched == kAvailabilityWindow);
  CHECK(after.share() == Approx(0.5).margin(0.15));
  CHECK(after.changes >= 90);
  CHECK(after.changes <= 101);
  for (std::size_t i = 1; i < bench.told.size(); ++i) {
    CHECK(bench.told[i].first - bench.told[i - 1].first >= 5s);
  }
  bench.up = [](TimePoint) { return true; };
  const TimePoint whole = bench.at;
  bench.run(6min);
  CHECK(bench.told.back().second.changes == 0);
  CHECK(bench.told.back().second.share() == 1);
  CHECK(bench.told.back().first - whole >= 5min);
  const std::size_t told = bench.told.size();
  CHECK(!bench.watch.next_deadline());
  bench.run(1min);
  CHECK(bench.told.size() == told);
}

TEST_CASE("one outage is one absence, and a doubt in vain costs half a minute of small answers") {
  Bench bench;
  bench.run(2min);
  CHECK(bench.bytes == 0);
  bench.watch.doubt(a, bench.at);
  bench.run(2min);
  CHECK(bench.told.empty());
  CHECK(bench.bytes <= 40 * 1024);
  CHECK(!bench.watch.next_deadline());
  const TimePoint down = bench.at + 10s;
  bench.up = [&](TimePoint at) { return at < down || at >= down + 20s; };
  bench.watch.doubt(a, bench.at);
  bench.run(1min);
  REQUIRE(!bench.told.empty());
  CHECK(bench.told.back().second.changes == 2);
  CHECK(bench.told.back().second.there < bench.told.back().second.watched - 18s);
}

TEST_CASE("a slow path is not away while it answers as it usually does, nor while other data come from there") {
  Bench bench;
  bench.round_trip = 2500ms;
  bench.run(5min, true);
  CHECK(bench.told.empty());
  Bench busy;
  busy.run(20s, true);
  busy.up = [](TimePoint) { return false; };
  for (int i = 0; i < 60; ++i) {
    busy.run(1s, true);
    busy.watch.heard(a, busy.at);
  }
  CHECK(busy.told.empty());
}

TEST_CASE("an island that was busy with something else saw no answer, and blames no path for that") {
  Bench bench;
  for (int i = 0; i < 20; ++i) {
    bench.run(5s, true);
    const Duration busy = 3s;  // nobody looks: what came meanwhile is seen now
    for (auto& [when, piece] : bench.coming) {
      when += busy;
    }
    bench.at += busy;
  }
  CHECK(bench.told.empty());
}

}  // namespace of_path_watch_test
