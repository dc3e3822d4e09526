// Paths and links between real agents that come and go: three seconds down, three seconds up, faster than their loss is noticed.
// Needs networks of its own (tests/process/bridge.hpp); without them it is skipped. What it costs takes minutes: soak.
#include <optional>
#include <string>

#include "tests/process/bridge.hpp"
#include "tests/process/cluster.hpp"
#include "tests/skip.hpp"

namespace of_flapping_test {

using atl_test::Bridge;
using atl_test::Cluster;
using std::chrono::seconds;

namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kRun =
    "[run]\nname = \"flapping\"\n[model]\nlayers = 1\nwidth = 32\nheads = 2\n[data]\nset = \"corpus\"\n[training]\nsteps = 1000000\n"
    "batch = 4\nsequence_length = 16\nwarmup_steps = 1\n[strategy]\ninner_steps = 10\n[islands]\nmin = 3\nmax = 3\n";

// Three islands; data between the first two pass for three of every six seconds while `down` is called now and then.
class Flapping {
 public:
  Flapping() : cluster("10.77.0.254") {
    int number = 0;
    for (const char* name : {"a", "b", "c"}) {
      bridge_.inside(++number, [&] { cluster.start_island(name, {{"ATOLL_TEST_STEP_MS", "20"}}); });
    }
    run = cluster.submit(kRun);
    REQUIRE(Cluster::eventually([&] { return cluster.round_of(run) >= 10; }));
  }

  static void set_apart(bool apart) {
    Bridge::isolate(1, apart);
    Bridge::isolate(2, apart);
  }
  // For so long, or until this is so. How many rounds are committed in a minute of it.
  template <typename F>
  double go_on(Clock::duration length, bool flaps, F until) {
    const auto begin = Clock::now();
    const std::uint64_t before = cluster.round_of(run);
    std::optional<bool> apart;
    while (Clock::now() - begin < length && !until()) {
      const bool down = flaps && (Clock::now() - begin) / seconds(3) % 2 == 0;
      if (down != apart.value_or(false)) {
        set_apart(down);
      }
      apart = down;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    const double minutes = std::chrono::duration<double>(Clock::now() - begin).count() / 60;
    return static_cast<double>(cluster.round_of(run) - before) / minutes;
  }
  double go_on(Clock::duration length, bool flaps) {
    return go_on(length, flaps, [] { return false; });
  }
  bool is_named() {
    const std::string status = cluster.run({"status", run}).out;
    return status.find("the path a -> b comes and goes: there ") != std::string::npos ||
           status.find("the path b -> a comes and goes: there ") != std::string::npos;
  }

 private:
  Bridge bridge_{3};

 public:
  Cluster cluster;
  std::string run;
};

bool networks_can_be_made() {
  const Bridge bridge(1);
  return bridge.ok();
}

}  // namespace

TEST_CASE("process: a path between two islands that is down for three of every six seconds is named in status, and nobody is left out") {
  if (!networks_can_be_made()) {
    ATL_SKIP("no networks can be made here: this needs root, ip, and a kernel with bridges and veth");
  }
  Flapping world;
  const auto begin = Clock::now();
  bool named = false;
  world.go_on(seconds(90), true, [&] { return named = world.is_named(); });
  const double after = std::chrono::duration<double>(Clock::now() - begin).count();
  INFO(world.cluster.run({"status", world.run}).out << world.cluster.logs());
  WARN("named after " << after << " s");
  CHECK(named);
  for (const char* island : {"a", "b", "c"}) {
    CHECK(world.cluster.takes_part(world.run, island));
  }
  Flapping::set_apart(false);
  const std::string events = world.cluster.run({"events", world.run}).out;
  CHECK(events.find(" comes and goes: there ") != std::string::npos);
  CHECK(world.cluster.run({"cancel", world.run}).exit == 0);
}

TEST_CASE("process: soak: a path that is down for three of every six seconds costs a tenth of the rounds at most after the first minute",
          "[.soak][flapping]") {
  if (!networks_can_be_made()) {
    ATL_SKIP("no networks can be made here: this needs root, ip, and a kernel with bridges and veth");
  }
  Flapping world;
  const double usual = world.go_on(seconds(60), false);
  const double first = world.go_on(seconds(60), true);
  const double later = world.go_on(seconds(120), true);
  INFO(world.cluster.run({"status", world.run}).out << world.cluster.logs());
  WARN(usual << " rounds a minute, " << first << " in the first one of a path that comes and goes, then " << later);
  CHECK(world.is_named());
  CHECK(later >= 0.9 * usual);
  Flapping::set_apart(false);
  CHECK(world.cluster.run({"cancel", world.run}).exit == 0);
}

}  // namespace of_flapping_test
