// Runs that operators remove leave the disks of real islands, and the options by which owners decide what stays.
#include <filesystem>

#include "tests/places.hpp"
#include "tests/process/cluster.hpp"

namespace of_removal_test {

using atl_test::Cluster;
namespace fs = std::filesystem;

namespace {

constexpr const char* kShort =
    "[run]\nname = \"short\"\n[model]\nlayers = 1\nwidth = 32\nheads = 2\n[data]\nset = \"corpus\"\n[training]\nsteps = 20\n"
    "batch = 4\nsequence_length = 16\nwarmup_steps = 1\n[strategy]\ninner_steps = 5\n[islands]\nmin = 3\nmax = 3\n[checkpoint]\n"
    "every_rounds = 1\n";

fs::path held(const Cluster& cluster, const std::string& island, const std::string& run) { return cluster.state(island) / "runs" / run; }

}  // namespace

TEST_CASE("process: a removed run leaves every island's disk, one that was down at its next start, but not where its owner keeps it") {
  Cluster cluster;
  cluster.start_island("a");
  cluster.start_island("b");
  cluster.start_island("keeper", {}, {"--keep-removed"});
  const std::string run = cluster.submit(kShort);
  CHECK(cluster.run({"runs", "rm", run}).exit == 8);  // it has not ended
  REQUIRE(cluster.run({"wait", run, "--timeout", "100s"}).exit == 0);
  cluster.islands["b"].signal(SIGTERM);
  CHECK(cluster.islands["b"].wait() == 0);
  for (const char* island : {"a", "b", "keeper"}) {
    REQUIRE(fs::exists(held(cluster, island, run)));
  }
  // Once its silence is noticed.
  CHECK(Cluster::eventually([&] {
    const atl_test::CommandResult dry = cluster.run({"runs", "rm", run, "--dry-run"});
    return dry.exit == 0 && dry.out.find("would be removed; what a, keeper hold of it") != std::string::npos;
  }));
  CHECK(fs::exists(held(cluster, "a", run)));
  const atl_test::CommandResult removed = cluster.run({"runs", "rm", run});
  INFO(removed.out << removed.err);
  CHECK(removed.exit == 0);
  CHECK(removed.out.find("b hears of it on coming back") != std::string::npos);
  CHECK(Cluster::eventually([&] { return !fs::exists(held(cluster, "a", run)); }));
  CHECK(cluster.run({"runs", "-q"}).out.empty());
  CHECK(cluster.run({"runs", "rm", run}).exit == 4);
  CHECK(fs::exists(held(cluster, "b", run)));
  cluster.start_island("b");
  CHECK(Cluster::eventually([&] { return !fs::exists(held(cluster, "b", run)); }));
  CHECK(Cluster::eventually([&] { return cluster.log("keeper").find("keeps what it holds of run " + run) != std::string::npos; }));
  CHECK(fs::exists(held(cluster, "keeper", run)));
  CHECK(Cluster::eventually([&] { return cluster.log("a").find("an operator removed the run") != std::string::npos; }));
}

TEST_CASE("process: what an owner does not keep of ended runs goes after the end, and an agent says which options it does not understand") {
  Cluster cluster;
  cluster.start_island("a", {}, {"--keep-ended", "forever"});
  cluster.start_island("b", {}, {"--keep-ended", "0"});
  cluster.start_island("c");
  const std::string run = cluster.submit(kShort);
  REQUIRE(cluster.run({"wait", run, "--timeout", "100s"}).exit == 0);
  cluster.islands["b"].signal(SIGTERM);
  CHECK(cluster.islands["b"].wait() == 0);
  cluster.start_island("b", {}, {"--keep-ended", "0"});  // it asks when it is welcomed
  CHECK(Cluster::eventually([&] { return !fs::exists(held(cluster, "b", run)); }));
  CHECK(Cluster::eventually([&] { return cluster.log("b").find("(--keep-ended)") != std::string::npos; }));
  CHECK(fs::exists(held(cluster, "a", run)));
  CHECK(fs::exists(held(cluster, "c", run)));
  // Whoever fetches the model is sent to an island that has it, as soon as the coordinator has heard that the other one has not.
  CHECK(Cluster::eventually(
      [&] {
        return cluster.run({"export", run, "-o", (cluster.folder() / "model.safetensors").string()}).exit == 0;
      },
      std::chrono::seconds(100)));
  CHECK(cluster.run_in("c", {"agent", "--keep-ended", "soon"}).exit == 2);
}

}  // namespace of_removal_test
