// Real agents on loopback: what they compute together is what arithmetic says, whatever dies in between.
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>

#include "agent/storage/checkpoint.hpp"
#include "agent/storage/safetensors.hpp"
#include "tests/process/cluster.hpp"
#include "transport/base/own_disk.hpp"

namespace of_agent_test {

using atl_test::Cluster;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

std::string run_file(const std::string& name, unsigned steps, unsigned period, unsigned min, unsigned max, unsigned checkpoint_every = 2) {
  std::ostringstream text;
  text << "[run]\nname = \"" << name
       << "\"\n[model]\nlayers = 1\nwidth = 32\nheads = 2\n[data]\nset = \"corpus\"\n[training]\nsteps = " << steps
       << "\nbatch = 4\nsequence_length = 16\nwarmup_steps = 1\n[strategy]\nname = \"diloco\"\ninner_steps = " << period
       << "\n[islands]\nmin = " << min << "\nmax = " << max << "\ndeadline = \"20s\"\n[checkpoint]\nevery_rounds = " << checkpoint_every
       << "\n";
  return text.str();
}

// Every round from 0 (the initial state) to `rounds` was committed, in order, once.
void check_committed_once(Cluster& cluster, const std::string& run, std::uint64_t rounds) {
  std::vector<std::uint64_t> committed;
  for (const json& event : cluster.events(run)) {
    if (event.value("kind", "") == "round_committed") {
      committed.push_back(event.at("round").get<std::uint64_t>());
    }
  }
  std::vector<std::uint64_t> expected;
  for (std::uint64_t round = 0; round <= rounds; ++round) {
    expected.push_back(round);
  }
  CHECK(committed == expected);
}

// The newest checkpoint of each of these islands is of that round, and all have the same bytes and the same digest.
void check_equal_states(Cluster& cluster, const std::string& run, std::uint64_t rounds, const std::vector<std::string>& islands) {
  std::set<std::string> files;
  std::set<std::string> digests;
  for (const std::string& island : islands) {
    INFO(island);
    atl::CheckpointStore store =
        atl::CheckpointStore::open(atl::on_this_machine(cluster.state(island) / "runs" / run / "checkpoints")).value();
    const std::optional<atl::CheckpointMeta> meta = store.newest_good();
    REQUIRE(meta.has_value());
    CHECK(meta->round == atl::Round(rounds));
    files.insert(atl::to_hex(meta->outer()->sha256));
    digests.insert(atl::to_hex(meta->digest));
  }
  CHECK(files.size() == 1);
  CHECK(digests.size() == 1);
}

void check_completed(Cluster& cluster, const std::string& run, std::chrono::seconds at_most = std::chrono::seconds(120)) {
  const atl_test::CommandResult waited = cluster.run({"wait", run, "--timeout", std::to_string(at_most.count()) + "s"});
  INFO(waited.out << waited.err << cluster.logs());
  REQUIRE(waited.exit == 0);
}

// What element i of the outer parameters is after so many rounds in which all `parts` parts did `period` steps each: DiLoCo's
// Algorithm 1 with Nesterov 0.7, 0.9, in double.
double expected_value(std::size_t i, unsigned rounds, unsigned period, unsigned parts) {
  double value = 0.5;
  double momentum = 0;
  for (unsigned round = 0; round < rounds; ++round) {
    double gradient = 0;
    for (unsigned part = 0; part < parts; ++part) {
      for (unsigned step = round * period + 1; step <= (round + 1) * period; ++step) {
        gradient += static_cast<double>((part + 1) * step % 7 + i % 5) / 1024.0 / parts;
      }
    }
    momentum = 0.9 * momentum + gradient;
    value -= 0.7 * (gradient + 0.9 * momentum);
  }
  return value;
}

// The round that status shows has reached at least this one.
bool reaches(Cluster& cluster, const std::string& run, std::uint64_t round) {
  return Cluster::eventually([&] { return cluster.round_of(run) >= round; });
}

}  // namespace

