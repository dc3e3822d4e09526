// Islands on far and bad paths: a rehearsal by `atoll local --link`, and real packets that are lost and overtake each other.
#include "tests/places.hpp"
#include "tests/process/cluster.hpp"
#include "tests/process/packet_path.hpp"
#include "tests/skip.hpp"

namespace of_far_link_test {

using atl_test::Cluster;
using atl_test::PacketPath;
using atl_test::Process;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

const std::string kAtoll = atl_test::atoll_program();

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

constexpr const char* kFar =
    "[run]\nname = \"far\"\n[model]\nlayers = 1\nwidth = 32\nheads = 2\n[data]\nset = \"corpus\"\n[training]\nsteps = 40\n"
    "batch = 4\nsequence_length = 16\nwarmup_steps = 1\n[strategy]\ninner_steps = 4\n[islands]\nmin = 3\nmax = 3\n";

// What `atoll` with these arguments says, as JSON; null if it does not succeed.
json asked(const atl_test::TemporaryFolder& folder, std::vector<std::string> arguments) {
  const std::string out = (folder.path() / "asked.out").string();
  fs::remove(out);
  arguments.insert(arguments.begin(), kAtoll);
  arguments.emplace_back("--json");
  Process process(arguments, {}, out, (folder.path() / "asked.err").string());
  return process.wait() == 0 ? json::parse(atl_test::text_of(out), nullptr, false) : json();
}

// When each round was committed, in seconds.
std::vector<double> commit_times(const atl_test::TemporaryFolder& folder, const std::string& run, const std::string& coordinator) {
  const std::string out = (folder.path() / "events.out").string();
  Process process({kAtoll, "logs", run, "--state", coordinator, "--json"}, {}, out, (folder.path() / "events.err").string());
  REQUIRE(process.wait() == 0);
  std::vector<double> times;
  std::istringstream lines(atl_test::text_of(out));
  for (std::string line; std::getline(lines, line);) {
    const json event = json::parse(line);
    if (event.value("kind", "") == "round_committed") {
      times.push_back(event.at("time_unix_ms").get<double>() / 1000);
    }
  }
  return times;
}

}  // namespace

TEST_CASE("process: local --link puts every path between islands at the distance and the rate that were asked for") {
  const atl_test::TemporaryFolder folder;
  folder.write("text.txt", std::string(100'000, 'x'));
  folder.write(
      "run.toml",
      "[run]\nname = \"far\"\n[model]\nlayers = 1\nwidth = 32\nheads = 2\n[data]\nfiles = [\"text.txt\"]\n[training]\nsteps = 100000\n"
      "batch = 4\nsequence_length = 16\n[strategy]\ninner_steps = 4\n[islands]\nmin = 3\nmax = 3\n");
  const auto path = [&](const std::string& name) { return (folder.path() / name).string(); };
  Process process({kAtoll, "local", path("run.toml"), "--islands", "3", "--state", path("state"), "--link", "80ms,20mbit,0"},
                  {{"ATOLL_TRAINER_MODULE", atl_test::arithmetic_trainer()}, {"ATOLL_TEST_HEAD", "100000"}, {"ATOLL_TEST_STEP_MS", "20"}},
                  path("out"), path("err"));
  const std::string coordinator = path("state/coordinator");
  json islands;
  const auto trains = [&] {
    const json runs = asked(folder, {"runs", "--state", coordinator});
    return runs.is_object() && !runs.at("runs").empty() && runs.at("runs")[0].value("round", 0) >= 6;
  };
  REQUIRE(Cluster::eventually(trains));
  // Paused, so that the probes have the paths for themselves.
  const std::string run = asked(folder, {"runs", "--state", coordinator}).at("runs")[0].at("id");
  REQUIRE(Cluster::eventually([&] { return asked(folder, {"pause", run, "--state", coordinator}).is_object(); }));
  REQUIRE(Cluster::eventually([&] {
    return asked(folder, {"status", run, "--state", coordinator}).value("/run/state"_json_pointer, "") == "paused";
  }));
  // A round is two thirds of 400 kB twice through each island's way out, and two half round trips at the least. (Of all rounds together:
  // the news of one may come late, and that of the next in time.)
  const std::vector<double> commits = commit_times(folder, run, coordinator);
  REQUIRE(commits.size() >= 6);
  CHECK(commits.back() - commits.front() >= static_cast<double>(commits.size() - 1) * (2.0 * 2 / 3 * 400'000 * 8 / 20e6 + 0.080));
  const json probed = asked(folder, {"doctor", "--probe", "1s", "--state", coordinator});
  INFO(probed.dump());
  REQUIRE(probed.is_object());
  REQUIRE(probed.at("paths").size() == 6);
  for (const json& between : probed.at("paths")) {
    CHECK(between.at("round_trip_ms").get<double>() >= 80);
    // The islands measure at the same time, and share the lines: what others have on them comes first, some hundred milliseconds of it.
    CHECK(between.at("round_trip_ms").get<double>() < 400);
    CHECK(between.at("bits_per_second").get<double>() <= 20e6 * 1.1);
    CHECK(between.at("bits_per_second").get<double>() >= 20e6 * 0.6);
  }
  const json plan = asked(folder, {"plan", path("run.toml"), "--state", coordinator});
  INFO(plan.dump());
  REQUIRE(plan.is_object());
  for (const json& island : plan.at("islands")) {
    CHECK(island.at("uplink_bits_per_second").get<double>() <= 20e6 * 1.05);
  }
  process.signal(SIGINT);
  CHECK(process.wait() == 130);
  CHECK(contains(atl_test::text_of(path("err")), "between islands: round trip 80 ms, 20 Mbit/s each way, no loss"));
}

TEST_CASE("process: islands whose packets are lost and overtake each other end with the same bytes") {
  const PacketPath network(3, {std::chrono::milliseconds(20), 0.02, 0.05});
  if (!network.ok()) {
    ATL_SKIP("no networks with TUN devices can be made here: this needs root, ip and /dev/net/tun");
  }
  Cluster cluster("10.88.0.254", "wan");
  int number = 0;
  for (const char* name : {"a", "b", "c"}) {
    network.inside(++number, [&] { cluster.start_island(name, {{"ATOLL_TEST_HEAD", "100000"}}); });
  }
  const std::string run = cluster.submit(kFar);
  const atl_test::CommandResult waited = cluster.run({"wait", run, "--timeout", "240s"});
  INFO(waited.out << waited.err << cluster.logs());
  REQUIRE(waited.exit == 0);
  const json document = cluster.status(run);
  CHECK(document.at("run").at("round") == 10);
  INFO(cluster.run({"status", run}).out);
  CHECK(contains(cluster.run({"status", run}).out, "3 of 3 islands"));
  // It was a bad path: hundreds of packets were lost, and more came late.
  WARN(network.carried() << " packets, " << network.lost() << " lost, " << network.overtaken() << " overtaken");
  CHECK(network.lost() > 200);
  CHECK(network.overtaken() > 500);
  CHECK(static_cast<double>(network.lost()) == Approx(0.02 * static_cast<double>(network.carried())).epsilon(0.3));
}

}  // namespace of_far_link_test
