// Trouble on one island: each kind is told in words, and the run goes on or ends saying why.
#include <sys/mount.h>

#include "agent/storage/checkpoint.hpp"
#include "tests/places.hpp"
#include "tests/process/cluster.hpp"
#include "tests/skip.hpp"
#include "transport/base/own_disk.hpp"

namespace of_trouble_test {

using atl_test::Cluster;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

std::string run_file(const std::string& name, unsigned min, unsigned max, const std::string& data = "set = \"corpus\"",
                     const std::string& more = "") {
  return "[run]\nname = \"" + name + "\"\n" + more + "[model]\nlayers = 1\nwidth = 32\nheads = 2\n[data]\n" + data +
         "\n[training]\nsteps = 30\nbatch = 4\nsequence_length = 16\nwarmup_steps = 1\n[strategy]\nname = \"diloco\"\ninner_steps = "
         "5\n[islands]\nmin = " +
         std::to_string(min) + "\nmax = " + std::to_string(max) + "\ndeadline = \"20s\"\n[checkpoint]\nevery_rounds = 2\n";
}

atl_test::CommandResult wait_for(Cluster& cluster, const std::string& run) { return cluster.run({"wait", run, "--timeout", "120s"}); }

// The text of the first event of this kind; "" if there is none.
std::string told(Cluster& cluster, const std::string& run, const std::string& kind) {
  for (const json& event : cluster.events(run)) {
    if (event.value("kind", "") == kind) {
      return event.value("text", "");
    }
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// A file system of its own for this folder, with room for little.
class SmallDisk {
 public:
  explicit SmallDisk(fs::path at) : at_(std::move(at)), ok_(::mount("tmpfs", at_.c_str(), "tmpfs", 0, "size=160k") == 0) {}
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  ~SmallDisk() {
    if (ok_) {
      ::umount2(at_.c_str(), MNT_DETACH);
    }
  }
  [[nodiscard]] bool ok() const { return ok_; }

 private:
  fs::path at_;
  bool ok_;
};

}  // namespace

TEST_CASE("process: a trainer that exits, crashes, hangs or fills the memory is started again, and the run says what happened") {
  struct Case {
    const char* how;
    std::vector<std::string> options;
    std::vector<const char*> said;
  };
  const std::vector<Case> cases = {{"exit", {}, {"status 3", "the arithmetic went wrong"}},
                                   {"abort", {}, {"signal 6"}},
                                   {"hang", {"--trainer-hang-after", "2s"}, {"made no progress"}},
                                   {"memory", {"--trainer-memory", "200MiB"}, {"memory, its limit is"}}};
  for (const Case& c : cases) {
    INFO(c.how);
    Cluster cluster;
    cluster.start_island("a");
    cluster.start_island("b", {{"ATOLL_TEST_BREAK", c.how}, {"ATOLL_TEST_ONCE", (cluster.folder() / "once").string()}}, c.options);
    const std::string run = cluster.submit(run_file("trouble", 2, 2));
    const atl_test::CommandResult waited = wait_for(cluster, run);
    INFO(waited.out << waited.err << cluster.logs());
    REQUIRE(waited.exit == 0);
    const std::string text = told(cluster, run, "trainer_crashed");
    for (const char* said : c.said) {
      CHECK(contains(text, said));
    }
  }
}

TEST_CASE("process: a contribution that is not finite is rejected with island and round named, and the run goes on") {
  Cluster cluster;
  cluster.start_island("a");
  cluster.start_island("b", {{"ATOLL_TEST_BREAK", "nan"}, {"ATOLL_TEST_ONCE", (cluster.folder() / "once").string()}});
  const std::string run = cluster.submit(run_file("not-finite", 1, 2));
  const atl_test::CommandResult waited = wait_for(cluster, run);
  INFO(waited.out << waited.err << cluster.logs());
  REQUIRE(waited.exit == 0);
  bool named = false;
  for (const json& event : cluster.events(run)) {
    const std::string text = event.value("text", "");
    named = named || (contains(text, "not finite") && contains(text, "b") && contains(text, "round 2"));
  }
  CHECK(named);
}

TEST_CASE("process: a run that asks for files its islands did not allow fails and names the path and the flag") {
  Cluster cluster;
  cluster.start_island("a");
  const std::string run = cluster.submit(run_file("forbidden", 1, 1, "files = [\"/etc/hostname\"]"));
  const atl_test::CommandResult waited = wait_for(cluster, run);
  INFO(waited.out << waited.err << cluster.logs());
  CHECK(waited.exit == 1);
  const std::string all = waited.out + waited.err + cluster.log("coordinator");
  CHECK(contains(all, "/etc/hostname"));
  CHECK(contains(all, "--allow-data"));
}

TEST_CASE("process: a model that does not fit the arena limit fails the run in words") {
  Cluster cluster;
  cluster.start_island("a", {{"ATOLL_TEST_HEAD", "400000"}});
  const std::string run = cluster.submit(run_file("too-large", 1, 1, "set = \"corpus\"", "arena_limit = \"1MiB\"\n"));
  const atl_test::CommandResult waited = wait_for(cluster, run);
  INFO(waited.out << waited.err << cluster.logs());
  CHECK(waited.exit == 1);
  CHECK(contains(waited.out + waited.err + cluster.log("coordinator"), "arena_limit"));
}

TEST_CASE("process: too few islands: status says whom the run waits for, and it goes on by itself") {
  Cluster cluster;
  cluster.start_island("a");
  const std::string run = cluster.submit(run_file("too-few", 2, 2));
  CHECK(Cluster::eventually([&] {
    const json document = cluster.status(run);
    return document.contains("run") && contains(document["run"].value("reason", ""), "2");
  }));
  cluster.start_island("b");
  const atl_test::CommandResult waited = wait_for(cluster, run);
  INFO(waited.out << waited.err << cluster.logs());
  CHECK(waited.exit == 0);
}

TEST_CASE("process: SIGTERM in the middle of a run leaves cleanly, and the others finish") {
  Cluster cluster;
  cluster.hold_at(17);
  for (const char* name : {"a", "b", "c"}) {
    cluster.start_island(name);
  }
  const std::string run = cluster.submit(run_file("leaving", 2, 3));
  REQUIRE(Cluster::eventually([&] { return cluster.round_of(run) >= 1; }));
  cluster.islands["b"].signal(SIGTERM);
  REQUIRE(Cluster::eventually([&] { return contains(cluster.log("b"), "leaving"); }));
  cluster.release();  // what it contributes may be to the round that the others are held in
  CHECK(cluster.islands["b"].wait() == 0);
  const atl_test::CommandResult waited = wait_for(cluster, run);
  INFO(waited.out << waited.err << cluster.logs());
  CHECK(waited.exit == 0);
  CHECK(contains(waited.out + waited.err, "2 of 3"));
}

TEST_CASE("process: a second signal ends at once, and takes the trainer along") {
  Cluster cluster;
  cluster.start_island("a", {{"ATOLL_TEST_STEP_MS", "2000"}});
  const std::string run = cluster.submit(run_file("at-once", 1, 1));
  // Only an island with a round in hand has something to finish; before that one signal is enough to leave.
  REQUIRE(Cluster::eventually([&] { return contains(cluster.log("a"), "checkpoint of round 0"); }));
  std::vector<pid_t> children;  // read only now: while an agent starts, it has another child for a moment, which tries the BLAS kernels
  REQUIRE(Cluster::eventually([&] {
    children = atl_test::children_of(cluster.islands["a"].pid());
    return children.size() == 1;
  }));
  const pid_t trainer = children.front();
  cluster.islands["a"].signal(SIGINT);
  REQUIRE(Cluster::eventually([&] { return contains(cluster.log("a"), "leaving"); }));
  cluster.islands["a"].signal(SIGINT);
  CHECK(cluster.islands["a"].wait() == 130);
  CHECK(Cluster::eventually([&] { return ::kill(trainer, 0) != 0; }));
}

TEST_CASE("process: one state directory has one agent, one identity has one agent, and a wrong token gets nobody in") {
  Cluster cluster;
  cluster.start_island("a");
  REQUIRE(Cluster::eventually([&] { return contains(cluster.log("a"), "other islands reach it"); }));
  const auto agent = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {atl_test::atoll_program(), "agent"});
    const fs::path out = cluster.folder() / "second.log";
    atl_test::Process process(arguments, {}, out, out);
    const int exit = process.wait();
    return std::pair(exit, atl_test::text_of(out));
  };
  const auto [locked, locked_text] = agent({"--state", cluster.state("a").string()});
  CHECK(locked == 8);
  CHECK(contains(locked_text, "in use"));

