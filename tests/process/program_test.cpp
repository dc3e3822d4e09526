// What the executable loads: a coordinator, an agent and the commands need no LibTorch.
#include "tests/process/cluster.hpp"

using atl_test::Process;

TEST_CASE("process: the executable loads no LibTorch, neither linked nor while a coordinator and an agent run") {
  const atl_test::TemporaryFolder folder;
  const std::filesystem::path listed = folder.path() / "libraries";
  // The dynamic linker lists what it would load, and ends.
  Process linker({std::string(ATOLL_BINARY_DIR) + "/atoll", "version"}, {{"LD_TRACE_LOADED_OBJECTS", "1"}}, listed, listed);
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
