// Copies of checkpoints in a store, by real processes: made while the run goes on, and a whole new cluster goes on from the newest one.
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <set>

#include "tests/places.hpp"
#include "tests/process/cluster.hpp"
#include "tests/s3_server.hpp"
#include "tests/skip.hpp"
#include "tests/store_server.hpp"

namespace of_copies_test {

using atl_test::Cluster;
using atl_test::CommandResult;
using atl_test::S3Server;
using atl_test::StoreServer;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

constexpr const char* kToken = "token-that-nobody-may-see";

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string run_file(const std::string& place, const std::string& strategy = "", unsigned min = 2) {
  return "[run]\nname = \"copied\"\n[model]\nlayers = 1\nwidth = 32\nheads = 2\n[data]\nset = \"corpus\"\n[training]\nsteps = 60\n"
         "batch = 4\nsequence_length = 16\nwarmup_steps = 1\n[strategy]\n" +
         strategy + "inner_steps = 5\n[islands]\nmin = " + std::to_string(min) +
         "\nmax = 2\n[checkpoint]\nevery_rounds = 2\nkeep = 2\ncopy = \"" + place + "\"\n";
}

// Variables of the commands that this test runs.
class Environment {
 public:
  explicit Environment(const std::map<std::string, std::string>& variables) : variables_(variables) {
    for (const auto& [name, value] : variables_) {
      ::setenv(name.c_str(), value.c_str(), 1);
    }
  }
  ~Environment() {
    for (const auto& [name, value] : variables_) {
      ::unsetenv(name.c_str());
    }
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::map<std::string, std::string> variables_;
};

std::vector<json> events_of(const std::vector<json>& events, const std::string& kind) {
  std::vector<json> found;
  for (const json& event : events) {
    if (event.value("kind", "") == kind) {
      found.push_back(event);
    }
  }
  return found;
}

// Everything of the first cluster goes once it has copied; a second one, of which nothing is known, goes on and completes the run.
void lose_everything_and_go_on(const std::string& place, const std::map<std::string, std::string>& keys) {
  const Environment environment(keys);
  std::string run;
  std::uint64_t copied = 0;
  std::string digest;
  {
    Cluster cluster;
    cluster.hold_at(31);
    cluster.start_island("a", keys, {"--allow-copy", place});
    cluster.start_island("b");
    run = cluster.submit(run_file(place));
    REQUIRE(Cluster::eventually([&] {
      const std::vector<json> all = events_of(cluster.events(run), "checkpoint_copied");
      copied = all.empty() ? 0 : all.back()["fields"].value("round", std::uint64_t{0});
      digest = all.empty() ? "" : all.back()["fields"].value("digest", "");
      return copied >= 6;
    }));
    CHECK(copied == 6);  // with round 6 its trainers stand
    const std::vector<json> all = events_of(cluster.events(run), "checkpoint_copied");
    CHECK(all.back().value("island", "") == "a");
    CHECK(contains(all.back().value("text", ""), place + "/" + run));
    cluster.coordinator.signal(SIGKILL);
    for (auto& [name, process] : cluster.islands) {
      process.signal(SIGKILL);
      process.wait();
    }
    cluster.coordinator.wait();
  }
  Cluster cluster;
  const std::string file = cluster.write_run(run_file(place));
  const fs::path model = cluster.folder() / "model.safetensors";
  const fs::path said = cluster.folder() / "restored";  // by a command that asks no coordinator
  atl_test::Process restoring_model({Cluster::program, "restore", place, "-o", model.string(), "--json"}, {}, said,
                                    cluster.folder() / "err");
  const int restored = restoring_model.wait();
  INFO(atl_test::text_of(cluster.folder() / "err"));
  REQUIRE(restored == 0);
  CHECK(json::parse(atl_test::text_of(said)).at("round") == 6);
  CHECK(json::parse(atl_test::text_of(said)).at("run") == run);
  CHECK(fs::file_size(model) > 1000);
  CHECK_FALSE(fs::exists(model.string() + ".checkpoint"));

  cluster.start_island("c");
  cluster.start_island("d", keys, {"--allow-copy", place});
  const CommandResult submitted = cluster.run({"submit", file, "--restore", "newest", "-q"});
  INFO(submitted.err);
  REQUIRE(submitted.exit == 0);
  CHECK(submitted.out == run + "\n");
  const CommandResult again = cluster.run({"submit", file, "--restore", run});
  CHECK(again.exit == 8);
  CHECK(contains(again.err, "exists already"));
  const CommandResult waited = cluster.run({"wait", run, "--timeout", "120s"});
  INFO(waited.out << waited.err << cluster.logs());
  REQUIRE(waited.exit == 0);
  const std::vector<json> events = cluster.events(run);
  REQUIRE(events_of(events, "copy_taken_over").size() == 1);
  CHECK(events_of(events, "copy_taken_over").front()["fields"]["digest"] == digest);
  const std::vector<json> restoring = events_of(events, "island_restoring");
  REQUIRE_FALSE(restoring.empty());
  CHECK(contains(restoring.front().value("text", ""), "of which it fetches the copy"));
  const std::vector<json> rounds = events_of(events, "round_committed");
  REQUIRE(rounds.size() == 6);
  CHECK(rounds.front()["fields"]["round"] == copied + 1);
  CHECK(rounds.back()["fields"]["round"] == 12);
  // The data go on where they were: six rounds of five steps of four sequences are behind each part.
  for (const json& samples : rounds.front()["fields"]["data"]) {
    const std::string range = samples.get<std::string>();  // "0:120-140"
    CHECK(contains(range, ":120-"));
  }
}

}  // namespace

TEST_CASE("process: a run whose cluster is lost with everything goes on from its newest copy at an HTTPS server") {
  const StoreServer server;
  lose_everything_and_go_on(server.url() + "/kept", {{"ATOLL_STORE_TOKEN", kToken}});
  for (const StoreServer::Request& request : server.requests("PUT")) {
    CHECK(request.headers.at("authorization") == std::string("Bearer ") + kToken);
  }
  // Of the two newest rounds there are copies, and of no other.
  std::set<std::string> notes;
  for (const auto& [path, bytes] : server.objects()) {
    if (path.ends_with("copy.json")) {
      notes.insert(path.substr(path.rfind("/", path.size() - 11) + 1));
    }
  }
  CHECK(notes == std::set<std::string>{"10/copy.json", "12/copy.json"});
}

TEST_CASE("process: a run whose cluster is lost with everything goes on from its newest copy at an S3-compatible store") {
  const S3Server server("kept");
  if (!server.ok()) {
    ATL_SKIP(server.why());
  }
  lose_everything_and_go_on(
      "s3://kept/lab",
      {{"AWS_ACCESS_KEY_ID", server.access_key()}, {"AWS_SECRET_ACCESS_KEY", server.secret_key()}, {"AWS_ENDPOINT_URL", server.url()}});
}

TEST_CASE("process: a store that refuses costs the run nothing, is told in status, and no secret is written anywhere") {
  const StoreServer server([](const StoreServer::Request&) {
    StoreServer::Failure failure;
    failure.status = 403;
    return failure;
  });
  const std::string place = server.url() + "/kept";
  Cluster cluster;
  cluster.start_island("a", {{"ATOLL_STORE_TOKEN", kToken}}, {"--allow-copy", place});
  cluster.start_island("b");
  const std::string run = cluster.submit(run_file(place));
  const CommandResult waited = cluster.run({"wait", run, "--timeout", "120s"});
  INFO(waited.out << waited.err << cluster.logs());
  REQUIRE(waited.exit == 0);
  const CommandResult status = cluster.run({"status", run});
  CHECK(contains(status.out, "was not copied by island a to " + place + "/" + run + ": the store says 403: are the keys right"));
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(cluster.folder())) {
    if (entry.is_regular_file()) {
      INFO(entry.path());
      CHECK_FALSE(contains(atl_test::text_of(entry.path()), kToken));
    }
  }
}

