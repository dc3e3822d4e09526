// Islands come and go, runs are paused, coordinators move: with real processes.
#include <sys/stat.h>

#include <algorithm>
#include <map>

#include "agent/storage/checkpoint.hpp"
#include "tests/process/cluster.hpp"
#include "transport/base/own_disk.hpp"

namespace of_churn_test {

using atl_test::Cluster;
using atl_test::CommandResult;
using nlohmann::json;

namespace {

std::string run_file(const std::string& name, unsigned steps, unsigned min, unsigned max) {
  return "[run]\nname = \"" + name +
         "\"\n[model]\nlayers = 1\nwidth = 32\nheads = 2\n[data]\nset = \"corpus\"\n[training]\nsteps = " + std::to_string(steps) +
         "\nbatch = 4\nsequence_length = 16\nwarmup_steps = 1\n[strategy]\nname = \"diloco\"\ninner_steps = 5\n[islands]\nmin = " +
         std::to_string(min) + "\nmax = " + std::to_string(max) + "\ndeadline = \"60s\"\n[checkpoint]\nevery_rounds = 2\n";
}

void check_completed(Cluster& cluster, const std::string& run) {
  const CommandResult waited = cluster.run({"wait", run, "--timeout", "110s"});
  INFO(waited.out << waited.err << cluster.logs());
  REQUIRE(waited.exit == 0);
}

std::size_t count_of(Cluster& cluster, const std::string& run, const std::string& kind) {
  std::size_t count = 0;
  for (const json& event : cluster.events(run)) {
    count += event.value("kind", "") == kind ? 1U : 0U;
  }
  return count;
}

bool has_state(Cluster& cluster, const std::string& run, const std::string& state) {
  const json document = cluster.status(run);
  return document.contains("run") && document["run"].value("state", "") == state;
}

bool comes_to(Cluster& cluster, const std::string& run, std::uint64_t round) {
  return Cluster::eventually([&] { return cluster.round_of(run) >= round; });
}

}  // namespace

TEST_CASE("process: a paused run frees its trainers, and `diff` cannot tell it from one that was never paused") {
  Cluster cluster("127.0.0.1", "wan");
  cluster.hold_at(52);  // in the eleventh of twenty rounds
  for (const char* name : {"a", "b"}) {
    cluster.start_island(name);
  }
  const std::string paused = cluster.submit(run_file("paused", 100, 2, 2));
  REQUIRE(comes_to(cluster, paused, 10));
  const auto total = [&](const std::string& run, const char* what) { return cluster.status(run)["run"][what].get<std::uint64_t>(); };
  std::uint64_t sent = 0;
  REQUIRE(Cluster::eventually([&] {
    sent = total(paused, "bytes_sent");
    return total(paused, "tokens") >= 2 * 50 * 4 * 16 && sent > 0;  // islands have reported their first ten rounds
  }));
  REQUIRE(cluster.run({"pause", paused}).exit == 0);
  cluster.release();
  {
    const bool stopped = Cluster::eventually([&] { return has_state(cluster, paused, "paused"); });
    INFO(cluster.logs());
    REQUIRE(stopped);
  }
  CHECK(cluster.round_of(paused) == 11);
  for (const char* name : {"a", "b"}) {
    CHECK(Cluster::eventually([&] { return atl_test::children_of(cluster.islands[name].pid()).empty(); }));
  }
  CHECK(cluster.round_of(paused) == 11);
  REQUIRE(cluster.run({"resume", paused}).exit == 0);
  check_completed(cluster, paused);
  // Agents count from zero after the pause; what is shown does not.
  CHECK(total(paused, "bytes_sent") >= sent + 2 * 8 * 203 * 4);  // of nine further rounds at least eight: 203 float32 values, two islands
  CHECK(total(paused, "tokens") >= 2 * (50 + 40) * 4 * 16);
  const std::string plain = cluster.submit(run_file("plain", 100, 2, 2));
  check_completed(cluster, plain);
  const CommandResult diff = cluster.run({"diff", plain, paused, "--json"});
  INFO(diff.out << diff.err);
  const json document = json::parse(diff.out);
  CHECK(document["parted"] == false);
  CHECK(document["same_until"] == 20);
  CHECK(cluster.status(paused)["absences"] == json::array());
  // The tape has what it takes: digests, members and tokens of every round.
  std::istringstream lines(cluster.run({"events", paused, "--json"}).out);
  std::size_t commits = 0;
  for (std::string line; std::getline(lines, line);) {
    const json event = json::parse(line);
    if (event["kind"] == "round_committed" && event["fields"]["round"] != 0) {
      ++commits;
      CHECK(event["fields"]["digest"].get<std::string>().size() == 64);
      CHECK(event["fields"]["members"].size() == 2);
      CHECK(event["fields"]["member_tokens"] == json({5 * 4 * 16, 5 * 4 * 16}));
    }
  }
  CHECK(commits == 20);
}

TEST_CASE("process: an island that has nothing to do for so long leaves, after its run and not during it") {
  Cluster cluster;
  cluster.start_island("b", {{"ATOLL_TEST_STEP_MS", "20"}});
  CHECK(cluster.run_in("c", {"agent", "--leave-idle", "0s"}).exit == 2);
  const std::string run = cluster.submit(run_file("idle", 400, 2, 2));  // eight seconds, once both are there
  cluster.start_island("a", {{"ATOLL_TEST_STEP_MS", "20"}}, {"--leave-idle", "4s"});
  REQUIRE(cluster.run({"wait", run}).exit == 0);
  CHECK(cluster.islands["a"].running());
  CHECK(cluster.islands["a"].wait() == 0);
  CHECK(cluster.log("a").find("leaving: it had nothing to do for 4.0 s") != std::string::npos);
  CHECK(cluster.islands["b"].running());
}

TEST_CASE("process: an island is not idle while somebody reads a model from it, however long that lasts") {
  Cluster cluster;
  // On this uplink a piece takes two seconds, and the model three or four times as long.
  cluster.start_island("a", {{"ATOLL_TEST_STEP_MS", "5"}, {"ATOLL_TEST_HEAD", "900000"}}, {"--leave-idle", "5s", "--uplink", "4mbit"});
  const std::string run = cluster.submit(run_file("read", 20, 1, 1));
  REQUIRE(cluster.run({"wait", run}).exit == 0);
  const auto asked = std::chrono::steady_clock::now();
  const CommandResult read = cluster.run({"export", run, "-o", (cluster.folder() / "model.safetensors").string()});
  INFO(read.out << read.err << cluster.log("a"));
  CHECK(read.exit == 0);
  CHECK(std::chrono::steady_clock::now() - asked > std::chrono::seconds(6));  // else it shows nothing
  CHECK(cluster.islands["a"].wait() == 0);
  CHECK(cluster.log("a").find("leaving: it had nothing to do for 5.0 s") != std::string::npos);
}

TEST_CASE("process: a drained island and one with a leave file contribute what they have done, go, and the run goes on") {
  Cluster cluster;
  cluster.hold_at(17);  // two steps into the fourth round
  cluster.start_island("a");
  cluster.start_island("b");
  cluster.start_island("c", {}, {"--leave-file", (cluster.folder() / "notice").string()});
  REQUIRE(Cluster::eventually([&] {
    const json islands = json::parse(cluster.run({"islands", "--json"}).out, nullptr, false);
    return islands.is_object() &&
           std::ranges::count_if(islands["islands"], [](const json& island) { return island["connected"] == true; }) == 3;
  }));
  const std::string run = cluster.submit(run_file("leaving", 150, 1, 3));
  REQUIRE(comes_to(cluster, run, 3));
  const bool held = Cluster::eventually([&] {
    const json status = cluster.status(run);
    for (const json& island : status["islands"]) {
      if (!island["step"].is_number() || island["step"] < 17) {
        return false;
      }
    }
    return status["islands"].size() == 3;
  });
  REQUIRE(held);
  REQUIRE(cluster.run({"drain", "b"}).exit == 0);
  std::ofstream(cluster.folder() / "notice") << "taken away in two minutes\n";
  const bool said = Cluster::eventually([&] { return cluster.log("coordinator").find("taken away in two minutes") != std::string::npos; });
  INFO(cluster.logs());
  REQUIRE(said);
  CHECK(cluster.islands["b"].running());  // their contributions wait for the others'
  CHECK(cluster.islands["c"].running());
  cluster.release();
  CHECK(cluster.islands["b"].wait() == 0);
  CHECK(cluster.islands["c"].wait() == 0);
  check_completed(cluster, run);
  const std::string reason = cluster.status(run)["run"].value("reason", "");
  INFO(reason);
  CHECK(reason.find("completed with 1 of 3 islands") != std::string::npos);
  CHECK(reason.find("drained by an operator") != std::string::npos);
  CHECK(cluster.log("b").find("leaves: drained by an operator") != std::string::npos);  // and so says its own log
  CHECK(cluster.log("b").find("island b: has left") != std::string::npos);
  CHECK(reason.find("taken away in two minutes") != std::string::npos);
  CHECK(count_of(cluster, run, "round_committed") == 31);
  // Weighted by the tokens of the two steps that they had done.
  constexpr std::uint64_t kTokens = std::uint64_t{4} * 16;  // of a step
  for (const json& event : cluster.events(run)) {
    if (event.value("kind", "") == "round_committed" && event["round"] == 4) {
      CHECK(event["fields"]["members"] == json({"a", "b", "c"}));
      CHECK(event["fields"]["member_tokens"] == json({5 * kTokens, 2 * kTokens, 2 * kTokens}));
    }
  }
  // Each has a checkpoint of the last round that it contributed to, with its trainer's own state.
  for (const char* name : {"b", "c"}) {
    auto store = atl::CheckpointStore::open(atl::on_this_machine(cluster.state(name) / "runs" / run / "checkpoints"));
    REQUIRE(store.has_value());
    const auto newest = store->newest_good();
    REQUIRE(newest);
    CHECK(newest->round == atl::Round(4));
    CHECK(newest->has_trainer_state());
  }
  CHECK(cluster.run({"drain", "b"}).exit == 8);  // it is not there any more
  CHECK(cluster.run({"drain", "nobody"}).exit == 4);
}

TEST_CASE("process: a coordinator made of a backup elsewhere goes on with the run of the islands that are told its address") {
  Cluster cluster;
  cluster.hold_at(37);  // in the eighth of twenty rounds
  for (const char* name : {"a", "b"}) {
    cluster.start_island(name);
  }
  const std::string run = cluster.submit(run_file("moved", 100, 2, 2));
  REQUIRE(comes_to(cluster, run, 3));
  const atl_test::fs::path backup = cluster.folder() / "backup.db";
  const CommandResult written = cluster.run({"coordinator", "backup", backup.string()});
  INFO(written.err);
  REQUIRE(written.exit == 0);
  CHECK(cluster.run({"coordinator", "backup", backup.string()}).exit == 8);  // it overwrites nothing
  struct stat facts {};
  REQUIRE(::stat(backup.c_str(), &facts) == 0);
  CHECK((facts.st_mode & 0777) == 0600);
  REQUIRE(comes_to(cluster, run, 7));  // the backup is old by now
  cluster.coordinator.signal(SIGKILL);
  CHECK(cluster.coordinator.wait() == 128 + SIGKILL);
  const std::string address = cluster.move_coordinator("elsewhere", backup);
  for (const char* name : {"a", "b"}) {
    cluster.islands[name].signal(SIGKILL);
    CHECK(cluster.islands[name].wait() == 128 + SIGKILL);
    cluster.start_island(name, {}, {"--coordinator", address});
  }
  cluster.release();
  check_completed(cluster, run);
  INFO(cluster.logs() << cluster.log("elsewhere"));
  CHECK(cluster.round_of(run) == 20);
  CHECK(count_of(cluster, run, "ledger_restored") == 1);
  for (const json& event : cluster.events(run)) {
    if (event["kind"] == "ledger_restored") {
      CHECK(event["fields"]["to"].get<std::uint64_t>() >= 6);  // of the islands' newest checkpoint, not of the backup
    }
  }
}

TEST_CASE("process: revoking ends access at once: the agent goes, the others go on, and it cannot come back") {
  Cluster cluster;
  cluster.hold_at(12);
  for (const char* name : {"a", "b"}) {
    cluster.start_island(name);
  }
  const std::string run = cluster.submit(run_file("revoked", 100, 1, 2));
  REQUIRE(comes_to(cluster, run, 2));
  REQUIRE(cluster.run({"islands", "revoke", "b"}).exit == 0);
  CHECK(cluster.islands["b"].wait() == 7);
  cluster.start_island("b");
  CHECK(cluster.islands["b"].wait() == 7);  // its old token is used up
  cluster.release();
  check_completed(cluster, run);
  const std::string reason = cluster.status(run)["run"].value("reason", "");
  INFO(reason);
  CHECK(reason.find("revoked") != std::string::npos);
  CHECK(cluster.run({"islands", "revoke", "t-1"}).exit == 2);
}

TEST_CASE(
    "process: the data of a killed island go to who is there, and `data` proves that each sample was "
    "committed once") {
  Cluster cluster;
  cluster.hold_at(17);  // two steps into the fourth round
  for (const char* name : {"a", "b"}) {
    cluster.start_island(name);
  }
  const std::string run = cluster.submit(run_file("counted", 100, 2, 2));
  const auto step_of = [&](const std::string& name) -> std::uint64_t {
    const json status = cluster.status(run);
    for (const json& island : status["islands"]) {
      if (island["name"] == name && island["step"].is_number()) {
        return island["step"];
      }
    }
    return 0;
  };
  REQUIRE(comes_to(cluster, run, 3));
  REQUIRE(Cluster::eventually([&] { return step_of("a") == 17 && step_of("b") == 17; }));
  cluster.islands["b"].signal(SIGKILL);
  CHECK(cluster.islands["b"].wait() == 128 + SIGKILL);
  REQUIRE(Cluster::eventually([&] { return count_of(cluster, run, "island_left") == 1; }));
  cluster.start_island("c");
  REQUIRE(Cluster::eventually([&] {
    const json status = cluster.status(run);
    return std::ranges::any_of(status["islands"], [](const json& island) { return island["name"] == "c"; });
  }));
  cluster.release();
  check_completed(cluster, run);
  const CommandResult result = cluster.run({"data", run, "--json"});
  INFO(result.out << result.err << cluster.logs());
  REQUIRE(result.exit == 0);
  const json data = json::parse(result.out);
  CHECK(data["proof"]["holds"] == true);
  CHECK(data["proof"]["rounds"] == 20);
  REQUIRE(data["parts"].size() == 3);
  // Four sequences a step, five steps a round. What b had taken beyond its three rounds is nobody else's in this pass: it may come back.
  const std::map<std::string, std::uint64_t> expected = {{"a", 400}, {"b", 60}, {"c", 340}};
  std::uint64_t committed = 0;
  for (const json& part : data["parts"]) {
    const std::string owner = part["owner"];
    CHECK(part["passed_over"] == 0);
    CHECK(part["position"] == part["committed"]);
    CHECK(part["pass_sequences"] == 1'000'000 / 16);
    committed += part["committed"].get<std::uint64_t>();
    CHECK(part["islands"] == json({{owner, expected.at(owner)}}));
  }
  CHECK(data["proof"]["committed"] == committed);
  CHECK(data["proof"]["committed_tokens"] == committed * 16);
  const CommandResult table = cluster.run({"data", run});
  CHECK(table.out.find("each sequence up to every part's position once") != std::string::npos);
}

TEST_CASE("process: an older copy of the ledger that is put in its place takes the later rounds over from the islands") {
  Cluster cluster;
  cluster.hold_at(17);  // in the fourth of twenty rounds
  for (const char* name : {"a", "b"}) {
    cluster.start_island(name);
  }
  const std::string run = cluster.submit(run_file("copied", 100, 2, 2));
  REQUIRE(comes_to(cluster, run, 3));
  const atl_test::fs::path state = cluster.state("coordinator");
  const atl_test::fs::path copy = cluster.folder() / "copy";
  cluster.coordinator.signal(SIGTERM);
  CHECK(cluster.coordinator.wait() == 0);
  atl_test::fs::copy(state, copy, atl_test::fs::copy_options::recursive);
  cluster.start_coordinator();
  cluster.release_until(37);
  REQUIRE(comes_to(cluster, run, 7));
  const auto kill = [&] {
    cluster.coordinator.signal(SIGKILL);
    CHECK(cluster.coordinator.wait() == 128 + SIGKILL);
  };
  kill();
  cluster.start_coordinator();
  const auto met = [&](const char* island) {
    const json place = json::parse(atl_test::text_of(cluster.state(island) / "coordinator.json"), nullptr, false);
    return place.is_object() && place.contains("generation") && place["generation"]["starts"] == 3;
  };
  REQUIRE(Cluster::eventually([&] { return met("a") && met("b"); }));
  kill();
  atl_test::fs::remove_all(state);
  atl_test::fs::rename(copy, state);
  cluster.start_coordinator();        // for the second time, as far as this store knows; islands have met the third
  cluster.make_coordinator_newest();  // it stops, and its owner does what it says
  cluster.release();
  check_completed(cluster, run);
  INFO(cluster.logs());
  CHECK(cluster.round_of(run) == 20);
  CHECK(count_of(cluster, run, "ledger_restored") == 1);
  CHECK(count_of(cluster, run, "rolled_back") == 0);
  for (const json& event : cluster.events(run)) {
    if (event["kind"] == "ledger_restored") {
      CHECK(event["fields"]["to"].get<std::uint64_t>() >= 7);  // from the islands' memory: nothing is done again
    }
  }
}

}  // namespace of_churn_test