  // A copy of the state directory: another process with the same key.
  fs::create_directories(cluster.state("copy"));
  fs::copy(cluster.state("a") / "keys", cluster.state("copy") / "keys");
  fs::copy_file(cluster.state("a") / "coordinator.json", cluster.state("copy") / "coordinator.json");
  const auto [twin, twin_text] = agent({"--state", cluster.state("copy").string(), "--name", "a"});
  INFO(twin_text);
  CHECK(twin == 8);

  const auto [never, never_text] = agent({"--state", cluster.state("new").string()});
  CHECK(never == 4);
  CHECK(contains(never_text, "--join"));
  const auto [forged, forged_text] = agent({"--state", cluster.state("new").string(), "--join", "atoll1-nonsense"});
  CHECK(forged == 2);
}

TEST_CASE("process: a disk that is full at a checkpoint: the older one stays good, the run says so and goes on") {
  Cluster cluster;
  const fs::path disk = cluster.state("a");
  fs::create_directories(disk);
  const SmallDisk mounted(disk);
  if (!mounted.ok()) {
    ATL_SKIP("no small tmpfs can be mounted here (not root)");
  }
  // Island a is held in round 3, so the disk is full before the checkpoint of round 4; b in round 6, so it has room again before that
  // one's.
  const fs::path rest = cluster.folder() / "the rest";
  cluster.hold_at(12);
  cluster.start_island("a");
  cluster.start_island("b", {{"ATOLL_TEST_HOLD_AT", "27"}, {"ATOLL_TEST_RELEASE", rest.string()}});
  const std::string run = cluster.submit(run_file("full-disk", 2, 2));
  REQUIRE(Cluster::eventually([&] { return fs::exists(disk / "runs" / run / "checkpoints" / "2" / "meta.json"); }));
  std::ofstream filler(disk / "filler");
  while (filler << std::string(1024, 'x') << std::flush) {
  }
  filler.close();
  cluster.release();
  CHECK(Cluster::eventually([&] { return contains(cluster.log("a"), "free some space"); }));
  CHECK(Cluster::eventually([&] { return cluster.round_of(run) >= 5; }));
  {
    const fs::path copy = cluster.folder() / "copy";  // looking into the store of a live agent would disturb it
    fs::copy(disk / "runs" / run / "checkpoints", copy, fs::copy_options::recursive);
    atl::CheckpointStore store = atl::CheckpointStore::open(atl::on_this_machine(copy)).value();
    CHECK(store.newest_good().has_value());
  }
  fs::remove(disk / "filler");
  std::ofstream(rest) << "go on";
  const atl_test::CommandResult waited = wait_for(cluster, run);
  INFO(waited.out << waited.err << cluster.logs());
  CHECK(waited.exit == 0);
  CHECK(contains(cluster.run({"logs", run}).out, "free some space"));
  cluster.islands["a"].signal(SIGKILL);
  CHECK(cluster.islands["a"].wait() == 128 + SIGKILL);
}

