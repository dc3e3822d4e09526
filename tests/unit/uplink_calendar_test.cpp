// The calendar of an uplink: as a table of times, with each mistake, and as the pace of what leaves on virtual time.
#include "agent/service/uplink_calendar.hpp"

#include <map>
#include <memory>

#include "tests/catch.hpp"
#include "transport/base/bytes.hpp"
#include "transport/bulk/uplink_queue.hpp"

namespace of_uplink_calendar_test {

using namespace atl;
using namespace std::chrono_literals;
using agent::UplinkCalendar;
using agent::WeekTime;

namespace {

enum Day { mon, tue, wed, thu, fri, sat, sun };

constexpr double kMbit = 1e6;

double rate(const char* calendar, int day, int hour, int minute) {
  return UplinkCalendar::parse(calendar).value().rate_at(WeekTime{day, 60 * hour + minute});
}

}  // namespace

TEST_CASE("an uplink's calendar: what holds when") {
  struct Row {
    const char* calendar;
    int day, hour, minute;
    double mbit;
  };
  for (const Row& row : std::vector<Row>{{"50mbit", tue, 12, 0, 50},
                                         {"max", tue, 12, 0, 0},
                                         {"50mbit 08:00-18:00, 500mbit otherwise", mon, 7, 59, 500},
                                         {"50mbit 08:00-18:00, 500mbit otherwise", mon, 8, 0, 50},
                                         {"50mbit 08:00-18:00, 500mbit otherwise", sun, 17, 59, 50},
                                         {"50mbit 08:00-18:00, 500mbit otherwise", sun, 18, 0, 500},
                                         // Across midnight.
                                         {"max 22:00-06:00, 10mbit otherwise", wed, 21, 59, 10},
                                         {"max 22:00-06:00, 10mbit otherwise", wed, 22, 0, 0},
                                         {"max 22:00-06:00, 10mbit otherwise", thu, 0, 0, 0},
                                         {"max 22:00-06:00, 10mbit otherwise", thu, 5, 59, 0},
                                         {"max 22:00-06:00, 10mbit otherwise", thu, 6, 0, 10},
                                         {"2mbit 18:00-24:00, 1mbit 00:00-06:00, 3mbit otherwise", sat, 23, 59, 2},
                                         {"2mbit 18:00-24:00, 1mbit 00:00-06:00, 3mbit otherwise", sun, 0, 0, 1},
                                         {"2mbit 18:00-24:00, 1mbit 00:00-06:00, 3mbit otherwise", sun, 6, 0, 3},
                                         {"2mbit 18:00-00:00, 3mbit otherwise", sun, 23, 59, 2},
                                         {"2mbit 18:00-00:00, 3mbit otherwise", mon, 0, 0, 3},
                                         {"2mbit 00:00-24:00, 3mbit otherwise", mon, 23, 59, 2},
                                         // Days. A span over midnight is of the day on which it begins.
                                         {"5mbit mon-fri 08:00-18:00, 50mbit otherwise", fri, 12, 0, 5},
                                         {"5mbit mon-fri 08:00-18:00, 50mbit otherwise", sat, 12, 0, 50},
                                         {"5mbit fri 22:00-06:00, 50mbit otherwise", fri, 23, 0, 5},
                                         {"5mbit fri 22:00-06:00, 50mbit otherwise", sat, 5, 59, 5},
                                         {"5mbit fri 22:00-06:00, 50mbit otherwise", fri, 5, 0, 50},
                                         {"5mbit fri 22:00-06:00, 50mbit otherwise", sat, 22, 0, 50},
                                         {"5mbit sun 22:00-06:00, 50mbit otherwise", mon, 3, 0, 5},
                                         {"5mbit sat-mon 00:00-24:00, 50mbit otherwise", mon, 12, 0, 5},
                                         {"5mbit sat-mon 00:00-24:00, 50mbit otherwise", sat, 0, 0, 5},
                                         {"5mbit sat-mon 00:00-24:00, 50mbit otherwise", tue, 0, 0, 50},
                                         {"5mbit sat-mon 00:00-24:00, 50mbit otherwise", fri, 23, 59, 50},
                                         // The first of several holds.
                                         {"1mbit 12:00-13:00, 5mbit 08:00-18:00, 50mbit otherwise", mon, 12, 30, 1},
                                         {"5mbit 08:00-18:00, 1mbit 12:00-13:00, 50mbit otherwise", mon, 12, 30, 5},
                                         {"  5mbit   mon  08:00-18:00 ,50mbit otherwise ", mon, 8, 0, 5}}) {
    INFO(row.calendar << " on day " << row.day << " at " << row.hour << ":" << row.minute);
    CHECK(rate(row.calendar, row.day, row.hour, row.minute) == row.mbit * kMbit);
  }
  CHECK_FALSE(UplinkCalendar::parse("50mbit").value().changes());
  CHECK(UplinkCalendar::parse("5mbit 08:00-18:00, 50mbit otherwise").value().changes());
  CHECK(UplinkCalendar().rate_at({}) == 0);
}

TEST_CASE("an uplink's calendar: each minute of the week has one rate, and over a week each has its hours") {
  const UplinkCalendar calendar = UplinkCalendar::parse("5mbit mon-fri 08:00-18:00, 2mbit sat 20:00-04:00, 50mbit otherwise").value();
  std::map<double, int> minutes;
  for (int day = 0; day < 7; ++day) {
    for (int minute = 0; minute < 24 * 60; ++minute) {
      ++minutes[calendar.rate_at({day, minute})];
    }
  }
  CHECK(minutes == std::map<double, int>{{5e6, 5 * 600}, {2e6, 480}, {50e6, 7 * 1440 - 5 * 600 - 480}});
}

TEST_CASE("an uplink's calendar: each mistake in one line") {
  for (const auto& [calendar, why] :
       std::map<std::string, std::string>{{"", "is not a rate"},
                                          {"fast", "\"fast\" is not a rate"},
                                          {"100kbit", "at least 500kbit"},
                                          {"50mbit 08:00-18:00", "does not say what holds at other times"},
                                          {"50mbit otherwise, 5mbit otherwise", "says twice what holds otherwise"},
                                          {"50mbit otherwise, 5mbit 08:00-18:00", "comes after what holds otherwise"},
                                          {"50mbit 8:00-18:00, 5mbit otherwise", "\"8:00\" is not a time of day"},
                                          {"50mbit 08:00-25:00, 5mbit otherwise", "\"25:00\" is not a time of day"},
                                          {"50mbit 08:00-24:01, 5mbit otherwise", "\"24:01\" is not a time of day"},
                                          {"50mbit 08:60-18:00, 5mbit otherwise", "\"08:60\" is not a time of day"},
                                          {"50mbit 08:00, 5mbit otherwise", "\"08:00\" is not a span of the day"},
                                          {"50mbit 08:00-08:00, 5mbit otherwise", "no time at all"},
                                          {"50mbit 24:00-06:00, 5mbit otherwise", "begins at the end of a day"},
                                          {"50mbit Monday 08:00-18:00, 5mbit otherwise", "\"Monday\" is not a day"},
                                          {"50mbit mon-tue-wed 08:00-18:00, 5mbit otherwise", "is not a day, or two with - between"},
                                          {"50mbit at 08:00-18:00 daily, 5mbit otherwise", "is not a rate with a span"},
                                          {"5mbit 08:00-18:00,, 50mbit otherwise", "is not a rate with a span"},
                                          {"slow 08:00-18:00, 5mbit otherwise", "\"slow\" is not a rate"},
                                          {"5mbit 08:00-18:00, slow otherwise", "\"slow\" is not a rate"}}) {
    const Result<UplinkCalendar> refused = UplinkCalendar::parse(calendar);
    INFO(calendar);
    REQUIRE_FALSE(refused);
    INFO(refused.error().why);
    CHECK(refused.error().code == Code::invalid_argument);
    CHECK(refused.error().why.find(why) != std::string::npos);
    CHECK(refused.error().why.find('\n') == std::string::npos);
  }
}

TEST_CASE("an uplink's calendar: what leaves has the rate in force to 2 %, on both sides of a boundary") {
  // From 17:59 to 18:01 of a Tuesday, on virtual time: the queue's rate is set as an agent sets it, once a second.
  const UplinkCalendar calendar = UplinkCalendar::parse("8mbit 08:00-18:00, 80mbit otherwise").value();
  const auto at_second = [](int second) { return WeekTime{tue, 17 * 60 + 59 + second / 60}; };
  const TimePoint start(1000s);
  UplinkQueue queue(calendar.rate_at(at_second(0)), 64, start);
  const IslandId peer("peer");
  const auto answer = [](const IslandId&, const WantOver& asked) -> std::optional<Served> {
    const Want& want = asked.want;
    static const auto bytes = std::make_shared<Bytes>(64 << 10);
    return Served{BlobPiece{want.blob, want.offset, want.offset + want.length, want.length}, Payload{*bytes, bytes}};
  };
  std::map<int, double> bits;  // by second
  std::uint64_t number = 0;
  for (TimePoint at = start; at < start + 120s;) {
    const int second = static_cast<int>((at - start) / 1s);
    queue.set_rate(calendar.rate_at(at_second(second)), at);
    queue.add(peer,
              Want{BlobId{RunId("run"), Epoch(1), Round(1), Attempt(1), BlobKind::contribution, 0}, 64U * (number++ << 10), 64 << 10});
    while (queue.ready(at, answer) != nullptr) {
      const Served served = queue.pop();
      queue.spend(at, served.piece.length);
      bits[second] += 8.0 * served.piece.length;
    }
    const TimePoint next_second = start + (second + 1) * 1s;
    at = std::max(at + Duration(1), std::min(next_second, queue.next_deadline().value_or(next_second)));
  }
  const auto mean = [&](int from, int until) {
    double sum = 0;
    for (int second = from; second < until; ++second) {
      sum += bits[second];
    }
    return sum / (until - from);
  };
  CHECK(mean(5, 60) == Approx(8e6).epsilon(0.02));
  CHECK(mean(60, 120) == Approx(80e6).epsilon(0.02));
  CHECK(bits[59] < 1.2 * 8e6);
  CHECK(bits[60] > 0.9 * 80e6);
}

}  // namespace of_uplink_calendar_test
