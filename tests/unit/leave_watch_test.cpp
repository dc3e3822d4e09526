// When an island is told to leave: a file that appears, a command that succeeds.
#include "agent/service/leave_watch.hpp"

#include <poll.h>

#include <fstream>

#include "tests/catch.hpp"
#include "tests/temporary_folder.hpp"

namespace of_leave_watch_test {

using namespace atl;
using namespace atl::agent;
using namespace std::chrono_literals;

namespace {

// Pumps at real times, as a driver does, until there is a reason or it has run that many commands.
std::optional<std::string> pump_for(LeaveWatch& watch, Duration at_most) {
  const TimePoint end = now() + at_most;
  while (now() < end) {
    if (std::optional<std::string> why = watch.pump(now())) {
      return why;
    }
    ::poll(nullptr, 0, 5);
  }
  return std::nullopt;
}

}  // namespace

TEST_CASE("a leave file is noticed when it appears, once, with its first line") {
  const atl_test::TemporaryFolder folder;
  LeaveWatch watch({folder.path() / "notice", "", folder.path()});
  TimePoint time = now();
  REQUIRE_FALSE(watch.pump(time));
  REQUIRE(watch.next_check() == time + 500ms);
  std::ofstream(folder.path() / "notice") << "taken away at 12:00\x1b\nsecond line\n";
  REQUIRE_FALSE(watch.pump(time + 1ms));  // not yet looked at
  const std::optional<std::string> why = watch.pump(time + 500ms);
  REQUIRE(why);
  CHECK(why->find("taken away at 12:00") != std::string::npos);
  CHECK(why->find('\x1b') == std::string::npos);
  CHECK(why->find("second") == std::string::npos);
  REQUIRE_FALSE(watch.pump(time + 5s));
  REQUIRE_FALSE(watch.next_check());
}

TEST_CASE("a leave command is run until it succeeds, what it prints is the reason") {
  const atl_test::TemporaryFolder folder;
  const std::string count = (folder.path() / "count").string();
  // Fails twice, then says why.
  LeaveWatchSettings settings{{}, "echo x >> count; test $(wc -l < count) -ge 3 && echo spot notice", folder.path()};
  settings.command_every = 10ms;
  LeaveWatch watch(settings);
  const std::optional<std::string> why = pump_for(watch, 60s);
  REQUIRE(why);
  CHECK(why->find("spot notice") != std::string::npos);
  std::string lines;
  std::getline(std::ifstream(count), lines, '\0');
  CHECK(lines == "x\nx\nx\n");
}

TEST_CASE("an island that had nothing to do for so long leaves, and its work begins the time anew") {
  LeaveWatchSettings settings{{}, {}, {}};
  settings.idle = 10s;
  LeaveWatch watch(settings);
  const TimePoint begin = now();
  REQUIRE_FALSE(watch.pump(begin));
  CHECK(watch.next_check() == begin + 10s);
  REQUIRE_FALSE(watch.pump(begin + 9s));
  REQUIRE_FALSE(watch.pump(begin + 11s, true));
  CHECK_FALSE(watch.next_check());
  REQUIRE_FALSE(watch.pump(begin + 60s));
  REQUIRE_FALSE(watch.pump(begin + 69s));
  const std::optional<std::string> why = watch.pump(begin + 70s);
  REQUIRE(why);
  CHECK(*why == "it had nothing to do for 10.0 s");
  REQUIRE_FALSE(watch.pump(begin + 99s));
}

TEST_CASE("a watch that watches nothing needs no attention") {
  LeaveWatch watch({});
  REQUIRE_FALSE(watch.pump(now()));
  REQUIRE_FALSE(watch.next_check());
}

}  // namespace of_leave_watch_test
