// Two versions of Atoll in one run: the later one has another version, more fields in every message and one more kind of message.
#include <algorithm>
#include <optional>
#include <utility>

#include "tests/places.hpp"
#include "tests/process/cluster.hpp"

namespace of_upgrade_test {

using atl_test::Cluster;
using nlohmann::json;

TEST_CASE("process: coordinator and islands are upgraded one after the other while a run goes on, whichever is first") {
  const std::string program = Cluster::program;
  const bool coordinator_first = GENERATE(true, false);
  const bool downgrade = GENERATE(false, true);
  Cluster::program = downgrade ? atl_test::later_program() : program;
  {
    Cluster cluster;
    const std::vector<std::string> names = {"a", "b", "c"};
    for (const std::string& name : names) {
      cluster.start_island(name, {{"ATOLL_TEST_STEP_MS", "5"}});
    }
    const std::string run = cluster.submit(
        "[run]\nname = \"upgraded\"\n[model]\nlayers = 1\nwidth = 32\nheads = 2\n[data]\nset = \"corpus\"\n[training]\nsteps = 1000000\n"
        "batch = 4\nsequence_length = 16\nwarmup_steps = 1\n[strategy]\ninner_steps = 5\n[islands]\nmin = 2\nmax = 3\n");
    const auto goes_on = [&] {
      const std::uint64_t round = cluster.round_of(run);
      const bool goes = Cluster::eventually([&] {
        return cluster.round_of(run) >= round + 5 &&
               std::ranges::all_of(names, [&](const std::string& name) { return cluster.takes_part(run, name); });
      });
      INFO(cluster.status(run).dump() << cluster.logs());  // as they are now
      REQUIRE(goes);
    };
    const auto upgrade_coordinator = [&] {
      cluster.coordinator.signal(SIGTERM);
      CHECK(cluster.coordinator.wait() == 0);
      cluster.start_coordinator();
      goes_on();
    };
    goes_on();
    Cluster::program = downgrade ? program : atl_test::later_program();
    if (coordinator_first) {
      upgrade_coordinator();
    }
    for (const std::string& name : names) {
      cluster.islands[name].signal(SIGTERM);
      CHECK(cluster.islands[name].wait() == 0);
      cluster.start_island(name, {{"ATOLL_TEST_STEP_MS", "5"}});
      goes_on();
    }
    if (!coordinator_first) {
      upgrade_coordinator();
    }
    const json islands = json::parse(cluster.run({"islands", "--json"}).out);
    CHECK(islands["islands"].size() == names.size());
    for (const json& island : islands["islands"]) {
      CHECK((island.value("version", "") == "99.0.0") == !downgrade);
    }
    std::optional<std::uint64_t> last;
    for (const json& event : cluster.events(run)) {
      CHECK(event.value("kind", "") != "rolled_back");
      if (event.value("kind", "") == "round_committed") {
        const std::uint64_t round = event["fields"]["round"];
        CHECK(round == last.value_or(round - 1) + 1);
        last = round;
      }
    }
    CHECK(cluster.run({"cancel", run}).exit == 0);
  }
  Cluster::program = program;
}

}  // namespace of_upgrade_test
