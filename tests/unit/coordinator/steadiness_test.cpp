// What counts as unsteady, and for how long.
#include "coordinator/core/steadiness.hpp"

#include "tests/catch.hpp"

namespace of_steadiness_test {

using namespace atl;
using namespace atl::coordinator;
using namespace std::chrono_literals;

namespace {

const TimePoint kStart = from_unix_ms(1'700'000'000'000);
const IslandId a("a");
const IslandId b("b");
const IslandId c("c");
const UnsteadyPath kPath{a, b};

Availability told(std::uint32_t changes, double share, Duration steady = 1s) {
  const Duration watched = 60s;
  return {watched, std::chrono::duration_cast<Duration>(watched * share), changes, steady};
}

// How long it takes until it counts as steady.
Duration until_steady(Steadiness& steadiness, TimePoint now) {
  for (TimePoint at = now; at < now + 2h; at += 1s) {
    if (!steadiness.settle(at).empty()) {
      return at - now;
    }
  }
  return 2h;
}

}  // namespace

TEST_CASE("three absences of more than a tenth of the time make a path unsteady, and one outage or a few moments do not") {
  Steadiness steadiness;
  CHECK_FALSE(steadiness.report(kPath, told(1, 0.2, 0s), kStart));
  CHECK_FALSE(steadiness.report(kPath, told(2, 0.2), kStart));
  CHECK_FALSE(steadiness.report(kPath, told(4, 0.5), kStart));
  CHECK_FALSE(steadiness.report(kPath, told(40, 0.95), kStart));
  CHECK(steadiness.steady(a, b));
  CHECK(steadiness.report(kPath, told(5, 0.5), kStart));
  CHECK_FALSE(steadiness.report(kPath, told(7, 0.5), kStart + 1s));  // that is no news
  CHECK_FALSE(steadiness.steady(a, b));
  CHECK_FALSE(steadiness.steady(b, a));
  CHECK(steadiness.steady(a, c));
}

TEST_CASE("what was unsteady is trusted after a time that doubles up to a bound, and is unsteady again with its next absence") {
  Steadiness steadiness;
  TimePoint now = kStart;
  REQUIRE(steadiness.report(kPath, told(10, 0.5), now));
  std::vector<Duration> waited;
  for (int i = 0; i < 6; ++i) {
    waited.push_back(until_steady(steadiness, now));
    now += waited.back() + 10s;
    CHECK_FALSE(steadiness.report(kPath, told(10, 0.5, 5min), now));  // of the time before
    CHECK(steadiness.steady(a, b));
    REQUIRE(steadiness.report(kPath, told(1, 0.95, 0s), now));
  }
  CHECK(waited == std::vector<Duration>{59s, 120s, 240s, 480s, 480s, 480s});
  now += until_steady(steadiness, now) + 2h;
  CHECK_FALSE(steadiness.report(kPath, told(2, 0.5), now));  // as one that is new
}

TEST_CASE("while it comes and goes the time until it is trusted begins anew") {
  Steadiness steadiness;
  for (TimePoint now = kStart; now < kStart + 10min; now += 6s) {
    steadiness.report(kPath, told(20, 0.5), now);
    CHECK(steadiness.settle(now).empty());
  }
  CHECK(until_steady(steadiness, kStart + 10min) <= 60s);
}

TEST_CASE("most of an island's paths are its link") {
  Steadiness steadiness;
  steadiness.report({a, b}, told(10, 0.5), kStart);
  const std::vector<IslandId> all = {a, b, c};
  CHECK_FALSE(steadiness.restless(a, all));
  CHECK_FALSE(steadiness.restless(b, all));
  steadiness.report({b, c}, told(10, 0.4), kStart);
  CHECK(steadiness.restless(b, all));
  CHECK_FALSE(steadiness.restless(a, all));
  CHECK_FALSE(steadiness.restless(c, all));
  CHECK_FALSE(steadiness.restless(a, {a, b}));  // of two nobody knows whose it is
  CHECK(steadiness.among({a, c}).empty());
  CHECK(steadiness.among(all).size() == 2);
}

// Ten minutes in which three of four islands were stopped and cut off again and again had the fourth left out.
TEST_CASE("paths to islands whose own links come and go make nobody's link one that does") {
  Steadiness steadiness;
  const IslandId d("d");
  const std::vector<IslandId> all = {a, b, c, d};
  for (const IslandId& other : {b, c, d}) {
    steadiness.report({a, other}, told(10, 0.5), kStart);
    steadiness.report({other, a}, told(10, 0.5), kStart);
  }
  CHECK(steadiness.restless(a, all));  // as far as is known
  steadiness.quiet(b, kStart, kStart + 4s);
  steadiness.lost(c, kStart + 20s);
  steadiness.back(c, false, kStart + 25s);
  CHECK(steadiness.suspected(b));
  CHECK(steadiness.suspected(c));
  CHECK_FALSE(steadiness.suspected(d));
  CHECK_FALSE(steadiness.restless(a, all));
  CHECK_FALSE(steadiness.steady(a, b));
  // Nobody remembers it for ever, nor holds it against an agent that was started anew.
  steadiness.settle(kStart + 10min);
  CHECK_FALSE(steadiness.suspected(b));
  steadiness.lost(c, kStart + 10min);
  steadiness.back(c, true, kStart + 11min);
  CHECK_FALSE(steadiness.suspected(c));
}

TEST_CASE("an island that is lost three times within five minutes is unsteady, one that is started anew is not") {
  Steadiness steadiness;
  CHECK_FALSE(steadiness.lost(a, kStart));
  steadiness.back(a, false, kStart + 10s);
  CHECK_FALSE(steadiness.lost(a, kStart + 1min));
  steadiness.back(a, false, kStart + 70s);
  CHECK(steadiness.steady(a, b));
  CHECK(steadiness.lost(a, kStart + 2min));
  steadiness.back(a, false, kStart + 10min);
  CHECK_FALSE(steadiness.steady(a, b));
  CHECK(steadiness.restless(a, {}));
  CHECK(until_steady(steadiness, kStart + 10min) == 60s);
  Steadiness other;
  for (int i = 0; i < 10; ++i) {
    CHECK_FALSE(other.lost(a, kStart + i * 20s));
    other.back(a, true, kStart + i * 20s + 5s);
  }
  Steadiness rare;
  for (int i = 0; i < 10; ++i) {
    CHECK_FALSE(rare.lost(a, kStart + i * 3min));
    rare.back(a, false, kStart + i * 3min + 5s);
  }
}

TEST_CASE("an island whose heartbeats stay away again and again for a tenth of the time is unsteady, of a few late ones it is not") {
  Steadiness steadiness;
  steadiness.back(a, true, kStart);
  TimePoint at = kStart;
  std::optional<TimePoint> begun;
  for (int i = 0; i < 10; ++i, at += 6s) {
    if (steadiness.quiet(a, at, at + 3200ms)) {
      CHECK(!begun);
      begun = at;
    }
  }
  REQUIRE(begun);
  CHECK(*begun - kStart <= 20s);
  CHECK(steadiness.restless(a, {b, c}));
  CHECK(steadiness.of({IslandId(), a}, at).share() == Approx(0.47).margin(0.02));
  CHECK(until_steady(steadiness, at) <= 60s);
  CHECK_FALSE(steadiness.quiet(a, at + 5min, at + 5min + 3s));
  CHECK(steadiness.quiet(a, at + 6min, at + 6min + 3s));
  Steadiness loaded;
  loaded.back(a, true, kStart);
  for (int i = 0; i < 20; ++i) {
    CHECK_FALSE(loaded.quiet(a, kStart + (i + 1) * 30s, kStart + (i + 1) * 30s + 2600ms));
  }
}

TEST_CASE("a link's rhythm is told by what happened within the minutes that are looked back at") {
  const Availability nothing{5min, 5min, 0, 5min};
  CHECK(rhythm_text(nothing, 0) == "came and went, and is not trusted again yet");
  CHECK(rhythm_text(nothing, 1) == "comes and goes: it was lost 1 time in the last 5m00s");
  CHECK(rhythm_text({5min, 150s, 49, 1s}, 3) == "comes and goes: it was lost 3 times in the last 5m00s");
  CHECK(rhythm_text({5min, 153s, 49, 1s}, 0) == "comes and goes: 25 times in the last 5m00s, there 51 % of that time");
}

}  // namespace of_steadiness_test
