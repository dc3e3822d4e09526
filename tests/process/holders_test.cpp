// Islands that hold a run's model, some of which cannot be dialled.
#include <algorithm>
#include <string>
#include <vector>

#include "agent/storage/safetensors.hpp"
#include "tests/process/cluster.hpp"

namespace of_holders_test {

using atl_test::Cluster;
using atl_test::CommandResult;
using nlohmann::json;

namespace {

// The island's id, as the coordinator has it.
std::string id_of(Cluster& cluster, const std::string& name) {
  const json document = json::parse(cluster.run({"islands", "--json"}).out);
  for (const json& island : document["islands"]) {
    if (island["name"] == name) {
      return island["id"];
    }
  }
  return "";
}

bool has_address(Cluster& cluster, const std::string& name, const std::string& address) {
  const json document = json::parse(cluster.run({"islands", "--json"}).out);
  return std::ranges::any_of(document["islands"], [&](const json& island) {
    return island["name"] == name && island["address"] == address && island["connected"] == true;
  });
}

}  // namespace

TEST_CASE("process: a model is exported from the island that can be dialled, also where another one has it that comes first") {
  Cluster cluster;
  for (const char* name : {"a", "b"}) {
    cluster.start_island(name);
  }
  const std::string run = cluster.submit(
      "[run]\nname = \"held\"\n[model]\nlayers = 1\nwidth = 32\nheads = 2\n[data]\nset = \"corpus\"\n[training]\nsteps = "
      "20\nbatch = 4\nsequence_length = 16\nwarmup_steps = 1\n[strategy]\nname = \"diloco\"\ninner_steps = 5\n[islands]\nmin = "
      "2\nmax = 2\ndeadline = \"20s\"\n");
  const CommandResult waited = cluster.run({"wait", run, "--timeout", "100s"});
  INFO(waited.err << cluster.logs());
  REQUIRE(waited.exit == 0);
  const std::string first = id_of(cluster, "a") < id_of(cluster, "b") ? "a" : "b";
  const std::string other = first == "a" ? "b" : "a";
  cluster.islands[first].signal(SIGTERM);
  CHECK(cluster.islands[first].wait() == 0);
  const std::string nowhere = Cluster::free_address();
  cluster.start_island(first, {}, {"--advertise", nowhere.substr(6)});
  REQUIRE(Cluster::eventually([&] { return has_address(cluster, first, nowhere); }));
  const std::string model = (cluster.folder() / "model.safetensors").string();
  const CommandResult exported = cluster.run({"export", run, "-o", model});
  INFO(exported.err);
  REQUIRE(exported.exit == 0);
  CHECK(atl::SafetensorsFile::open(model));
  // Of that island alone it cannot be had, and the reason has its name.
  const CommandResult alone = cluster.run({"export", run, "--island", first, "-o", model + ".none"});
  CHECK(alone.exit == 3);
  CHECK(alone.err.find("island " + first + ": nobody listens at ") != std::string::npos);
  // With too few descriptors for the link that says so, where it would end the process or wait for ever.
  const std::filesystem::path said = cluster.folder() / "said";
  for (const std::string limit : {"20", "24", "32"}) {
    const std::string line = "ulimit -n " + limit + "; exec timeout 20 \"$0\" export \"$1\" -o \"$2\" --state \"$3\"";
    atl_test::Process few({"/bin/sh", "-c", line, Cluster::program, run, model + ".few", cluster.state("coordinator").string()}, {}, said,
                          said);
    CHECK(few.wait() == 1);
    CHECK(atl_test::text_of(said).find("may have " + limit + " files and connections open, and needs 128") != std::string::npos);
  }
}

TEST_CASE("process: a public island that comes back at another port takes part again at once, though it cannot dial the one that trains") {
  Cluster cluster;
  cluster.start_island("hidden", {{"ATOLL_TEST_STEP_MS", "10"}}, {"--advertise", Cluster::free_address().substr(6)});
  cluster.start_island("public", {{"ATOLL_TEST_STEP_MS", "10"}});
  const std::string run = cluster.submit(
      "[run]\nname = \"back\"\n[model]\nlayers = 1\nwidth = 32\nheads = 2\n[data]\nset = \"corpus\"\n[training]\nsteps = "
      "1000000\nbatch = 4\nsequence_length = 16\nwarmup_steps = 1\n[strategy]\nname = \"diloco\"\ninner_steps = 5\n[islands]\nmin = "
      "1\nmax = 2\ndeadline = \"20s\"\n");
  const auto both = [&] { return cluster.takes_part(run, "hidden") && cluster.takes_part(run, "public"); };
  REQUIRE(Cluster::eventually([&] { return both() && cluster.round_of(run) >= 3; }));
  for (int times = 0; times < 2; ++times) {
    cluster.islands["public"].signal(SIGKILL);
    CHECK(cluster.islands["public"].wait() == 128 + SIGKILL);
    REQUIRE(Cluster::eventually([&] { return !cluster.takes_part(run, "public"); }));
    const std::uint64_t round = cluster.round_of(run);
    REQUIRE(Cluster::eventually([&] { return cluster.round_of(run) > round + 2; }));
    cluster.start_island("public", {{"ATOLL_TEST_STEP_MS", "10"}});
    const bool back = Cluster::eventually(both, std::chrono::seconds(25));
    INFO(cluster.run({"status", run}).out << cluster.logs());
    REQUIRE(back);
  }
  CHECK(cluster.run({"cancel", run}).exit == 0);
}

}  // namespace of_holders_test
