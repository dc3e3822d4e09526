// What the coordinator makes of islands that come and go: of their heartbeats, and of what they tell of paths.
#include <functional>

#include "coordinator/core/core.hpp"
#include "tests/catch.hpp"

namespace of_unsteady_paths_test {

namespace {

using namespace atl;
using namespace atl::coordinator;
using namespace std::chrono_literals;

const TimePoint kStart = from_unix_ms(1'700'000'000'000);

struct Bench {
  TimePoint now = kStart;
  Core core{Settings{}, Recovered{}, now};
  std::vector<std::string> told;  // events of paths

  Bench() {
    for (const std::string name : {"a", "b", "c"}) {
      core.admit(now, IslandId(name), name, "key-" + name);
      Hello message;
      message.name = name;
      message.boot = 1;
      message.bulk_address = "tcp://" + name + ":4401";
      say(name, message);
    }
  }
  void look() {
    for (const Record& record : core.take_ready().records) {
      if (const auto* event = std::get_if<EventRecord>(&record); event != nullptr && event->kind.starts_with("path_")) {
        told.push_back(event->kind + ": " + event->text);
      }
    }
  }
  void say(const std::string& name, const Message& message) {
    core.step(now, IslandId(name), 1, message);
    look();
  }
  // Heartbeats, of those whose link is up.
  void run(Duration duration, const std::function<bool(const std::string&, TimePoint)>& up) {
    for (const TimePoint end = now + duration; now < end; now += 1s) {
      for (const std::string name : {"a", "b", "c"}) {
        if (up(name, now)) {
          say(name, Heartbeat{1, {}});
        }
      }
      core.tick(now);
      look();
    }
  }
};

bool half(TimePoint now) { return (now - kStart) % 6s < 3s; }

}  // namespace

TEST_CASE("an island whose heartbeats come and go is told once, and once that they do not any more") {
  Bench bench;
  bench.run(2min, [](const std::string& name, TimePoint now) { return name != "b" || half(now); });
  REQUIRE(bench.told.size() == 1);
  CHECK(bench.told[0].find("path_unsteady: the link of island b comes and goes: ") == 0);
  bench.run(3min, [](const std::string&, TimePoint) { return true; });
  REQUIRE(bench.told.size() == 2);
  CHECK(bench.told[1] == "path_steady: the link of island b is steady again");
}

TEST_CASE("a coordinator that heard nobody for a while blames no island for that") {
  Bench bench;
  bench.run(5min, [](const std::string&, TimePoint now) { return half(now); });
  CHECK(bench.told.empty());
}

TEST_CASE("of a path that comes and goes both ends may tell, of one that nobody has or of oneself nobody") {
  Bench bench;
  const Availability half_there{40s, 20s, 20, 1s};
  const auto tell = [&](const std::string& reader, const std::string& from) {
    bench.say(reader, PathReport{IslandId(from), true, "", 0, 0, 0, half_there});
  };
  tell("a", "nobody");
  tell("a", "a");
  CHECK(bench.told.empty());
  tell("a", "b");
  REQUIRE(bench.told.size() == 1);
  CHECK(bench.told[0].find("path_unsteady: the path b -> a comes and goes: there 50 % of the last 40.0 s, 20 changes") == 0);
  tell("a", "b");
  tell("b", "a");
  CHECK(bench.told.size() == 1);
  bench.run(2min, [](const std::string&, TimePoint) { return true; });
  REQUIRE(bench.told.size() == 2);
  CHECK(bench.told[1].find("path_steady: ") == 0);
}

}  // namespace of_unsteady_paths_test
