// What punching a hole decides without a socket: words, moments, and when it is tried again.
#include "tests/catch.hpp"
#include "transport/base/rng.hpp"
#include "transport/relay/hole_words.hpp"
#include "transport/relay/punch_record.hpp"
#include "transport/relay/relay_book.hpp"

namespace of_hole_punch_test {

using namespace atl;
using namespace std::chrono_literals;

namespace {

const TimePoint kStart = from_unix_ms(1'767'225'600'000);

SeenAddress ipv4(int a, int b, int c, int d, std::uint16_t port) {
  SeenAddress address;
  address.host[10] = address.host[11] = std::byte{0xff};
  const std::array numbers = {a, b, c, d};
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    address.host[12 + i] = static_cast<std::byte>(numbers[i]);
  }
  address.port = port;
  return address;
}

HoleBegin begin_at(const SeenAddress& peer, Duration wait = 30ms) {
  HoleBegin begin{SocksAnswer::joined, peer, wait, {}};
  begin.token.fill(std::byte{7});
  return begin;
}

}  // namespace

TEST_CASE("hole punching: what is said is read as it was said") {
  const HoleSeen seen{ipv4(203, 0, 113, 7, 40'001), 4403};
  const Bytes bytes = to_bytes(seen);
  REQUIRE(bytes.size() == kHoleSeenBytes);
  CHECK(read_hole_seen(bytes)->self == seen.self);
  CHECK(read_hole_seen(bytes)->second_port == 4403);
  const Bytes begun = to_bytes(begin_at(seen.self));
  REQUIRE(begun.size() == kHoleBeginBytes);
  const HoleBegin read = read_hole_begin(begun, false).value();
  CHECK(read.peer == seen.self);
  CHECK(read.wait == 30ms);
  CHECK(read.token == begin_at(seen.self).token);
  CHECK(read_seen_address(to_bytes(seen.self)).value() == seen.self);
}

TEST_CASE("hole punching: a relay cannot have an island dial services, nobody, everybody, or itself, nor wait for long") {
  const auto refused = [](const HoleBegin& begin, bool from_here = false) { return !read_hole_begin(to_bytes(begin), from_here); };
  CHECK_FALSE(refused(begin_at(ipv4(203, 0, 113, 7, 1024))));
  CHECK(refused(begin_at(ipv4(203, 0, 113, 7, 1023))));
  CHECK(refused(begin_at(ipv4(203, 0, 113, 7, 0))));
  CHECK(refused(begin_at(ipv4(0, 0, 0, 0, 40'000))));
  CHECK(refused(begin_at(ipv4(224, 0, 0, 1, 40'000))));
  CHECK(refused(begin_at(ipv4(255, 255, 255, 255, 40'000))));
  CHECK(refused(begin_at(ipv4(127, 0, 0, 1, 40'000))));
  CHECK_FALSE(refused(begin_at(ipv4(127, 0, 0, 1, 40'000)), true));
  CHECK(refused(begin_at(ipv4(203, 0, 113, 7, 40'000), 2001ms)));
  SeenAddress none;
  none.port = 40'000;
  CHECK(refused(begin_at(none)));
  none.host[15] = std::byte{1};
  CHECK(refused(begin_at(none)));
  none.host[0] = std::byte{0xff};
  CHECK(refused(begin_at(none)));
  Rng rng(5);
  for (int i = 0; i < 2000; ++i) {
    Bytes bytes(static_cast<std::size_t>(rng.below(kHoleBeginBytes + 3)));
    for (std::byte& byte : bytes) {
      byte = static_cast<std::byte>(rng.below(256));
    }
    const Result<HoleBegin> begin = read_hole_begin(bytes, false);
    CHECK((!begin || bytes.size() == kHoleBeginBytes));
    (void)read_hole_seen(bytes);
    (void)read_seen_address(bytes);
  }
}

TEST_CASE("hole punching: the farther island begins at once, the nearer one later by half of the difference of the round trips") {
  const HoleMoments moments = moments_of(120ms, 20ms);
  CHECK(moments.first == 0ms);
  CHECK(moments.second == 50ms);
  CHECK(120ms / 2 + moments.first == 20ms / 2 + moments.second);
  CHECK(moments_of(20ms, 120ms).first == 50ms);
  CHECK(moments_of(0ms, 1h).first == kLongestHoleWait);
}

TEST_CASE("hole punching: what fails is tried again later each time, and at once after a way was lost") {
  PunchRecord record;
  CHECK(record.may_try(kStart));
  record.failed(NotPunched::nothing_came, kStart);
  CHECK_FALSE(record.may_try(kStart + kPunchAgain - 1s));
  CHECK(record.may_try(kStart + kPunchAgain));
  record.failed(NotPunched::nothing_came, kStart + kPunchAgain);
  CHECK_FALSE(record.may_try(kStart + 2 * kPunchAgain));
  CHECK(record.may_try(kStart + 3 * kPunchAgain));
  for (int i = 0; i < 20; ++i) {
    record.failed(NotPunched::nothing_came, kStart);
  }
  CHECK(record.again() == kStart + kPunchAgainAtMost);
  record.forget();
  CHECK(record.may_try(kStart));
  record.failed(NotPunched::own_router, kStart);
  CHECK(record.again() == kStart + kPunchAgainAtMost);
  CHECK(record.why() == NotPunched::own_router);
}

TEST_CASE("hole punching: at a relay those that punch meet among themselves") {
  RelayBook book({});
  const IslandId reef("i-1");
  const IslandId shoal("i-2");
  CHECK_FALSE(book.admit(1, {reef, shoal, true}, kStart).partner);
  CHECK_FALSE(book.admit(2, {shoal, reef, false}, kStart).partner);
  CHECK(book.admit(3, {shoal, reef, true}, kStart).partner == 1);
  CHECK(book.admit(4, {reef, shoal, false}, kStart).partner == 2);
}

}  // namespace of_hole_punch_test