TEST_CASE("process: four agents compute what DiLoCo's arithmetic says, bit for bit alike, and the model can be exported") {
  Cluster cluster;
  const std::vector<std::string> names = {"a", "b", "c", "d"};
  for (const std::string& name : names) {
    cluster.start_island(name);
  }
  const std::string run = cluster.submit(run_file("four", 40, 5, 4, 4));
  check_completed(cluster, run);
  check_committed_once(cluster, run, 8);
  check_equal_states(cluster, run, 8, names);

  // The timeline shows each island's 40 steps and every phase of the 8 rounds.
  const fs::path trace = cluster.folder() / "trace.json";
  const atl_test::CommandResult traced = cluster.run({"trace", run, "-o", trace.string()});
  INFO(traced.err);
  REQUIRE(traced.exit == 0);
  std::map<std::pair<std::uint64_t, std::string>, std::set<std::uint64_t>> rounds;  // by island and activity
  std::map<std::uint64_t, std::uint64_t> steps;
  const json timeline = json::parse(atl_test::text_of(trace));
  for (const json& event : timeline["traceEvents"]) {
    if (event["ph"] == "X") {
      rounds[{event["pid"], event["cat"]}].insert(event["args"]["round"].get<std::uint64_t>());
      steps[event["pid"]] += event["cat"] == "steps" ? event["args"]["steps"].get<std::uint64_t>() : 0;
    }
  }
  REQUIRE(steps.size() == 4);
  for (const auto& [island, done] : steps) {
    CHECK(done == 40);
    for (const char* activity : {"encode", "receive", "send", "reduce", "outer_step"}) {
      INFO(activity);
      CHECK((rounds[{island, activity}] == std::set<std::uint64_t>{1, 2, 3, 4, 5, 6, 7, 8}));
    }
  }

  const fs::path model = cluster.folder() / "model.safetensors";
  const atl_test::CommandResult exported = cluster.run({"export", run, "-o", model.string()});
  INFO(exported.err);
  REQUIRE(exported.exit == 0);
  const atl::SafetensorsFile file = atl::SafetensorsFile::open(model).value();
  CHECK(file.header().tensors.size() == 3);  // without the momentum
  for (const char* name : {"embedding", "layer", "head"}) {
    const auto values = file.floats(name).value();
    for (std::size_t i = 0; i < values.size(); ++i) {
      INFO(name << " " << i);
      REQUIRE(static_cast<double>(values[i]) == Approx(expected_value(i, 8, 5, 4)).epsilon(1e-5));
    }
  }

  for (auto& [name, island] : cluster.islands) {
    island.signal(SIGTERM);
  }
  for (auto& [name, island] : cluster.islands) {
    CHECK(island.wait() == 0);
  }
  for (const fs::directory_entry& entry : fs::directory_iterator("/dev/shm")) {
    CHECK(entry.path().filename().string().find(run) == std::string::npos);
  }
}

TEST_CASE("process: an export from islands that keep one checkpoint gets a newer one where that which was named is gone by then") {
  Cluster cluster;
  for (const char* name : {"a", "b"}) {
    cluster.start_island(name, {{"ATOLL_TEST_STEP_MS", "5"}});
  }
  const std::string run = cluster.submit(run_file("one-kept", 1'000'000, 2, 2, 2, 1) + "keep = 1\n");
  REQUIRE(reaches(cluster, run, 5));
  for (int i = 0; i < 20; ++i) {
    const atl_test::CommandResult exported = cluster.run({"export", run, "-o", (cluster.folder() / "model.safetensors").string()});
    INFO(exported.err);
    REQUIRE(exported.exit == 0);
  }
  CHECK(cluster.run({"cancel", run}).exit == 0);
}

