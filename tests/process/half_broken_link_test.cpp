// One half-broken link: small packets pass, large ones vanish, as behind a tunnel whose MTU nobody announces.
// Needs networks of its own (tests/process/bridge.hpp); without them it is skipped.
#include <algorithm>

#include "tests/process/bridge.hpp"
#include "tests/process/cluster.hpp"
#include "tests/skip.hpp"

namespace of_half_broken_link_test {

using atl_test::Bridge;
using atl_test::Cluster;
using nlohmann::json;

namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

constexpr const char* kApart =
    "[run]\nname = \"apart\"\n[model]\nlayers = 1\nwidth = 32\nheads = 2\n[data]\nset = \"corpus\"\n[training]\nsteps = 300\n"
    "batch = 4\nsequence_length = 16\nwarmup_steps = 1\n[strategy]\ninner_steps = 10\n[islands]\nmin = 3\nmax = 3\n";

}  // namespace

TEST_CASE(
    "process: an island whose large packets vanish costs the others seconds once, then nothing, and takes part again once they pass") {
  const Bridge bridge(3);
  if (!bridge.ok()) {
    ATL_SKIP("no networks can be made here: this needs root, ip, and a kernel with bridges and veth");
  }
  Cluster cluster("10.77.0.254");
  int number = 0;
  for (const char* name : {"a", "b", "c"}) {
    bridge.inside(++number, [&] { cluster.start_island(name, {{"ATOLL_TEST_STEP_MS", "20"}}); });
  }
  const std::string run = cluster.submit(
      "[run]\nname = \"half\"\n[model]\nlayers = 1\nwidth = 32\nheads = 2\n[data]\nset = \"corpus\"\n[training]\nsteps = 100000\n"
      "batch = 4\nsequence_length = 16\nwarmup_steps = 1\n[strategy]\ninner_steps = 10\n[islands]\nmin = 2\nmax = 3\n");
  REQUIRE(Cluster::eventually([&] { return cluster.round_of(run) >= 10; }));
  REQUIRE(cluster.takes_part(run, "c"));

  const auto fault = std::chrono::steady_clock::now();
  Bridge::largest_packet(3, 1200);
  std::uint64_t round = cluster.round_of(run);
  auto last = fault;
  double first = 0;  // the longest the others stood in the first 15 seconds
  double later = 0;  // and after that
  while (seconds_since(fault) < 45) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const std::uint64_t now = cluster.round_of(run);
    double& longest = seconds_since(fault) < 15 ? first : later;
    longest = std::max(longest, seconds_since(last));
    if (now != round) {
      round = now;
      last = std::chrono::steady_clock::now();
    }
  }
  const std::string events = cluster.run({"events", run}).out;
  INFO("stood " << first << " s at first, " << later << " s later");
  INFO(events);
  INFO(cluster.logs());
  WARN("stood " << first << " s at first, " << later << " s later");
  CHECK_FALSE(cluster.takes_part(run, "c"));
  CHECK(first < 8);
  CHECK(later < 3);

  Bridge::largest_packet(3, 1500);
  const bool back = Cluster::eventually([&] { return cluster.takes_part(run, "c"); }, std::chrono::seconds(150));
  INFO("after that:\n" << cluster.logs());
  CHECK(back);
  CHECK(cluster.run({"cancel", run}).exit == 0);
}

TEST_CASE("process: two islands that cannot reach each other are both named with what to open, and train with a third that sums for both") {
  const Bridge bridge(3);
  if (!bridge.ok()) {
    ATL_SKIP("no networks can be made here: this needs root, ip, and a kernel with bridges and veth");
  }
  Bridge::isolate(1);
  Bridge::isolate(2);
  Cluster cluster("10.77.0.254");
  int number = 0;
  for (const char* name : {"a", "b", "c"}) {
    bridge.inside(++number, [&] { cluster.start_island(name, {{"ATOLL_TEST_STEP_MS", "20"}}); });
  }
  // Before anything trains: of what the islands have tried by themselves.
  const auto named = [](const std::string& text) {
    return text.find("islands a and b cannot exchange data") != std::string::npos ||
           text.find("islands b and a cannot exchange data") != std::string::npos;
  };
  const std::string file = cluster.write_run(kApart);
  REQUIRE(Cluster::eventually([&] { return named(cluster.run({"submit", file, "--dry-run"}).out); }));
  CHECK(cluster.run({"doctor"}).out.find("gets no data from island") != std::string::npos);
  const auto begin = std::chrono::steady_clock::now();
  const auto submitted = cluster.run({"submit", file});
  CHECK(named(submitted.err));
  const std::string run = submitted.out.substr(0, submitted.out.find('\n'));
  CHECK(Cluster::eventually([&] { return cluster.round_of(run) >= 1; }));
  const double first = seconds_since(begin);
  CHECK(cluster.run({"wait", run, "--timeout", "120s"}).exit == 0);
  INFO(cluster.logs());
  WARN("the first round came after " << first << " s");
  CHECK(first < 15);  // a first exchange that began before is given up when the islands have tried the path, after 4 s
  const std::string events = cluster.run({"events", run}).out + cluster.log("coordinator");
  CHECK((events.find("island a gets no data from island b") != std::string::npos ||
         events.find("island b gets no data from island a") != std::string::npos));
  CHECK(events.find("tcp://10.77.0.1:") != std::string::npos);
  CHECK(events.find("tcp://10.77.0.2:") != std::string::npos);
  CHECK(cluster.round_of(run) == 30);
}

}  // namespace of_half_broken_link_test
