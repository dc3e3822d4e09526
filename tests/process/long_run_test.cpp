// A run of ten thousand rounds: what commands cost that show all of it.
#include <sys/resource.h>

#include <fstream>
#include <sstream>

#include "coordinator/ledger/ledger.hpp"
#include "tests/process/cluster.hpp"

namespace of_long_run_test {

using atl::coordinator::IslandSpan;
using atl::coordinator::Ledger;
using atl_test::Cluster;

namespace {

double seconds_of(const timeval& time) { return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6; }

// CPU seconds of all processes that ended below this one.
double seconds_of_ended() {
  rusage used{};
  REQUIRE(::getrusage(RUSAGE_CHILDREN, &used) == 0);
  return seconds_of(used.ru_utime) + seconds_of(used.ru_stime);
}

// CPU seconds of a process that runs.
double seconds_of_running(pid_t process) {
  const std::string stat = atl_test::text_of("/proc/" + std::to_string(process) + "/stat");
  std::istringstream fields(stat.substr(stat.rfind(')') + 1));
  std::string skipped;
  for (int field = 3; field < 14; ++field) {
    fields >> skipped;
  }
  double user = 0;
  double system = 0;
  REQUIRE(fields >> user >> system);
  return (user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

}  // namespace

TEST_CASE("process: `atoll trace` of ten thousand rounds takes two seconds at most") {
  constexpr std::uint64_t kRounds = 10'000;
  Cluster cluster;
  cluster.start_island("a");
  const std::string run = cluster.submit(
      "[run]\nname = \"long\"\n[data]\nset = \"corpus\"\n[training]\nsteps = 10\n[strategy]\ninner_steps = 5\n[islands]\nmin = 1\nmax = "
      "1\n");
  REQUIRE(cluster.run({"wait", run, "--timeout", "60s"}).exit == 0);
  cluster.coordinator.signal(SIGTERM);
  REQUIRE(cluster.coordinator.wait() == 0);
  {
    // Two islands' steps, wait, encoding, sending, receiving and outer step of each round.
    Ledger ledger = Ledger::open(cluster.state("coordinator")).value();
    std::vector<IslandSpan> spans;
    for (std::uint64_t i = 0; i < kRounds * 2 * 6; ++i) {
      const atl::Round round(i / 12 + 1);
      const atl::Span span{static_cast<atl::SpanKind>(i % 6),
                           round,
                           0,
                           atl::IslandId("i-b"),
                           atl::from_unix_ms(1'767'225'600'000) + std::chrono::milliseconds(i),
                           std::chrono::milliseconds(5),
                           30};
      spans.push_back({atl::RunId(run), atl::IslandId(i % 2 == 0 ? "i-a" : "i-b"), span, ""});
      if (spans.size() == 6000) {
        REQUIRE(ledger.write_spans(spans).ok());
        spans.clear();
      }
    }
  }
  cluster.start_coordinator();
  REQUIRE(Cluster::eventually([&] { return cluster.run({"islands"}).exit == 0; }));
  const double before = seconds_of_ended() + seconds_of_running(cluster.coordinator.pid());
  const atl_test::CommandResult traced = cluster.run({"trace", run, "-o", (cluster.folder() / "trace.json").string()});
  const double took = seconds_of_ended() + seconds_of_running(cluster.coordinator.pid()) - before;
  INFO(traced.err << took << " CPU seconds of both processes");
  REQUIRE(traced.exit == 0);
  CHECK(std::filesystem::file_size(cluster.folder() / "trace.json") > 2'500'000);
  CHECK(took < 2.0);
}

}  // namespace of_long_run_test