TEST_CASE("process: an agent killed in the middle of a run comes back, and no round is lost or applied twice") {
  Cluster cluster;
  cluster.hold_at(100);
  for (const char* name : {"a", "b", "c"}) {
    cluster.start_island(name, {{"ATOLL_TEST_STEP_MS", "20"}});
  }
  const std::string run = cluster.submit(run_file("killed-agent", 150, 5, 2, 3));
  REQUIRE(reaches(cluster, run, 4));
  const std::vector<pid_t> trainers = atl_test::children_of(cluster.islands["b"].pid());
  REQUIRE_FALSE(trainers.empty());
  cluster.islands["b"].signal(SIGKILL);
  CHECK(cluster.islands["b"].wait() == 128 + SIGKILL);
  CHECK(Cluster::eventually([&] { return ::kill(trainers.front(), 0) != 0; }));  // its trainer went with it
  REQUIRE(Cluster::eventually([&] { return !cluster.takes_part(run, "b"); }));
  cluster.start_island("b", {{"ATOLL_TEST_STEP_MS", "20"}});
  // A joiner that has all there is enters with the next round, which nobody finishes before the release.
  const bool back =
      Cluster::eventually([&] { return cluster.takes_part(run, "b") || cluster.log("b").find("waits to be let in") != std::string::npos; });
  INFO((back ? std::string() : cluster.run({"status", run}).out + cluster.run({"logs", run}).out + cluster.logs()));
  REQUIRE(back);
  cluster.release();
  check_completed(cluster, run);
  check_committed_once(cluster, run, 30);
  CHECK(cluster.log("b").find("catching-up") != std::string::npos);
  check_equal_states(cluster, run, 30, {"a", "b", "c"});
}

TEST_CASE("process: with a momentum in bf16, agents that were killed and one that is new end with the same bytes") {
  const std::map<std::string, std::string> slow = {{"ATOLL_TEST_STEP_MS", "20"}};
  Cluster cluster;
  cluster.hold_at(100);
  for (const char* name : {"a", "b", "c"}) {
    cluster.start_island(name, slow);
  }
  std::string file = run_file("rounded", 150, 5, 2, 4);
  file.insert(file.find("inner_steps"), "outer_state = \"bf16\"\n");
  const std::string run = cluster.submit(file);
  REQUIRE(reaches(cluster, run, 4));
  cluster.islands["b"].signal(SIGKILL);
  CHECK(cluster.islands["b"].wait() == 128 + SIGKILL);
  REQUIRE(Cluster::eventually([&] { return !cluster.takes_part(run, "b"); }));
  for (const char* name : {"b", "d"}) {
    cluster.start_island(name, slow);
    const bool in = Cluster::eventually(
        [&] { return cluster.takes_part(run, name) || cluster.log(name).find("waits to be let in") != std::string::npos; });
    INFO(name << (in ? std::string() : cluster.run({"status", run}).out + cluster.logs()));
    REQUIRE(in);
  }
  cluster.release();
  REQUIRE(reaches(cluster, run, 22));
  for (const char* name : {"a", "b", "c", "d"}) {
    cluster.islands[name].signal(SIGKILL);
  }
  for (const char* name : {"a", "b", "c", "d"}) {
    CHECK(cluster.islands[name].wait() == 128 + SIGKILL);
    cluster.start_island(name, slow);
  }
  check_completed(cluster, run);
  check_equal_states(cluster, run, 30, {"a", "b", "c", "d"});

  const fs::path outer = cluster.state("d") / "runs" / run / "checkpoints" / "30" / atl::kOuterFile;
  const atl::SafetensorsFile state = atl::SafetensorsFile::open(outer).value();
  const fs::path model = cluster.folder() / "model.safetensors";
  REQUIRE(cluster.run({"export", run, "-o", model.string()}).exit == 0);
  const atl::SafetensorsFile exported = atl::SafetensorsFile::open(model).value();
  CHECK(exported.header().tensors.size() == 3);
  for (const std::string name : {"embedding", "layer", "head"}) {
    CHECK(state.header().find("momentum/" + name)->dtype == "BF16");
    CHECK(std::ranges::equal(exported.floats(name).value(), state.floats(name).value()));
  }
}

