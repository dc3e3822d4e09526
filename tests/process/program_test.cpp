// What the executable loads: a coordinator, an agent and the commands need no LibTorch.
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <optional>

#include "agent/host/trainer_facts.hpp"
#include "tests/places.hpp"
#include "tests/process/cluster.hpp"
#include "tests/skip.hpp"

namespace of_program_test {

using atl_test::Process;

TEST_CASE("process: the executable loads no LibTorch, neither linked nor while a coordinator and an agent run") {
  const atl_test::TemporaryFolder folder;
  const std::filesystem::path listed = folder.path() / "libraries";
  // The dynamic linker lists what it would load, and ends.
  Process linker({atl_test::atoll_program(), "version"}, {{"LD_TRACE_LOADED_OBJECTS", "1"}}, listed, listed);
  REQUIRE(linker.wait() == 0);
  const std::string linked = atl_test::text_of(listed);
  REQUIRE(linked.find("libzmq") != std::string::npos);
  REQUIRE(linked.find("libtorch") == std::string::npos);
  REQUIRE(linked.find("libc10") == std::string::npos);

  atl_test::Cluster cluster;
  cluster.start_island("a");
  REQUIRE(atl_test::Cluster::eventually([&] { return cluster.log("a").find("other islands reach it") != std::string::npos; }));
  for (const pid_t pid : {cluster.coordinator.pid(), cluster.islands["a"].pid()}) {
    const std::string mapped = atl_test::text_of("/proc/" + std::to_string(pid) + "/maps");
    REQUIRE(mapped.find("libzmq") != std::string::npos);
    CHECK(mapped.find("libtorch") == std::string::npos);
  }
}

TEST_CASE("process: an agent and a coordinator that may open few files say so before they begin") {
  const atl_test::TemporaryFolder folder;
  const std::filesystem::path said = folder.path() / "said";
  for (const std::string limit : {"16", "24", "32", "48"}) {
    for (const std::string command : {"coordinator", "agent"}) {
      INFO(command << " with " << limit);
      const std::string line = "ulimit -n " + limit + "; exec \"$0\" " + command + " --state \"$1\"";
      Process program({"/bin/sh", "-c", line, atl_test::Cluster::program, (folder.path() / "state").string()}, {}, said, said);
      CHECK(program.wait() == 1);
      CHECK(atl_test::text_of(said).find("may have " + limit + " files and connections open, and needs 128: raise it (ulimit -Hn") !=
            std::string::npos);
    }
  }
}

TEST_CASE("process: what the dynamic linker is told for a trainer reaches the trainer, and not the keeper that starts it") {
  const atl_test::TemporaryFolder folder;
  const std::filesystem::path said = folder.path() / "said";
  Process keeper({atl_test::Cluster::program, "trainer", "--", "/usr/bin/env"},
                 {{"ATOLL_COMMAND_LD_LIBRARY_PATH", "/of/torch"}, {"ATOLL_COMMAND_LD_NOTHING", "1"}}, said, said);
  CHECK(keeper.wait() == 0);
  const std::string variables = "\n" + atl_test::text_of(said);
  CHECK(variables.find("\nLD_LIBRARY_PATH=/of/torch\n") != std::string::npos);
  CHECK(variables.find("\nLD_NOTHING=1\n") != std::string::npos);
  CHECK(variables.find("ATOLL_COMMAND_") == std::string::npos);
}

TEST_CASE("process: an agent whose key file is gone says so, and makes no new one beside the place that it joined") {
  atl_test::Cluster cluster;
  cluster.start_island("a");
  REQUIRE(atl_test::Cluster::eventually([&] { return cluster.log("a").find("other islands reach it") != std::string::npos; }));
  cluster.islands["a"].signal(SIGTERM);
  CHECK(cluster.islands["a"].wait() == 0);
  const std::filesystem::path key = cluster.state("a") / "keys" / "island";
  REQUIRE(std::filesystem::remove(key));
  const std::filesystem::path said = cluster.folder() / "said";
  Process agent({atl_test::Cluster::program, "agent", "--state", cluster.state("a").string()}, {}, said, said);
  CHECK(agent.wait() == 4);
  INFO(atl_test::text_of(said));
  CHECK(atl_test::text_of(said).find(key.string() + " is gone, the key by which the coordinator knows this island") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(key));
}

TEST_CASE("process: status and the agents' logs say what the built-in trainers compute with") {
  const std::string module = atl_test::built_in_trainer();
  if (module.empty()) {
    ATL_SKIP("it was built without the built-in trainer");
  }
  atl_test::Cluster cluster;
  cluster.start_island("a", {{"ATOLL_TRAINER_MODULE", module}});
  cluster.start_island("b", {{"ATOLL_TRAINER_MODULE", module}});
  cluster.hold_at(1);
  const std::string run = cluster.submit(
      "[run]\nname = \"kernels\"\n[model]\nlayers = 1\nwidth = 32\nheads = 2\n[data]\nset = \"corpus\"\n[training]\nsteps = 1000\n"
      "batch = 4\nsequence_length = 16\nwarmup_steps = 1\n[strategy]\nname = \"diloco\"\ninner_steps = 10\n"
      "[islands]\nmin = 2\nmax = 2\n");
  const std::string said = atl::computes_text(atl::ask_trainer(atl_test::Cluster::program), atl::gpus_of());
  const auto shown = [&] {
    const nlohmann::json islands = cluster.status(run)["islands"];
    return islands.size() == 2 && islands[0]["kernels"] == said && islands[1]["kernels"] == said;
  };
  const bool all_say_so = cluster.eventually(shown);
  INFO(said << " is not what is shown: " << cluster.status(run)["islands"].dump());
  REQUIRE(all_say_so);
  for (const char* island : {"a", "b"}) {
    CHECK(cluster.log(island).find("trainers are to compute with " + said) != std::string::npos);
  }
}

TEST_CASE("process: Ctrl-C on submit --follow leaves the run, which goes on, and says how to follow it again") {
  atl_test::Cluster cluster;
  for (const char* name : {"a", "b"}) {
    cluster.start_island(name, {{"ATOLL_TEST_STEP_MS", "5"}});
  }
  const std::string file = cluster.write_run(
      "[run]\nname = \"left\"\n[model]\nlayers = 1\nwidth = 32\nheads = 2\n[data]\nset = \"corpus\"\n[training]\nsteps = 1000000\n"
      "batch = 4\nsequence_length = 16\nwarmup_steps = 1\n[strategy]\ninner_steps = 10\n[islands]\nmin = 2\nmax = 2\n");
  const atl_test::TemporaryFolder folder;
  const std::filesystem::path out = folder.path() / "out";
  const std::filesystem::path err = folder.path() / "err";
  Process follower({atl_test::Cluster::program, "submit", file, "--follow", "--state", cluster.coordinator_state().string()}, {}, out, err);
  REQUIRE(cluster.eventually([&] { return atl_test::text_of(out).find("round 2 ") != std::string::npos; }));
  const std::string run = atl_test::text_of(out).substr(0, atl_test::text_of(out).find('\n'));
  follower.signal(SIGINT);
  CHECK(follower.wait() == 130);
  CHECK(atl_test::text_of(err).find("run " + run + " goes on; follow it again with: atoll logs " + run +
                                    " -f, or end it with: atoll cancel " + run) != std::string::npos);
  const std::uint64_t round = cluster.round_of(run);
  CHECK(cluster.eventually([&] { return cluster.round_of(run) >= round + 2; }));
}

}  // namespace of_program_test
