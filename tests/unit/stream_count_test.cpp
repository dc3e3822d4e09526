// Over how many connections a reader asks, on paths of which each connection gets a part, or all of it.
#include "transport/bulk/stream_count.hpp"

#include <functional>
#include <utility>

#include "tests/catch.hpp"
#include "transport/base/rng.hpp"

namespace {

using namespace atl;
using namespace std::chrono_literals;

// Looks every 200 ms for so long, with the rate that the path gives so many connections.
void play(StreamCount& streams, Duration how_long, Duration round_trip, const std::function<double(unsigned)>& rate) {
  for (Duration at{}; at < how_long; at += 200ms) {
    streams.look(200ms, static_cast<std::uint64_t>(rate(streams.count()) * 0.2), round_trip);
  }
}

}  // namespace

TEST_CASE("a path on which each connection gets a part is asked over as many as there may be") {
  StreamCount streams(2, 8);
  play(streams, 60s, 100ms, [](unsigned count) { return 1e6 * count; });
  CHECK(streams.count() >= 7);  // eight, or a try of seven
}

TEST_CASE("pieces that come further apart than looks are no pauses: connections are added on a lossy path, too") {
  StreamCount streams(2, 8);
  double sent = 0;
  std::uint64_t told = 0;
  for (Duration at{}; at < 240s; at += 100ms) {
    sent += 0.1 * 0.45e6 * streams.count();  // as a window of Reno gives with a loss in a thousand and a round trip of 100 ms
    const std::uint64_t whole = static_cast<std::uint64_t>(sent) >> 18 << 18;
    streams.look(100ms, whole - std::exchange(told, whole), 100ms);
  }
  CHECK(streams.count() >= 7);
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
  CHECK(least >= 3);  // a try of one less
  CHECK(most <= 5);   // a try of one more
}

TEST_CASE("where one connection carries all, others are given up") {
  StreamCount streams(4, 8);
  Rng rng(7);
  play(streams, 600s, 100ms, [&](unsigned) { return 1e7 * (0.99 + 0.02 * rng.uniform()); });
  CHECK(streams.count() <= 2);
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
      streams.look(200ms, static_cast<std::uint64_t>(part * 2e5 * streams.count()), 50ms);
    }
  }
  CHECK(streams.count() >= 7);
}