TEST_CASE("process: a coordinator that hangs is not there: commands say so, and whoever watches a run goes on when it does") {
  Cluster cluster;
  cluster.hold_at(12);
  cluster.start_island("a");
  const std::string run = cluster.submit(run_file("hung", 1, 1));
  REQUIRE(Cluster::eventually([&] { return cluster.round_of(run) >= 1; }));
  struct Watcher {
    std::vector<std::string> command;
    fs::path out;
    fs::path err;
    atl_test::Process process;
  };
  std::vector<Watcher> watchers;
  for (const std::vector<std::string>& command : {std::vector<std::string>{"wait", run}, {"logs", run, "-f"}, {"status", run, "--watch"}}) {
    Watcher watcher{command, cluster.folder() / (command[0] + ".out"), cluster.folder() / (command[0] + ".err"), {}};
    std::vector<std::string> arguments = {atl_test::atoll_program()};
    arguments.insert(arguments.end(), command.begin(), command.end());
    arguments.insert(arguments.end(), {"--state", cluster.state("coordinator").string()});
    watcher.process = atl_test::Process(arguments, {}, watcher.out, watcher.err);
    watchers.push_back(std::move(watcher));
  }
  for (const Watcher& watcher : watchers) {
    const fs::path& said = watcher.command[0] == "wait" ? watcher.err : watcher.out;
    REQUIRE(Cluster::eventually([&] { return !atl_test::text_of(said).empty(); }));
  }
  cluster.coordinator.signal(SIGSTOP);
  const auto begin = std::chrono::steady_clock::now();
  const atl_test::CommandResult status = cluster.run({"status", run});
  CHECK(status.exit == 3);
  CHECK(contains(status.err, "does not answer"));
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
  // Longer than the links take for silence: by then every connection was given up and is tried again.
  for (const Watcher& watcher : watchers) {
    INFO(watcher.command[0]);
    CHECK(Cluster::eventually([&] { return contains(atl_test::text_of(watcher.err), "; trying again"); }));
  }
  std::this_thread::sleep_until(begin + std::chrono::seconds(22));
  for (const Watcher& watcher : watchers) {
    INFO(watcher.command[0] << atl_test::text_of(watcher.err));
    CHECK(watcher.process.running());
  }
  cluster.coordinator.signal(SIGCONT);
  cluster.release();
  for (Watcher& watcher : watchers) {
    const int exit = watcher.process.wait();
    const std::string said = atl_test::text_of(watcher.err);
    INFO(watcher.command[0] << said);
    CHECK(exit == 0);
    CHECK(contains(said, "answers again"));
    CHECK_FALSE(contains(said, "enrol"));
  }
}