namespace {

// Streaming DiLoCo: three fragments in turns, each merged four steps after its start, 4-bit values with error feedback between the islands.
std::string streaming_file(const std::string& name, unsigned steps, unsigned min, unsigned max) {
  std::ostringstream text;
  text << "[run]\nname = \"" << name
       << "\"\n[model]\nlayers = 1\nwidth = 32\nheads = 2\n[data]\nset = \"corpus\"\n[training]\nsteps = " << steps
       << "\nbatch = 4\nsequence_length = 16\nwarmup_steps = 1\n[strategy]\nname = \"streaming-diloco\"\ngrouping = "
          "\"balanced\"\nfragments = 3\n"
       << "inner_steps = 6\noverlap_steps = 4\nerror_feedback = true\nrounding = \"stochastic\"\n[islands]\nmin = " << min
       << "\nmax = " << max << "\ndeadline = \"20s\"\n[checkpoint]\nevery_rounds = 3\n";
  return text.str();
}
// Rounds start at 6, 8, 10, 12, … while they end before the last step, and three end the run.
unsigned streaming_rounds(unsigned steps) { return (steps - 4 - 6 + 1) / 2 + 3; }

}  // namespace

TEST_CASE("process: streaming with rounds in flight: an agent killed in the middle comes back, and all end with the same digests") {
  constexpr unsigned kSteps = 150;
  Cluster cluster;
  cluster.hold_at(102);  // round 49 begins there: no checkpoint waits for a merge that the hold keeps from coming
  for (const char* name : {"a", "b", "c"}) {
    cluster.start_island(name, {{"ATOLL_TEST_STEP_MS", "20"}});
  }
  const std::string run = cluster.submit(streaming_file("streaming-killed", kSteps, 2, 3));
  REQUIRE(reaches(cluster, run, 8));
  cluster.islands["b"].signal(SIGKILL);
  CHECK(cluster.islands["b"].wait() == 128 + SIGKILL);
  REQUIRE(Cluster::eventually([&] { return !cluster.takes_part(run, "b"); }));
  cluster.start_island("b", {{"ATOLL_TEST_STEP_MS", "20"}});
  const bool back =
      Cluster::eventually([&] { return cluster.takes_part(run, "b") || cluster.log("b").find("waits to be let in") != std::string::npos; });
  INFO((back ? std::string() : cluster.run({"status", run}).out + cluster.run({"logs", run}).out + cluster.logs()));
  REQUIRE(back);
  cluster.release();
  check_completed(cluster, run);
  check_committed_once(cluster, run, streaming_rounds(kSteps));
  check_equal_states(cluster, run, streaming_rounds(kSteps), {"a", "b", "c"});
}

TEST_CASE("process: streaming: every agent killed with rounds in flight, and the run goes on from the checkpoints") {
  constexpr unsigned kSteps = 120;
  Cluster cluster;
  for (const char* name : {"a", "b"}) {
    cluster.start_island(name, {{"ATOLL_TEST_STEP_MS", "20"}});
  }
  const std::string run = cluster.submit(streaming_file("streaming-all-killed", kSteps, 2, 2));
  REQUIRE(reaches(cluster, run, 10));
  for (const char* name : {"a", "b"}) {
    cluster.islands[name].signal(SIGKILL);
  }
  for (const char* name : {"a", "b"}) {
    CHECK(cluster.islands[name].wait() == 128 + SIGKILL);
    cluster.start_island(name, {{"ATOLL_TEST_STEP_MS", "20"}});
  }
  check_completed(cluster, run);
  check_equal_states(cluster, run, streaming_rounds(kSteps), {"a", "b"});
}

TEST_CASE("process: a trainer killed in the middle of a round is started again and the run completes") {
  Cluster cluster;
  cluster.hold_at(50);
  for (const char* name : {"a", "b"}) {
    cluster.start_island(name);
  }
  const std::string run = cluster.submit(run_file("killed-trainer", 100, 5, 2, 2));
  REQUIRE(reaches(cluster, run, 3));
  const std::vector<pid_t> trainers = atl_test::children_of(cluster.islands["a"].pid());
  REQUIRE_FALSE(trainers.empty());
  ::kill(trainers.front(), SIGKILL);
  cluster.release();
  check_completed(cluster, run);
  check_committed_once(cluster, run, 20);
  check_equal_states(cluster, run, 20, {"a", "b"});
  bool told = false;
  for (const json& event : cluster.events(run)) {
    told =
        told || (event.value("kind", "") == "trainer_crashed" && event.at("text").get<std::string>().find("signal 9") != std::string::npos);
  }
  CHECK(told);
  CHECK(cluster.log("a").find("run " + run + ": the trainer ended: ") != std::string::npos);
}

