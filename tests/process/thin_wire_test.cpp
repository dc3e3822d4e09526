// Control is never starved: everybody's traffic, of the control links and of the bulk links, shares one wire of 10 Mbit/s, which the
// exchanges fill.
//
// The wire is the loopback device of a network namespace of its own behind the kernel's token bucket (1,500-byte packets, a queue of at
// most 0.4 s, which drops what does not fit). It needs root, `ip` and `tc`; without them the test is skipped.
#include <fcntl.h>
#include <sched.h>

#include <cstdlib>
#include <sstream>

#include "tests/process/cluster.hpp"
#include "tests/skip.hpp"

namespace of_thin_wire_test {

using atl_test::Cluster;
using nlohmann::json;

namespace {

// While it lives, this thread and the processes that it starts are in a network of their own.
class ThinWire {
 public:
  ThinWire() : home_(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC)) {
    inside_ = home_ >= 0 && ::unshare(CLONE_NEWNET) == 0;
    ok_ =
        inside_ &&
        std::system(
            "ip link set lo mtu 1500 up 2> /dev/null && tc qdisc add dev lo root tbf rate 10mbit burst 32kb latency 400ms 2> /dev/null") ==
            0;
  }
  ThinWire(const ThinWire&) = delete;
  ThinWire& operator=(const ThinWire&) = delete;
  ~ThinWire() {
    if (inside_) {
      (void)::setns(home_, CLONE_NEWNET);
    }
    if (home_ >= 0) {
      ::close(home_);
    }
  }
  [[nodiscard]] bool ok() const { return ok_; }

 private:
  int home_;
  bool inside_ = false;
  bool ok_ = false;
};

}  // namespace

TEST_CASE("process: exchanges that fill a wire of 10 Mbit/s starve neither heartbeats nor decisions on it") {
  const ThinWire wire;
  if (!wire.ok()) {
    ATL_SKIP("no network of one's own can be made here (root, ip, tc)");
  }
  // 2.4 MB of parameters: a round moves 9.6 MB between three islands, which takes the wire longer than silence may last (5 s).
  Cluster cluster;
  const std::map<std::string, std::string> large = {{"ATOLL_TEST_HEAD", "600000"}};
  for (const char* name : {"a", "b", "c"}) {
    cluster.start_island(name, large);
  }
  const std::string run = cluster.submit(
      "[run]\nname = \"thin\"\n[model]\nlayers = 1\nwidth = 32\nheads = 2\n[data]\nset = \"corpus\"\n[training]\nsteps = 10\nbatch = "
      "4\nsequence_length = 16\n"
      "warmup_steps = 1\n[strategy]\ninner_steps = 5\n[islands]\nmin = 3\nmax = 3\ndeadline = \"2m\"\n");
  const auto ended = [&](const json& status) { return status.contains("run") && status["run"].value("state", "") == "completed"; };
  std::size_t answers = 0;
  double longest_silence_ms = 0;
  json last;
  // It goes over the same wire, on one connection: a new one may lose its first packet in the queue, and wait seconds to send it again.
  std::istringstream watched(cluster.run({"status", run, "--watch", "--json"}).out);
  for (std::string line; std::getline(watched, line);) {
    const json status = json::parse(line, nullptr, false);
    if (status.is_object() && status.contains("run") && status["run"].value("reason", "").find("exchanging") != std::string::npos) {
      ++answers;
      for (const json& island : status["islands"]) {
        longest_silence_ms = std::max(longest_silence_ms, status["now_unix_ms"].get<double>() - island["last_seen_unix_ms"].get<double>());
      }
    }
  }
  const bool completed = Cluster::eventually(
      [&] {
        last = cluster.status(run);
        return ended(last);
      },
      std::chrono::seconds(240));
  INFO(last.dump(1) << cluster.logs());
  REQUIRE(completed);
  CHECK(last["absences"] == json::array());
  CHECK(answers >= 5);  // one a second in about twenty
  CHECK(longest_silence_ms < 5000);
  std::int64_t before = 0;
  for (const json& event : cluster.events(run)) {
    if (event.value("kind", "") != "round_committed") {
      continue;
    }
    const auto at = event["time_unix_ms"].get<std::int64_t>();
    if (event["round"] > 0) {
      CHECK(at - before > 5000);  // the wire was the bottleneck
      CHECK(event["fields"]["members"].size() == 3);
      CHECK(event["fields"].value("attempt", 0) == 1);
    }
    before = at;
  }
  std::printf("a wire of 10 Mbit/s: %zu answers while exchanging, longest silence of an island %.0f ms\n", answers, longest_silence_ms);
}

}  // namespace of_thin_wire_test
