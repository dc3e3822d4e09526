// What coordinator and agents keep: lost, damaged, exchanged, taken away while it is in use, or on a full disk.
#include <fstream>

#include "agent/storage/checkpoint.hpp"
#include "tests/process/cluster.hpp"
#include "tests/process/small_disk.hpp"
#include "tests/skip.hpp"
#include "transport/base/own_disk.hpp"

namespace of_store_test {

using atl_test::Cluster;
using atl_test::CommandResult;
using atl_test::SmallDisk;
namespace fs = std::filesystem;

namespace {

std::string run_file(unsigned steps) {
  return "[run]\nname = \"stored\"\n[model]\nlayers = 1\nwidth = 32\nheads = 2\n[data]\nset = \"corpus\"\n[training]\nsteps = " +
         std::to_string(steps) +
         "\nbatch = 4\nsequence_length = 16\nwarmup_steps = 1\n[strategy]\ninner_steps = 5\n[islands]\nmin = 2\nmax = 2\n";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

void stop(Cluster& cluster) {
  cluster.coordinator.signal(SIGTERM);
  CHECK(cluster.coordinator.wait() == 0);
}

void flip(const fs::path& path, const std::string& mark) {
  std::string bytes = atl_test::text_of(path);
  const std::size_t at = bytes.find(mark);
  REQUIRE(at != std::string::npos);
  bytes[at] = static_cast<char>(bytes[at] ^ 1);
  std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace

TEST_CASE("process: a ledger that is lost, empty, damaged or another coordinator's is refused with what to do, and check finds it") {
  Cluster cluster;
  REQUIRE(Cluster::eventually([&] { return cluster.run({"runs"}).exit == 0; }));
  const std::string run = cluster.submit(run_file(100));
  const CommandResult busy = cluster.run({"coordinator", "check"});
  CHECK(busy.exit == 8);
  CHECK(contains(busy.err, "stop it first"));
  const fs::path backup = cluster.folder() / "backup.db";
  REQUIRE(cluster.run({"coordinator", "backup", backup.string()}).exit == 0);
  stop(cluster);
  const fs::path ledger = cluster.state("coordinator") / "ledger.db";
  const CommandResult sound = cluster.run({"coordinator", "check"});
  INFO(sound.out << sound.err);
  CHECK(sound.exit == 0);
  CHECK(contains(sound.out, "is sound"));
  CHECK(contains(sound.out, "1 runs"));
  CHECK(cluster.run({"coordinator", "check", backup.string()}).exit == 0);
  CHECK(cluster.run({"coordinator", "check", ledger.string()}).exit == 2);  // it is no backup

  const auto refused = [&](const std::string& why) {
    const CommandResult checked = cluster.run({"coordinator", "check"});
    INFO(checked.out << checked.err);
    CHECK((checked.exit != 0 && checked.exit < 64));
    CHECK(contains(checked.err, why));
    const CommandResult started = cluster.run({"coordinator"});  // run() waits: it must end by itself
    INFO(started.err);
    CHECK((started.exit != 0 && started.exit < 64));
    CHECK(contains(started.err, why));
    CHECK(contains(started.err, "ackup"));
  };
  const fs::path kept = cluster.folder() / "kept.db";
  fs::rename(ledger, kept);
  refused("is not there");
  std::ofstream(ledger).flush();
  refused("is empty");
  fs::copy_file(kept, ledger, fs::copy_options::overwrite_existing);
  flip(ledger, run);
  refused("changed on the disk");
  fs::copy_file(backup, cluster.folder() / "damaged.db");
  flip(cluster.folder() / "damaged.db", run);
  CHECK(cluster.run({"coordinator", "check", (cluster.folder() / "damaged.db").string()}).exit == 1);
  {
    Cluster another;
    REQUIRE(Cluster::eventually([&] { return another.run({"runs"}).exit == 0; }));
    stop(another);
    fs::copy_file(another.state("coordinator") / "ledger.db", ledger, fs::copy_options::overwrite_existing);
  }
  refused("of another coordinator");
  // Put back, all is as it was.
  fs::copy_file(kept, ledger, fs::copy_options::overwrite_existing);
  cluster.start_coordinator();
  REQUIRE(Cluster::eventually([&] { return cluster.run({"status", run}).exit == 0; }));
}

TEST_CASE("process: a state directory taken away from under the coordinator stops commits, says so, and put back the run goes on") {
  Cluster cluster;
  cluster.hold_at(12);
  cluster.start_island("a");
  cluster.start_island("b");
  const std::string run = cluster.submit(run_file(60));
  REQUIRE(Cluster::eventually([&] { return cluster.round_of(run) >= 2; }));
  const fs::path state = cluster.state("coordinator");
  const fs::path away = cluster.folder() / "away";
  fs::rename(state, away);
  cluster.release();
  REQUIRE(Cluster::eventually([&] { return contains(cluster.log("coordinator"), "removed or replaced"); }));
  std::this_thread::sleep_for(std::chrono::seconds(2));
  CHECK_FALSE(contains(cluster.log("coordinator"), "completed"));  // six rounds take far less than that
  fs::rename(away, state);
  const CommandResult waited = cluster.run({"wait", run, "--timeout", "120s"});
  INFO(waited.out << waited.err << cluster.logs());
  CHECK(waited.exit == 0);
  CHECK(contains(cluster.log("coordinator"), "can be written again"));
  CHECK(cluster.round_of(run) == 12);
}

TEST_CASE("process: an agent that is stopped while the coordinator is away writes its state down first, and the run loses no round") {
  Cluster cluster;
  cluster.hold_at(37);
  cluster.start_island("a");
  cluster.start_island("b");
  std::string file = run_file(60);
  file += "[checkpoint]\nevery_rounds = 1000\n";
  const std::string run = cluster.submit(file);
  REQUIRE(Cluster::eventually([&] { return cluster.round_of(run) >= 7; }));
  cluster.coordinator.signal(SIGKILL);
  CHECK(cluster.coordinator.wait() == 128 + SIGKILL);
  for (const char* name : {"a", "b"}) {
    cluster.islands[name].signal(SIGTERM);
  }
  for (const char* name : {"a", "b"}) {
    CHECK(cluster.islands[name].wait() == 0);
    const auto newest =
        atl::CheckpointStore::open(atl::on_this_machine(cluster.state(name) / "runs" / run / "checkpoints")).value().newest_good();
    INFO(cluster.log(name));
    REQUIRE(newest);
    CHECK(newest->round == atl::Round(7));
  }
  cluster.start_coordinator();
  for (const char* name : {"a", "b"}) {
    cluster.start_island(name);
  }
  cluster.release();
  const CommandResult waited = cluster.run({"wait", run, "--timeout", "120s"});
  INFO(waited.out << waited.err << cluster.logs());
  CHECK(waited.exit == 0);
  CHECK_FALSE(contains(cluster.run({"logs", run}).out, "rounds_lost"));
}

TEST_CASE(
    "process: a state directory taken away from under an agent: it says so and leaves, the others go on, and put back it comes back") {
  Cluster cluster;
  cluster.hold_at(12);
  cluster.start_island("a", {}, {"--leave-within", "3s"});  // its trainer is held, and contributes no more
  cluster.start_island("b");
  std::string file = run_file(200);
  file.replace(file.find("min = 2"), 7, "min = 1");
  const std::string run = cluster.submit(file);
  REQUIRE(Cluster::eventually([&] { return cluster.round_of(run) >= 2; }));
  const fs::path state = cluster.state("a");
  const fs::path away = cluster.folder() / "away";
  fs::rename(state, away);
  fs::create_directories(state / "runs");  // another one in its place
  CHECK(cluster.islands["a"].wait() == 1);
  INFO(cluster.logs());
  CHECK(contains(cluster.log("a"), "was removed or replaced while this agent runs"));
  CHECK(contains(cluster.log("a"), "put it back and start the agent again"));
  REQUIRE(Cluster::eventually([&] { return contains(cluster.log("coordinator"), "was removed or replaced while this agent runs"); }));
  CHECK(fs::is_empty(state / "runs"));  // nothing went where it does not belong
  const std::uint64_t left_at = cluster.round_of(run);
  cluster.release();
  REQUIRE(Cluster::eventually([&] { return cluster.round_of(run) >= left_at + 2; }));
  fs::remove_all(state);
  fs::rename(away, state);
  cluster.start_island("a");
  const CommandResult waited = cluster.run({"wait", run, "--timeout", "120s"});
  CHECK(waited.exit == 0);
}

TEST_CASE("process: agent check reads every checkpoint and record of a stopped agent and names each file that is damaged") {
  Cluster cluster;
  cluster.start_island("a");
  cluster.start_island("b");
  const std::string run = cluster.submit(run_file(60));
  REQUIRE(cluster.run({"wait", run, "--timeout", "120s"}).exit == 0);
  const std::string state = cluster.state("a").string();
  const auto check = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"agent", "check"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return cluster.run_in("a", arguments);
  };
  const CommandResult busy = check({});
  CHECK(busy.exit == 8);
  CHECK(contains(busy.err, "stop that one"));
  cluster.islands["a"].signal(SIGTERM);
  REQUIRE(cluster.islands["a"].wait() == 0);
  const CommandResult sound = check({});
  INFO(sound.out << sound.err);
  CHECK(sound.exit == 0);
  CHECK(contains(sound.out, "is sound"));
  CHECK(contains(sound.out, "of 1 runs"));
  CHECK(cluster.run_in("nobody", {"agent", "check"}).exit == 4);

  std::vector<fs::path> files = {cluster.state("a") / "coordinator.json"};
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(cluster.state("a") / "runs" / run / "checkpoints")) {
    if (entry.is_regular_file()) {
      files.push_back(entry.path());
    }
  }
  REQUIRE(files.size() > 4);
  const auto flip_middle = [](const fs::path& path) {
    std::string bytes = atl_test::text_of(path);
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 4);
    std::ofstream(path, std::ios::binary) << bytes;
  };
  for (const fs::path& path : files) {
    INFO(path);
    flip_middle(path);
    if (path.filename() != "coordinator.json") {  // it has no sum of its own: what it says is checked, not how
      const CommandResult damaged = check({});
      CHECK(damaged.exit == 1);
      CHECK(contains(damaged.out, path.string() + ": "));
      CHECK(std::count(damaged.out.begin(), damaged.out.end(), '\n') == 1);
    }
    flip_middle(path);
  }
  std::size_t damaged = 1;
  std::ofstream(files[0]) << "{";
  for (const fs::path& path : files) {
    if (path.filename() == "outer.safetensors") {
      flip_middle(path);
      ++damaged;
    }
  }
  const CommandResult several = check({"-o", "json"});
  CHECK(several.exit == 1);
  const nlohmann::json document = nlohmann::json::parse(several.out);
  CHECK(document.at("schema") == 1);
  CHECK(document.at("sound") == false);
  CHECK(document.at("faults").size() == damaged);
}

TEST_CASE("process: an agent and a coordinator that start on a full disk say so and wait for room") {
  Cluster cluster;
  REQUIRE(Cluster::eventually([&] { return cluster.run({"runs"}).exit == 0; }));
  SmallDisk disk(cluster.folder() / "state" / "a");
  SmallDisk other(cluster.folder() / "small");
  if (!disk.there() || !other.there()) {
    ATL_SKIP("no disk can be mounted here: this needs root");
  }
  cluster.start_island("a");
  REQUIRE(Cluster::eventually([&] { return contains(cluster.log("a"), "joined the coordinator"); }));
  cluster.islands["a"].signal(SIGKILL);
  cluster.islands["a"].wait();
  fs::remove(cluster.state("a") / "coordinator.json");  // what a disk that was full left out
  disk.fill();
  cluster.start_island("a");  // --join, as at first
  REQUIRE(Cluster::eventually([&] { return contains(cluster.log("a"), "is full: this waits until there is room on it"); }));
  CHECK(cluster.islands["a"].running());
  disk.empty();
  REQUIRE(Cluster::eventually([&] { return contains(cluster.run({"islands"}).out, "a"); }));
  REQUIRE(Cluster::eventually([&] { return contains(cluster.log("a"), "there is room on the disk"); }));
  REQUIRE(Cluster::eventually([&] { return fs::exists(cluster.state("a") / "coordinator.json"); }));

  // The coordinator, and an island that joins meanwhile.
  REQUIRE(cluster.run({"coordinator", "backup", (cluster.folder() / "backup.db").string()}).exit == 0);
  stop(cluster);
  cluster.copy_coordinator_to(cluster.folder() / "small" / "coordinator");
  other.fill();
  cluster.start_coordinator();
  REQUIRE(Cluster::eventually([&] { return contains(cluster.log("coordinator"), "is full: this waits until there is room on it"); }));
  CHECK(cluster.coordinator.running());
  other.empty();
  REQUIRE(Cluster::eventually([&] { return cluster.run({"runs"}).exit == 0; }));
  const std::string token = cluster.run({"token", "create", "-q"}).out;
  other.fill();
  std::ofstream(cluster.folder() / "token") << token;
  cluster.start_island_with_token_file("b", cluster.folder() / "token");
  REQUIRE(Cluster::eventually([&] { return contains(cluster.log("b"), "waiting for the coordinator"); }));
  CHECK(cluster.islands["b"].running());
  other.empty();
  REQUIRE(Cluster::eventually([&] { return contains(cluster.log("b"), "joined the coordinator"); }));
}

}  // namespace of_store_test