TEST_CASE("process: the summary of `atoll local` says that the copies failed, of the last checkpoint too, and where they lie if not") {
  std::atomic<bool> is_store = false;
  const StoreServer server([&](const StoreServer::Request&) {
    StoreServer::Failure failure;
    failure.status = is_store ? 0 : 200;  // the store's console says 200 to everything
    failure.body = "<!doctype html><html></html>";
    return failure;
  });
  Cluster cluster;
  const std::string corpus = (cluster.folder() / "corpus.txt").string();
  std::ofstream(corpus) << std::string(100'000, 'x');
  const std::string file = cluster.write_run(run_file(server.url() + "/kept"));
  const auto train = [&](const std::string& name) {
    const fs::path out = cluster.folder() / (name + ".out");
    const fs::path err = cluster.folder() / (name + ".err");
    atl_test::Process local(
        {Cluster::program, "local", file, "--islands", "2", "--state", (cluster.folder() / name).string(), "--data", "corpus=" + corpus},
        {{"ATOLL_TRAINER_MODULE", atl_test::arithmetic_trainer()}}, out, err);
    const int exit = local.wait();
    INFO(atl_test::text_of(err));
    CHECK(exit == 0);
    return atl_test::text_of(out);
  };
  const std::string failed = train("console");
  INFO(failed);
  CHECK(contains(failed, "\ncopies    none: the checkpoint of round 12 was not copied by island "));
  CHECK(contains(failed, "the store's own address"));
  is_store = true;
  CHECK(contains(train("store"), "\ncopies    of round 12\n"));
}

TEST_CASE("process: islands with states of their own each copy theirs") {
  const StoreServer server;
  const std::string place = server.url() + "/kept";
  Cluster cluster;
  for (const char* island : {"a", "b"}) {
    cluster.start_island(island, {}, {"--allow-copy", place});
  }
  const std::string run = cluster.submit(run_file(place, "name = \"noloco\"\n"));
  const CommandResult waited = cluster.run({"wait", run, "--timeout", "120s"});
  INFO(waited.out << waited.err << cluster.logs());
  REQUIRE(waited.exit == 0);
  for (const char* island : {"a", "b"}) {
    INFO(island);
    CHECK(Cluster::eventually([&] { return server.objects().contains("/kept/" + run + "/" + island + "/newest.json"); }));
  }
  CHECK_FALSE(server.objects().contains("/kept/newest.json"));
}

TEST_CASE("process: a place for copies is refused at the start where there are no keys for it") {
  Cluster cluster;
  const CommandResult started = cluster.run({"agent", "--allow-copy", "s3://bucket/lab"});
  CHECK(started.exit == 7);
  CHECK(contains(started.err, "--allow-copy: there are no keys for s3://bucket/lab: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"));
  CHECK(cluster.run({"agent", "--allow-copy", "bucket"}).exit == 2);
}

}  // namespace of_copies_test
