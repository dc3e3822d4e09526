// Emulated paths on virtual time: when bytes leave and arrive, against what the path's terms say.
#include "transport/emulated/emulated_stream.hpp"

#include <array>
#include <cmath>
#include <deque>
#include <vector>

#include "tests/catch.hpp"

namespace of_emulated_stream_test {

using namespace atl;
using namespace std::chrono_literals;

namespace {

const TimePoint kStart(1000s);

LinkTerms terms_of(const char* text) { return parse_link(text).value(); }

struct Island {
  explicit Island(const LinkTerms& terms) : out{terms.bits_per_second / 8, {}}, in(out) {}
  LineWay out;
  LineWay in;
};

// A stream whose sender always has something and whose receiver reads at once, unless it is told otherwise.
struct Flow {
  Flow(const LinkTerms& terms, Island& from, Island& to, std::uint64_t seed = 1) : stream(terms, &from.out, &to.in, Rng(seed)) {}
  EmulatedStream stream;
  std::uint64_t came = 0;
  std::uint64_t went = 0;
  std::vector<std::pair<TimePoint, std::uint64_t>> arrivals;  // how much had come by then
};

// Drives flows that share lines from `from` until `until`, each chunk in turn. A driver that is `late` is woken so long after each
// deadline.
void drive(std::vector<Flow*> flows, TimePoint from, TimePoint until, Duration late = {}) {
  TimePoint at = from;
  while (at < until) {
    bool moved = true;
    while (moved) {
      moved = false;
      for (Flow* flow : flows) {
        if (const std::uint64_t bytes = flow->stream.may_leave(at); bytes > 0) {
          flow->stream.left(at, bytes);
          flow->went += bytes;
          moved = true;
        }
        if (const std::uint64_t bytes = flow->stream.arrived(at); bytes > 0) {
          flow->stream.handed_over(bytes);
          flow->came += bytes;
          flow->arrivals.emplace_back(at, flow->came);
          moved = true;
        }
      }
    }
    TimePoint next = until;
    for (const Flow* flow : flows) {
      next = std::min({next, flow->stream.next_leave().value_or(next), flow->stream.next_arrival().value_or(next)});
    }
    at = std::max(at + Duration(1), next + late);
  }
}

double bytes_per_second(const Flow& flow, TimePoint from, TimePoint until) {
  std::uint64_t before = 0;
  std::uint64_t by_then = 0;
  for (const auto& [at, came] : flow.arrivals) {
    if (at > until) {
      break;
    }
    before = at <= from ? came : before;
    by_then = came;
  }
  return static_cast<double>(by_then - before) / seconds(until - from);
}

}  // namespace

TEST_CASE("emulated path: a single byte comes half a round trip after it left, at any rate and whatever the driver's pace") {
  for (const char* text : {"200us,max,0", "20ms,1gbit,0", "100ms,100mbit,0", "300ms,10mbit,0"}) {
    const LinkTerms terms = terms_of(text);
    Island a(terms);
    Island b(terms);
    EmulatedStream stream(terms, &a.out, &b.in, Rng(1));
    REQUIRE(stream.may_leave(kStart) >= 1);
    stream.left(kStart, 1);
    REQUIRE(stream.next_arrival());
    INFO(text);
    CHECK(seconds(*stream.next_arrival() - kStart) == Approx(seconds(terms.round_trip) / 2).epsilon(0.02).margin(1e-6));
    CHECK(stream.arrived(*stream.next_arrival() - Duration(1)) == 0);
    CHECK(stream.arrived(*stream.next_arrival()) == 1);
  }
}

TEST_CASE("emulated path: what it carries is its rate, within 2 %, near and far, for a driver that comes late too") {
  for (const char* text : {"0,100mbit,0", "20ms,100mbit,0", "300ms,100mbit,0", "200us,1gbit,0", "300ms,1gbit,0", "100ms,10gbit,0"}) {
    for (const Duration late : {Duration{}, Duration(3ms)}) {
      const LinkTerms terms = terms_of(text);
      Island a(terms);
      Island b(terms);
      Flow flow(terms, a, b);
      drive({&flow}, kStart, kStart + 3s, late);
      INFO(text << ", late by " << seconds(late));
      CHECK(bytes_per_second(flow, kStart + 1s, kStart + 3s) * 8 == Approx(terms.bits_per_second).epsilon(0.02));
    }
  }
}

TEST_CASE("emulated path: each direction of an island's line has the rate by itself, and streams share one equally") {
  const LinkTerms terms = terms_of("50ms,100mbit,0");
  Island a(terms);
  Island b(terms);
  Island c(terms);
  Flow to_b(terms, a, b);
  Flow to_c(terms, a, c);
  Flow to_c_again(terms, a, c);
  Flow back(terms, b, a);
  drive({&to_b, &to_c, &to_c_again, &back}, kStart, kStart + 4s);
  const auto mbits = [&](const Flow& flow) { return bytes_per_second(flow, kStart + 1s, kStart + 4s) * 8 / 1e6; };
  CHECK(mbits(to_b) + mbits(to_c) + mbits(to_c_again) == Approx(100).epsilon(0.02));
  for (const Flow* flow : {&to_b, &to_c, &to_c_again}) {
    CHECK(mbits(*flow) == Approx(100.0 / 3).epsilon(0.05));
  }
  CHECK(mbits(back) == Approx(100).epsilon(0.02));
}

TEST_CASE("emulated path: what several send to one island shares its way in, and no more than a queue of it is on its way") {
  const LinkTerms terms = terms_of("50ms,100mbit,0");
  std::array<Island, 4> islands{Island(terms), Island(terms), Island(terms), Island(terms)};
  std::deque<Flow> flows;
  std::vector<Flow*> all;
  for (std::size_t i = 1; i < islands.size(); ++i) {
    flows.emplace_back(terms, islands[i], islands[0], i);
  }
  for (Flow& flow : flows) {
    all.push_back(&flow);
  }
  drive(all, kStart, kStart + 4s);
  double sum = 0;
  std::uint64_t in_flight = 0;
  for (const Flow& flow : flows) {
    const double mbits = bytes_per_second(flow, kStart + 1s, kStart + 4s) * 8 / 1e6;
    CHECK(mbits == Approx(100.0 / 3).epsilon(0.05));
    sum += mbits;
    in_flight += flow.stream.in_flight();
  }
  CHECK(sum == Approx(100).epsilon(0.02));
  CHECK(static_cast<double>(in_flight) <= 12.5e6 * (0.025 + 0.010) * 1.1);  // half a round trip, and the queue
  // A sender that shares nothing with them is not held up.
  Flow other(terms, islands[1], islands[2]);
  all.push_back(&other);
  drive(all, kStart + 4s, kStart + 7s);
  CHECK(bytes_per_second(other, kStart + 5s, kStart + 7s) * 8 / 1e6 > 60);
}

TEST_CASE("emulated path: a receiver that does not read stops the sender, and what waited for it travels anew") {
  const LinkTerms terms = terms_of("100ms,1gbit,0");
  Island a(terms);
  Island b(terms);
  EmulatedStream stream(terms, &a.out, &b.in, Rng(1));
  TimePoint at = kStart;
  std::uint64_t went = 0;
  while (at < kStart + 2s) {
    const std::uint64_t bytes = stream.may_leave(at);
    if (bytes > 0) {
      stream.left(at, bytes);
      went += bytes;
    }
    stream.arrived(at);
    at += 100us;
  }
  const std::uint64_t unread = stream.arrived(at);
  CHECK(unread == went);
  CHECK(static_cast<double>(went) <= EmulatedStream::kMostUnread + 125e6 * 0.05 * 1.05);
  CHECK(stream.may_leave(at) == 0);
  CHECK(!stream.next_leave());
  stream.handed_over(unread);
  const std::uint64_t next = stream.may_leave(at);
  REQUIRE(next > 0);
  stream.left(at, next);
  REQUIRE(stream.next_arrival());
  CHECK(*stream.next_arrival() >= at + 50ms);
}

TEST_CASE("emulated path: an idle line gives nothing back") {
  const LinkTerms terms = terms_of("10ms,100mbit,0");
  Island a(terms);
  Island b(terms);
  Flow flow(terms, a, b);
  drive({&flow}, kStart, kStart + 100ms);
  flow.stream.nothing_waits();
  const TimePoint later = kStart + 10s;
  flow.came = 0;
  flow.arrivals.clear();
  drive({&flow}, later, later + 1s);
  CHECK(static_cast<double>(flow.came) <= 12.5e6 * 1.01);
}

TEST_CASE("emulated path: with loss and no other limit a stream has the rate of Reno's formula") {
  // Mathis, Semke, Mahdavi, Ott, "The macroscopic behavior of the TCP congestion avoidance algorithm", CCR 1997, eq. 3: C = sqrt(3/2)
  // segments a round trip over the square root of the loss. Here only segments' first losses in a window halve it, as there.
  for (const auto& [text, loss] :
       std::vector<std::pair<const char*, double>>{{"100ms,max,0.01%", 1e-4}, {"20ms,max,0.1%", 1e-3}, {"50ms,max,0.03%", 3e-4}}) {
    const LinkTerms terms = terms_of(text);
    Island a(terms);
    Island b(terms);
    Flow flow(terms, a, b, 7);
    const Duration time = terms.round_trip * 20'000;
    drive({&flow}, kStart, kStart + time);
    const double formula = std::sqrt(1.5 / loss) * kSegmentBytes / seconds(terms.round_trip);
    INFO(text);
    CHECK(bytes_per_second(flow, kStart + time / 10, kStart + time) == Approx(formula).epsilon(0.15));
  }
}

TEST_CASE("emulated path: a loss delays what was sent behind it by a round trip, in order, and halves the window once") {
  LinkTerms terms = terms_of("100ms,max,5%");
  Island a(terms);
  Island b(terms);
  Flow flow(terms, a, b, 3);
  TimePoint last{};
  drive({&flow}, kStart, kStart + 30s);
  for (const auto& [at, came] : flow.arrivals) {
    CHECK(at >= last);
    last = at;
  }
  // Nothing is lost for good: what left has come, or is on its way.
  CHECK(flow.came + flow.stream.in_flight() + flow.stream.arrived(kStart + 30s) == flow.went);
  CHECK(flow.stream.window() >= 2.0 * kSegmentBytes);
  // A stream without loss begins with no window at all: the same time brings far more.
  terms.loss = 0;
  Flow clean(terms, a, b, 3);
  drive({&clean}, kStart, kStart + 1s);
  CHECK(clean.came > 20 * flow.came / 30);
}

TEST_CASE("emulated path: with loss it begins with ten segments and doubles with each round trip") {
  const LinkTerms terms = terms_of("100ms,max,0.0000001%");
  Island a(terms);
  Island b(terms);
  Flow flow(terms, a, b, 1);
  drive({&flow}, kStart, kStart + 1s);
  std::array<double, 6> segments{};
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const TimePoint begin = kStart + 40ms + i * 100ms;
    segments[i] = bytes_per_second(flow, begin, begin + 100ms) * 0.1 / kSegmentBytes;
  }
  CHECK(segments[0] == Approx(10));
  for (std::size_t i = 1; i < segments.size(); ++i) {
    CHECK(segments[i] == Approx(2 * segments[i - 1]).epsilon(0.01));
  }
}

