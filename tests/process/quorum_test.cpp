// Real islands whose rounds close with a quorum: nobody waits, whatever dies in between.
#include <map>
#include <set>

#include "agent/storage/checkpoint.hpp"
#include "tests/process/cluster.hpp"
#include "transport/base/own_disk.hpp"

namespace of_quorum_test {

using atl_test::Cluster;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

std::string run_file(const std::string& name, unsigned steps, const std::string& strategy) {
  return "[run]\nname = \"" + name +
         "\"\n[model]\nlayers = 1\nwidth = 32\nheads = 2\n[data]\nset = \"corpus\"\n[training]\nsteps = " + std::to_string(steps) +
         "\nbatch = 4\nsequence_length = 16\nwarmup_steps = 1\n[strategy]\nname = \"decoupled-diloco\"\n" + strategy +
         "[islands]\nmin = 1\nmax = 3\ndeadline = \"20s\"\n[checkpoint]\nevery_rounds = 4\n";
}

std::vector<json> commits_of(Cluster& cluster, const std::string& run) {
  std::vector<json> commits;
  std::istringstream lines(cluster.run({"events", run, "--json"}).out);
  for (std::string line; std::getline(lines, line);) {
    const json event = json::parse(line);
    if (event.value("kind", "") == "round_committed") {
      commits.push_back(event.at("fields"));
    }
  }
  return commits;
}

// In how many rounds each island's contribution counts; every round is committed once and in order.
std::map<std::string, std::size_t> counted(Cluster& cluster, const std::string& run, std::uint64_t rounds) {
  std::map<std::string, std::size_t> counted;
  const std::vector<json> commits = commits_of(cluster, run);
  CHECK(commits.size() == rounds + 1);
  for (std::size_t i = 0; i < commits.size(); ++i) {
    CHECK(commits[i].at("round") == i);
    for (std::size_t member = 0; i > 0 && member < commits[i].at("members").size(); ++member) {
      counted[commits[i]["members"][member]] += commits[i].at("member_tokens")[member] > 0 ? 1U : 0U;
    }
  }
  return counted;
}

// Islands that have a checkpoint of one round have the same bytes of it.
void check_same_bytes(Cluster& cluster, const std::string& run, std::uint64_t last) {
  std::map<std::uint64_t, std::set<std::string>> states;
  for (const auto& [name, process] : cluster.islands) {
    const fs::path folder = cluster.state(name) / "runs" / run / "checkpoints";
    atl::CheckpointStore store = atl::CheckpointStore::open(atl::on_this_machine(folder)).value();
    for (const atl::CheckpointMeta& meta : store.list()) {
      states[meta.round.value].insert(atl::to_hex(meta.outer()->sha256) + atl::to_hex(meta.digest));
    }
  }
  CHECK(states.contains(last));
  for (const auto& [round, bytes] : states) {
    INFO("round " << round);
    CHECK(bytes.size() == 1);
  }
}

void check_completed(Cluster& cluster, const std::string& run) {
  const atl_test::CommandResult waited = cluster.run({"wait", run, "--timeout", "120s"});
  INFO(waited.out << waited.err << cluster.logs());
  REQUIRE(waited.exit == 0);
  const atl_test::CommandResult data = cluster.run({"data", run});
  INFO(data.out << data.err);
  CHECK(data.exit == 0);
}

}  // namespace

