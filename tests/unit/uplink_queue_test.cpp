// The uplink's budget on virtual time: the bucket's arithmetic, the queue's turns.
#include "transport/bulk/uplink_queue.hpp"

#include <map>
#include <memory>

#include "tests/catch.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/rng.hpp"

namespace of_uplink_queue_test {

using namespace atl;
using namespace std::chrono_literals;

namespace {

const TimePoint kStart{};

Want want_of(const char* run, std::uint64_t offset, std::uint32_t length) {
  return Want{BlobId{RunId(run), Epoch(1), Round(1), Attempt(1), BlobKind::contribution, 0}, offset, length};
}

std::optional<Served> serve_all(const IslandId&, const WantOver& asked) {
  const Want& want = asked.want;
  const auto bytes = std::make_shared<Bytes>(want.length);
  return Served{BlobPiece{want.blob, want.offset, want.offset + want.length, want.length}, Payload{*bytes, bytes}};
}

double ms(TimePoint at) { return seconds(at - kStart) * 1000.0; }

}  // namespace

TEST_CASE("a token bucket: the burst leaves at once, the rest at its rate", "[uplink]") {
  TokenBucket bucket(8'000'000, 10'000, kStart);  // 1 MB a second
  CHECK(bucket.next_allowed(kStart, 10'000) == kStart);
  bucket.spend(kStart, 10'000);
  CHECK(ms(bucket.next_allowed(kStart, 1'000)) == Approx(1.0).epsilon(1e-3));
  CHECK(bucket.next_allowed(kStart + 1ms, 1'000) == kStart + 1ms);
  // Idle time fills it to the burst and no further.
  bucket.forgo(kStart + 1ms);
  CHECK(ms(bucket.next_allowed(kStart + 10s, 11'000)) == Approx(10'001.0).epsilon(1e-6));
}

TEST_CASE("a token bucket: what is larger than the burst waits for all its tokens", "[uplink]") {
  TokenBucket bucket(8'000'000, 10'000, kStart);
  const TimePoint when = bucket.next_allowed(kStart, 1'010'000);
  CHECK(ms(when) == Approx(1000.0).epsilon(1e-6));
  CHECK(bucket.next_allowed(when, 1'010'000) == when);
  bucket.spend(when, 1'010'000);
  CHECK(ms(bucket.next_allowed(when, 1'000)) == Approx(1001.0).epsilon(1e-6));
  // Tokens that were kept for something that does not leave are lost.
  TokenBucket other(8'000'000, 10'000, kStart);
  other.next_allowed(kStart, 1'000'000);
  other.next_allowed(kStart + 500ms, 1'000'000);
  other.forgo(kStart + 500ms);
  CHECK(ms(other.next_allowed(kStart + 500ms, 20'000)) == Approx(510.0).epsilon(1e-4));
}

TEST_CASE("a token bucket: who is woken late by at most a burst loses nothing", "[uplink]") {
  TokenBucket bucket(8'000'000, 10'000, kStart);  // 10 ms of lateness
  bucket.spend(kStart, 10'000);
  TimePoint at = kStart;
  for (int i = 1; i <= 10; ++i) {
    at = bucket.next_allowed(at, 100'000);
    CHECK(ms(at) == Approx(100.0 * i).epsilon(1e-4));
    const TimePoint late = at + 9ms;
    REQUIRE(bucket.next_allowed(late, 100'000) == late);
    bucket.spend(late, 100'000);
    at = late;
  }
  // Later than that, and the rest is lost: no more than a burst leaves too early.
  at = bucket.next_allowed(at, 100'000) + 500ms;
  REQUIRE(bucket.next_allowed(at, 100'000) == at);
  bucket.spend(at, 100'000);
  CHECK(ms(bucket.next_allowed(at, 100'000)) == Approx(ms(at) + 90.0).epsilon(1e-4));
}

TEST_CASE("a token bucket: frames that do not wait are paid by the next", "[uplink]") {
  TokenBucket bucket(8'000'000, 1'000, kStart);
  bucket.spend(kStart, 5'000);
  CHECK(ms(bucket.next_allowed(kStart, 1'000)) == Approx(5.0).epsilon(1e-3));
}

TEST_CASE("a token bucket: small frames do not take from a large one what came together for it", "[uplink]") {
  TokenBucket bucket(8'000'000, 1'000, kStart);
  TimePoint at = kStart;
  for (int i = 0; i < 10; ++i) {
    bucket.next_allowed(at, 1'001'000);
    at += 100ms;
    bucket.spend(at, 100);
  }
  CHECK(ms(bucket.next_allowed(at, 1'001'000)) == Approx(1001.0).epsilon(1e-4));
}

TEST_CASE("a token bucket: over any schedule no more leaves than rate × time + burst", "[uplink]") {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Rng rng(seed, 0);
    TokenBucket bucket(1e6 + static_cast<double>(rng.below(100'000'000)), 20'000, kStart);
    TimePoint at = kStart;
    double sent = 0;
    std::uint64_t largest = 0;
    for (int i = 0; i < 200; ++i) {
      const std::uint64_t bytes = 1 + rng.below(300'000);
      largest = std::max(largest, bytes);
      if (rng.below(4) == 0) {
        at += std::chrono::microseconds(rng.below(50'000));
      }
      at = bucket.next_allowed(at, bytes);
      REQUIRE(bucket.next_allowed(at, bytes) == at);  // the promise is kept
      bucket.spend(at, bytes);
      sent += static_cast<double>(bytes);
      REQUIRE(sent <= bucket.bits_per_second() / 8.0 * seconds(at - kStart) + 20'000 + 1);
    }
  }
}

TEST_CASE("an uplink queue: peers take turns, and all together keep to the budget", "[uplink]") {
  UplinkQueue queue(8'000'000, 1000, kStart);
  const IslandId a("a");
  const IslandId b("b");
  for (std::uint64_t i = 0; i < 20; ++i) {
    queue.add(a, want_of("r", i * 50'000, 50'000));
    queue.add(b, want_of("r", i * 50'000, 50'000));
    queue.add(a, want_of("r", i * 50'000, 50'000));  // asked again
  }
  std::map<IslandId, int> pieces;
  TimePoint at = kStart;
  while (true) {
    if (const UplinkQueue::Turn* turn = queue.ready(at, serve_all)) {
      const IslandId peer = turn->peer;
      REQUIRE(queue.pop().piece.offset == 50'000U * static_cast<unsigned>(pieces[peer]));
      ++pieces[peer];
      queue.spend(at, 50'000);
      REQUIRE(std::abs(pieces[a] - pieces[b]) <= 1);
    } else if (const auto next = queue.next_deadline()) {
      at = *next;
    } else {
      break;
    }
  }
  CHECK(pieces[a] == 20);
  CHECK(pieces[b] == 20);
  CHECK(ms(at) == Approx(2000.0).epsilon(0.02));  // 2 MB, less the burst of 20 ms
}

TEST_CASE("an uplink queue: what is not ready costs nothing and holds up nobody", "[uplink]") {
  UplinkQueue queue(8'000'000, 2, kStart);
  const IslandId a("a");
  const IslandId b("b");
  queue.add(a, want_of("parked", 0, 4'000'000));
  CHECK(queue.ready(kStart, [](const IslandId&, const WantOver&) { return std::optional<Served>(); }) == nullptr);
  CHECK_FALSE(queue.next_deadline());
  // Ten idle seconds later only the burst was saved up.
  queue.add(b, want_of("r", 0, 1'000'000));
  CHECK(queue.ready(kStart + 10s, serve_all) == nullptr);
  CHECK(ms(queue.next_deadline().value()) == Approx(10'980.0).epsilon(1e-4));
  // A peer that goes takes its turn with it, and its wants.
  queue.add(a, want_of("r", 0, 1'000));
  queue.drop(b);
  const UplinkQueue::Turn* turn = queue.ready(kStart + 10s, serve_all);
  REQUIRE(turn != nullptr);
  CHECK(turn->peer == a);
  queue.pop();
  // At most so many wants a peer.
  for (std::uint64_t i = 0; i < 5; ++i) {
    queue.add(a, want_of("r", i, 1));
  }
  int served = 0;
  while (queue.ready(kStart + 20s, serve_all) != nullptr) {
    queue.pop();
    ++served;
  }
  CHECK(served == 2);
}

}  // namespace of_uplink_queue_test