TEST_CASE("emulated path: the terms as people write them, and each mistake in one line") {
  CHECK(terms_of("100ms,1gbit,0") == LinkTerms{100ms, 1e9, 0});
  CHECK(terms_of(" 0 , max , 0.1% ") == LinkTerms{0ms, 0, 0.001});
  CHECK(to_string(terms_of("100ms,1gbit,0")) == "round trip 100 ms, 1 Gbit/s each way, no loss");
  CHECK(to_string(terms_of("0.2ms,max,0.1%")) == "round trip 0.2 ms, as fast as this machine goes, 0.1 % of the segments lost");
  for (const auto& [text, why] :
       std::vector<std::pair<const char*, const char*>>{{"100ms", "these are 1 parts and not three"},
                                                        {"100ms,1gbit,0,0", "these are 4 parts and not three"},
                                                        {"fast,1gbit,0", "the round trip \"fast\" is not a time"},
                                                        {"-1ms,1gbit,0", "the round trip \"-1ms\" is not a time"},
                                                        {"11s,1gbit,0", "longer than 10 s"},
                                                        {"1ms,100,0", "the rate \"100\" is not a rate"},
                                                        {"1ms,100kbit,0", "at least 500kbit"},
                                                        {"1ms,1gbit,0.1", "the loss \"0.1\" is neither 0 nor a percentage like 0.1%"},
                                                        {"1ms,1gbit,30%", "the loss \"30%\" is not a percentage from 0% to 20%"},
                                                        {"1ms,1gbit,-1%", "the loss \"-1%\" is not a percentage from 0% to 20%"},
                                                        {"1ms,1gbit,", "the loss \"\" is neither 0"}}) {
    const Result<LinkTerms> refused = parse_link(text);
    INFO(text);
    REQUIRE(!refused);
    CHECK(refused.error().code == Code::invalid_argument);
    INFO(refused.error().why);
    CHECK(refused.error().why.find(why) != std::string::npos);
    CHECK(refused.error().why.find("RTT,RATE,LOSS") != std::string::npos);
  }
}

}  // namespace of_emulated_stream_test