TEST_CASE("process: an agent that was suspended while another one took its place is told when it wakes, and ends") {
  Cluster cluster;
  cluster.start_island("a");
  const std::string connected = "island a is connected";
  REQUIRE(Cluster::eventually([&] { return contains(cluster.log("coordinator"), connected); }));
  // Who moves a machine copies its agent's state.
  for (const char* part : {"keys", "coordinator.json"}) {
    fs::create_directories(cluster.state("b"));
    fs::copy(cluster.state("a") / part, cluster.state("b") / part, fs::copy_options::recursive);
  }
  cluster.islands["a"].signal(SIGSTOP);
  cluster.start_island("b");
  const bool in_its_place = Cluster::eventually([&] {
    const std::string log = cluster.log("coordinator");
    return log.find(connected) != log.rfind(connected);
  });
  cluster.islands["a"].signal(SIGCONT);
  INFO(cluster.logs());
  REQUIRE(in_its_place);
  CHECK(cluster.islands["a"].wait() == 8);
  CHECK(contains(cluster.log("a"), "another agent with the identity of island a took this one's place while it was silent"));
  CHECK(cluster.islands["b"].running());
  const std::string run = cluster.submit(run_file("moved", 1, 1));
  CHECK(wait_for(cluster, run).exit == 0);
}

}  // namespace of_trouble_test
