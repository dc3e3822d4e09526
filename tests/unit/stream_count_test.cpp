// Over how many connections a reader asks, on paths of which each connection gets a part, or all of it.
#include "transport/bulk/stream_count.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include "tests/catch.hpp"
#include "transport/base/rng.hpp"

namespace of_stream_count_test {

namespace {

using namespace atl;
using namespace std::chrono_literals;

// Looks every 200 ms for so long, with the rate that the path gives so many connections.
void play(StreamCount& streams, Duration how_long, Duration round_trip, const std::function<double(unsigned)>& rate) {
  for (Duration at{}; at < how_long; at += 200ms) {
    streams.look({200ms, static_cast<std::uint64_t>(rate(streams.count()) * 0.2), 0, true, round_trip, false});
  }
}

// The same on a line of this rate, on which a queue stands while it is full. Returns the most connections that there were.
unsigned play_line(StreamCount& streams, Duration how_long, double line, double of_each) {
  unsigned most = 0;
  for (Duration at{}; at < how_long; at += 200ms) {
    const double offered = of_each * streams.count();
    streams.look({200ms, static_cast<std::uint64_t>(std::min(offered, line) * 0.2), 0, true, 20ms, offered >= line});
    most = std::max(most, streams.count());
  }
  return most;
}

}  // namespace

TEST_CASE("a path on which each connection gets a part is asked over as many as there may be") {
  StreamCount streams(2, 8);
  play(streams, 60s, 100ms, [](unsigned count) { return 1e6 * count; });
  CHECK(streams.count() >= 7);  // eight, or a try of seven
}

TEST_CASE("pieces that come further apart than looks are no pauses: connections are added on a lossy path, too") {
  // Each carries what a window of Reno does with a loss in a thousand and a round trip of 100 ms; the line bears 100 Mbit/s.
  const auto carried = [](unsigned count) { return std::min(0.45e6 * count, 12.5e6); };
  StreamCount streams(2, 32);
  double sent = 0;
  std::uint64_t told = 0;
  const auto play_pieces = [&](Duration how_long) {
    const double before = sent;
    for (Duration at{}; at < how_long; at += 100ms) {
      sent += 0.1 * carried(streams.count());
      const std::uint64_t whole = static_cast<std::uint64_t>(sent) >> 18 << 18;
      streams.look({100ms, whole - std::exchange(told, whole), 0, true, 100ms, false});
    }
    return (sent - before) / seconds(how_long);
  };
  play_pieces(60s);
  CHECK(streams.count() >= 24);  // 28 or more, or a try of a sixth fewer
  CHECK(play_pieces(300s) >= 0.95 * 12.5e6);
}

TEST_CASE("what was asked for before a connection was added tells nothing about it") {
  // As at a run's beginning: so much is outstanding over the first two that nothing new is asked for until it has come.
  StreamCount streams(2, 32);
  std::uint64_t old = 16ULL << 20;
  for (Duration at{}; at < 90s; at += 200ms) {
    const auto bytes = static_cast<std::uint64_t>(0.2 * 0.45e6 * (old > 0 ? 2 : streams.count()));
    old -= std::min(old, bytes);
    streams.look({200ms, bytes, std::max<std::uint64_t>(old, streams.count() << 19), true, 100ms, false});
  }
  CHECK(streams.count() >= 21);
}

TEST_CASE("connections are added until the path is full, and no further") {
  StreamCount streams(2, 8);
  play(streams, 120s, 100ms, [](unsigned count) { return std::min(1e6 * count, 4e6); });
  unsigned least = 8;
  unsigned most = 0;
  for (int i = 0; i < 100; ++i) {
    play(streams, 1s, 100ms, [](unsigned count) { return std::min(1e6 * count, 4e6); });
    least = std::min(least, streams.count());
    most = std::max(most, streams.count());
  }
  CHECK(least >= 3);  // a try of one fewer
  CHECK(most <= 8);   // a try of four more
}

TEST_CASE("a full line is not tried with more connections, and one with as much is tried with fewer") {
  StreamCount needs_two(2, 32);
  CHECK(play_line(needs_two, 600s, 4e6, 3e6) == 2);
  StreamCount needs_one(2, 32);
  CHECK(play_line(needs_one, 600s, 4e6, 5e6) == 2);
  CHECK(needs_one.count() == 1);
  SECTION("a line that carries more than it did is tried again, and so is one whose rate fell") {
    const double line = GENERATE(4e7, 4e6);
    play_line(needs_two, 300s, line, line > 1e7 ? 2e6 : 0.5e6);
    CHECK(needs_two.count() >= 7);
  }
  SECTION("connections are added until a queue stands") {
    StreamCount adds(2, 32);
    play_line(adds, 120s, 4e7, 5e6);
    CHECK(adds.count() >= 7);
    CHECK(play_line(adds, 600s, 4e7, 5e6) <= 12);
  }
}

TEST_CASE("where one connection carries all, others are given up") {
  StreamCount streams(4, 8);
  Rng rng(7);
  const auto carries = [&](unsigned) { return 1e7 * (0.99 + 0.02 * rng.uniform()); };
  play(streams, 600s, 100ms, carries);
  int at_one = 0;
  for (int i = 0; i < 1000; ++i) {
    play(streams, 1s, 100ms, carries);
    at_one += streams.count() == 1 ? 1 : 0;
    REQUIRE(streams.count() <= 5);  // a try of four more
  }
  CHECK(at_one > 900);
}

TEST_CASE("a near path is asked over the first ones, whatever comes") {
  StreamCount streams(2, 8);
  play(streams, 60s, 100ms, [](unsigned count) { return 1e6 * count; });
  CHECK(streams.count() > 2);
  play(streams, 1s, 1ms, [](unsigned count) { return 1e6 * count; });
  CHECK(streams.count() == 2);
  play(streams, 60s, 1ms, [](unsigned count) { return 1e6 * count; });
  CHECK(streams.count() == 2);
}

TEST_CASE("pauses between rounds are not taken for a slow path") {
  StreamCount streams(2, 8);
  // Rounds of two seconds every ten, begun and ended in the middle of a look.
  for (int round = 0; round < 60; ++round) {
    for (int look = 0; look < 50; ++look) {
      const double part = look == 0 || look == 10 ? 0.5 : look < 10 ? 1.0 : 0.0;
      streams.look({200ms, static_cast<std::uint64_t>(part * 2e5 * streams.count()), 0, true, 50ms, false});
    }
  }
  CHECK(streams.count() >= 7);
}

TEST_CASE("the last pieces of each round, which few connections deliver, are not taken for a slow path") {
  // Twenty connections carry the line; a third of the time one in five still has something to deliver.
  StreamCount streams(2, 32);
  for (int look = 0; look < 1500; ++look) {
    const bool busy = look % 15 < 10;
    streams.look(
        {200ms, static_cast<std::uint64_t>((busy ? 1.0 : 0.2) * 0.2 * std::min(0.5e6 * streams.count(), 1e7)), 0, busy, 100ms, false});
    if (look > 500) {
      REQUIRE(streams.count() >= 14);
    }
  }
}

}  // namespace of_stream_count_test