TEST_CASE("process: where a quorum closes rounds an island that is ten times slower holds up nobody, and counts all the same") {
  Cluster cluster;
  cluster.start_island("a", {{"ATOLL_TEST_STEP_MS", "12"}});
  cluster.start_island("b", {{"ATOLL_TEST_STEP_MS", "12"}});
  cluster.start_island("slow", {{"ATOLL_TEST_STEP_MS", "120"}});
  const auto begin = std::chrono::steady_clock::now();
  const std::string run = cluster.submit(run_file("quorum", 720, "fragments = 2\ninner_steps = 60\nquorum = 2\nmax_staleness = 40\n"));
  check_completed(cluster, run);
  // 720 steps of the fast ones are nine seconds; of the slow one they would be a minute and a half.
  const auto took = std::chrono::steady_clock::now() - begin;
  CHECK(took < std::chrono::seconds(45));
  const std::map<std::string, std::size_t> rounds = counted(cluster, run, 24);
  CHECK(rounds.at("a") > 18);
  CHECK(rounds.at("b") > 18);
  CHECK(rounds.at("slow") > 6);  // told to publish what it has when the others are there
  check_same_bytes(cluster, run, 24);
  const json data = json::parse(cluster.run({"data", run, "--json"}).out);
  INFO(data.dump());
  REQUIRE(data.at("tokens").size() == 3);
  for (const json& island : data.at("tokens")) {
    std::uint64_t sum = 0;
    for (const char* fate : {"merged", "late", "overwritten", "rejected", "too_stale", "overrun", "rest"}) {
      sum += island.at(fate).get<std::uint64_t>();
    }
    CHECK(sum == island.at("trained"));
    CHECK(island.at("merged").get<std::uint64_t>() + island.at("late").get<std::uint64_t>() > sum / 2);
    CHECK(island.at("rest").get<std::uint64_t>() < sum / 5);
    CHECK(island.at("rejected") == 0);
  }
  for (const json& event : cluster.events(run)) {
    INFO(event.dump());
    CHECK(event.value("kind", "") != "contribution_rejected");
  }
}

TEST_CASE("process: a run whose length is in tokens ends once its islands have committed them, whoever is slow") {
  Cluster cluster;
  cluster.start_island("a", {{"ATOLL_TEST_STEP_MS", "5"}});
  cluster.start_island("slow", {{"ATOLL_TEST_STEP_MS", "20"}});
  std::string file = run_file("by-tokens", 4000, "fragments = 2\ninner_steps = 60\nquorum = 1\nmax_staleness = 40\n");
  file.replace(file.find("steps = 4000"), 0, "tokens = 60_000\n");  // of 4,000 × 64 that one island alone would train on
  const std::string run = cluster.submit(file);
  check_completed(cluster, run);
  const json status = json::parse(cluster.run({"status", run, "--json"}).out);
  INFO(status.dump());
  CHECK(status.at("run").at("reason").get<std::string>().find("tokens are committed, training.tokens is 60000") != std::string::npos);
  CHECK(status.at("run").at("round") < status.at("run").at("rounds"));
  const json data = json::parse(cluster.run({"data", run, "--json"}).out);
  CHECK(data.at("proof").at("committed_tokens") >= 60'000);
  CHECK(data.at("proof").at("committed_tokens") < 90'000);
}

TEST_CASE("process: a run with a quorum outlives kill -9 of an agent, of a trainer and of the coordinator") {
  Cluster cluster;
  for (const char* name : {"a", "b", "c"}) {
    cluster.start_island(name, {{"ATOLL_TEST_STEP_MS", "10"}});
  }
  const std::string run = cluster.submit(run_file("killed", 1200, "fragments = 2\ninner_steps = 40\nquorum = 1\n"));
  REQUIRE(Cluster::eventually([&] { return cluster.round_of(run) >= 8; }));
  cluster.islands["b"].signal(SIGKILL);
  (void)cluster.islands["b"].wait();
  cluster.start_island("b", {{"ATOLL_TEST_STEP_MS", "10"}});
  REQUIRE(Cluster::eventually([&] { return cluster.round_of(run) >= 16; }));
  for (const pid_t trainer : atl_test::children_of(cluster.islands["c"].pid())) {
    ::kill(trainer, SIGKILL);
  }
  REQUIRE(Cluster::eventually([&] { return cluster.round_of(run) >= 24; }));
  cluster.coordinator.signal(SIGKILL);
  (void)cluster.coordinator.wait();
  cluster.start_coordinator();
  check_completed(cluster, run);
  const std::map<std::string, std::size_t> rounds = counted(cluster, run, 60);
  for (const char* name : {"a", "b", "c"}) {
    CHECK(rounds.at(name) > 8);
  }
  check_same_bytes(cluster, run, 60);
}

}  // namespace of_quorum_test
