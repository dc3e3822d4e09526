// The coordinator's store: lost, damaged, exchanged, or taken away while it is in use.
#include <fstream>

#include "agent/storage/checkpoint.hpp"
#include "tests/process/cluster.hpp"
#include "transport/base/own_disk.hpp"

using atl_test::Cluster;
using atl_test::CommandResult;
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