TEST_CASE("process: a coordinator killed in the middle of a run goes on from its ledger, and no island loses an inner step") {
  Cluster cluster;
  cluster.hold_at(50);
  for (const char* name : {"a", "b"}) {
    cluster.start_island(name);
  }
  const std::string run = cluster.submit(run_file("killed-coordinator", 100, 5, 2, 2));
  REQUIRE(reaches(cluster, run, 3));
  cluster.coordinator.signal(SIGKILL);
  CHECK(cluster.coordinator.wait() == 128 + SIGKILL);
  cluster.start_coordinator();
  cluster.release();
  check_completed(cluster, run);
  check_committed_once(cluster, run, 20);
  check_equal_states(cluster, run, 20, {"a", "b"});
  // Nobody's steps were lost: the outcome is that of an undisturbed run.
  const fs::path model = cluster.folder() / "model.safetensors";
  REQUIRE(cluster.run({"export", run, "-o", model.string()}).exit == 0);
  const atl::SafetensorsFile file = atl::SafetensorsFile::open(model).value();
  const auto values = file.floats("layer").value();
  for (std::size_t i = 0; i < values.size(); ++i) {
    REQUIRE(static_cast<double>(values[i]) == Approx(expected_value(i, 20, 5, 2)).epsilon(1e-4));
  }
}

TEST_CASE("process: a token is not seen in ps, what an agent keeps is its owner's alone, and arenas of killed agents go") {
  ::umask(0022);
  Cluster cluster;
  const std::string token = cluster.run({"token", "create", "-q"}).out;
  const fs::path file = cluster.folder() / "token";
  std::ofstream(file) << token;
  const fs::path abandoned = "/dev/shm/atoll-i-test-" + std::to_string(::getpid());
  std::ofstream(abandoned) << "what a killed agent left";
  cluster.hold_at(12);
  cluster.start_island_with_token_file("a", file);
  std::string file_of_a = run_file("private", 150, 5, 1, 1);
  file_of_a.insert(file_of_a.find("[islands]\n") + 10, "names = [\"a\"]\n");
  const std::string run = cluster.submit(file_of_a);
  REQUIRE(Cluster::eventually([&] { return fs::exists(cluster.state("a") / "runs" / run / "checkpoints" / "2" / "meta.json"); }));
  CHECK_FALSE(fs::exists(abandoned));
  const auto arenas = [&] {
    std::size_t count = 0;
    for (const auto& entry : fs::directory_iterator("/dev/shm")) {
      count += entry.path().filename().string().ends_with("-" + run) ? 1 : 0;
    }
    return count;
  };
  CHECK(arenas() == 1);
  const std::string secret = token.substr(0, token.find('\n'));
  for (const char* seen : {"cmdline", "environ"}) {
    for (const pid_t child : atl_test::children_of(cluster.islands["a"].pid())) {
      CHECK(atl_test::text_of("/proc/" + std::to_string(child) + "/" + seen).find(secret) == std::string::npos);
    }
  }
  CHECK(atl_test::text_of("/proc/" + std::to_string(cluster.islands["a"].pid()) + "/cmdline").find(secret) == std::string::npos);
  for (const auto& entry : fs::recursive_directory_iterator(cluster.state("a"))) {
    INFO(entry.path().string());
    CHECK((entry.symlink_status().permissions() & (fs::perms::group_all | fs::perms::others_all)) == fs::perms::none);
  }
  // A second island on this machine leaves the first one's arena alone while that lives, and clears it when it was killed.
  cluster.start_island("b");
  REQUIRE(Cluster::eventually([&] { return cluster.log("b").find("other islands reach it") != std::string::npos; }));
  CHECK(arenas() == 1);
  cluster.islands["a"].signal(SIGKILL);
  CHECK(cluster.islands["a"].wait() == 128 + SIGKILL);
  cluster.islands["b"].signal(SIGTERM);
  CHECK(cluster.islands["b"].wait() == 0);
  cluster.start_island("b");
  CHECK(Cluster::eventually([&] { return arenas() == 0; }));
}

}  // namespace of_agent_test
