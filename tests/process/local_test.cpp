// `atoll local` as a user runs it: to the end, interrupted, taken up again; and commands that are interrupted while they fetch a model.
#include <algorithm>

#include "agent/storage/safetensors.hpp"
#include "cli/views/views.hpp"
#include "coordinator/ledger/ledger.hpp"
#include "tests/places.hpp"
#include "tests/process/cluster.hpp"
#include "tests/store_server.hpp"
#include "transport/base/bytes.hpp"

namespace of_local_test {

using atl_test::Cluster;
using atl_test::Process;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

const std::string kAtoll = atl_test::atoll_program();
constexpr unsigned kRounds = 12;

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// A folder with a run file in it, and what `atoll local` of that file leaves there.
class LocalRun {
 public:
  LocalRun() {
    folder_.write("text.txt", std::string(100'000, 'x'));
    folder_.write(
        "run.toml",
        "[run]\nname = \"here\"\n[model]\nlayers = 1\nwidth = 32\nheads = 2\n[data]\nfiles = [\"text.txt\"]\n[training]\nsteps = " +
            std::to_string(5 * kRounds) +
            "\nbatch = 4\nsequence_length = 16\nwarmup_steps = 1\n[strategy]\ninner_steps = 5\n[islands]\nmin = 2\nmax = 2\n"
            "[checkpoint]\nevery_rounds = 2\n");
    fs::create_directories(folder_.path() / "tmp");
  }

  // Starts it; what it says goes to NAME.out and NAME.err.
  Process start(const std::string& name, const std::string& step_ms, std::map<std::string, std::string> environment = {}) const {
    environment.insert(
        {{"ATOLL_TRAINER_MODULE", atl_test::arithmetic_trainer()}, {"ATOLL_TEST_STEP_MS", step_ms}, {"TMPDIR", path("tmp")}});
    return Process(
        {kAtoll, "local", path("run.toml"), "--islands", "2", "--state", path("state"), "--export", path("model.safetensors"), "--json"},
        environment, path(name + ".out"), path(name + ".err"));
  }
  [[nodiscard]] std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  [[nodiscard]] std::string said(const std::string& name) const { return atl_test::text_of(path(name)); }

  [[nodiscard]] std::string run() const {
    std::error_code none;
    for (const fs::directory_entry& entry : fs::directory_iterator(path("state/island-1/runs"), none)) {
      return entry.path().filename().string();
    }
    return "";
  }
  // Of this round or a later one: older ones go.
  [[nodiscard]] bool has_checkpoint(unsigned round) const {
    std::error_code none;
    const fs::directory_iterator all(path("state/island-1/runs/" + run() + "/checkpoints"), none);
    return std::any_of(begin(all), end(all), [&](const fs::directory_entry& entry) {
      const std::string name = entry.path().filename().string();
      return name.find_first_not_of("0123456789") == std::string::npos && std::stoul(name) >= round &&
             fs::exists(entry.path() / "meta.json");
    });
  }

  // The rounds that were committed, in the order of the ledger.
  [[nodiscard]] std::vector<unsigned> committed() const {
    atl::coordinator::Ledger ledger = atl::coordinator::Ledger::open(path("state/coordinator")).value();
    atl::coordinator::EventQuery query;
    query.run = atl::RunId(run());
    query.limit = 10'000;
    std::vector<unsigned> rounds;
    for (const atl::coordinator::StoredEvent& stored : ledger.events(query).value()) {
      if (stored.event.kind == "round_committed") {
        rounds.push_back(json::parse(stored.fields).at("round").get<unsigned>());
      }
    }
    return rounds;
  }

  // Processes that know this folder: by their arguments, their environment, or because they work in it.
  [[nodiscard]] std::vector<std::string> processes() const {
    std::vector<std::string> found;
    const std::string here = folder_.path().string();
    for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
      if (entry.path().filename().string().find_first_not_of("0123456789") != std::string::npos) {
        continue;
      }
      std::error_code gone;
      const std::string works_in = fs::read_symlink(entry.path() / "cwd", gone).string();
      const std::string arguments = atl_test::text_of(entry.path() / "cmdline");
      if (contains(arguments, here) || contains(atl_test::text_of(entry.path() / "environ"), here) || works_in.starts_with(here)) {
        found.push_back(entry.path().filename().string() + ": " + arguments);
      }
    }
    return found;
  }
  // What lies in shared memory of this run, and in the folder for temporary files.
  [[nodiscard]] std::vector<std::string> leftovers() const {
    std::vector<std::string> found;
    for (const fs::directory_entry& entry : fs::directory_iterator("/dev/shm")) {
      if (contains(entry.path().filename().string(), run())) {
        found.push_back(entry.path().string());
      }
    }
    for (const fs::directory_entry& entry : fs::directory_iterator(path("tmp"))) {
      found.push_back(entry.path().string());
    }
    return found;
  }
  [[nodiscard]] std::string logs() const {
    std::string all;
    for (const char* name : {"coordinator", "island-1", "island-2"}) {
      all += "---- " + std::string(name) + "\n" + said("state/" + std::string(name) + ".log");
    }
    return all;
  }

 private:
  atl_test::TemporaryFolder folder_;
};

void check_nothing_left(const LocalRun& local) {
  CHECK(local.processes() == std::vector<std::string>{});
  CHECK(local.leftovers() == std::vector<std::string>{});
}

// Every value of an exported model, in the order of the file.
std::vector<float> values_of(const std::string& path) {
  const atl::SafetensorsFile file = atl::SafetensorsFile::open(path).value();
  std::vector<float> all;
  for (const atl::TensorEntry& tensor : file.header().tensors) {
    const auto values = file.floats(tensor.name).value();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

// The files in a folder whose name begins so.
std::vector<std::string> files_like(const fs::path& folder, const std::string& start) {
  std::vector<std::string> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with(start)) {
      found.push_back(entry.path().filename().string());
    }
  }
  return found;
}

}  // namespace

TEST_CASE(
    "process: `atoll local` trains to the end, interrupted it leaves nothing behind, and the same --state goes on to the same model") {
  std::vector<unsigned> all_rounds;
  for (unsigned round = 0; round <= kRounds; ++round) {
    all_rounds.push_back(round);
  }
  const LocalRun whole;
  Process undisturbed = whole.start("whole", "1");
  const int ended = undisturbed.wait(std::chrono::seconds(120));
  INFO(whole.said("whole.err") << whole.logs());
  REQUIRE(ended == 0);
  const json summary = json::parse(whole.said("whole.out"));
  CHECK(summary.at("run").at("state") == "completed");
  CHECK(summary.at("run").at("round") == kRounds);
  CHECK(summary.at("islands").size() == 2);
  CHECK(whole.committed() == all_rounds);
  check_nothing_left(whole);

  const LocalRun parts;
  Process first = parts.start("first", "40");
  const bool under_way = Cluster::eventually([&] { return parts.has_checkpoint(4); }, std::chrono::seconds(120));
  INFO(parts.said("first.err") << parts.logs());
  REQUIRE(under_way);
  REQUIRE(first.running());
  first.signal(SIGINT);
  REQUIRE(first.wait(std::chrono::seconds(60)) == 130);
  CHECK(contains(parts.said("first.err"), "go on with: atoll local"));
  CHECK(contains(parts.said("first.err"), "the data are 1 file of 100.0 kB: text.txt 100.0 kB"));
  CHECK_FALSE(fs::exists(parts.path("model.safetensors")));
  check_nothing_left(parts);
  const std::vector<unsigned> before = parts.committed();
  REQUIRE(before.size() > 4);
  REQUIRE(before.size() < all_rounds.size());

  Process second = parts.start("second", "1");
  const int completed = second.wait(std::chrono::seconds(120));
  INFO(parts.said("second.err") << parts.logs());
  REQUIRE(completed == 0);
  CHECK(json::parse(parts.said("second.out")).at("run").at("state") == "completed");
  CHECK(parts.committed() == all_rounds);  // those of before among them, none twice
  CHECK(values_of(parts.path("model.safetensors")) == values_of(whole.path("model.safetensors")));
  check_nothing_left(parts);
}

TEST_CASE("process: `atoll local` says when a trainer ended and is started again, with its words, and trains to the end") {
  const LocalRun local;
  Process command = local.start("broken", "1", {{"ATOLL_TEST_BREAK", "exit"}, {"ATOLL_TEST_ONCE", local.path("once")}});
  const int ended = command.wait(std::chrono::seconds(120));
  const std::string said = local.said("broken.err");
  INFO(said << local.logs());
  REQUIRE(ended == 0);
  CHECK(contains(said, " error: the trainer ended: "));
  CHECK(contains(said, "the arithmetic went wrong"));
  CHECK(contains(said, "it is started again in "));
  CHECK_FALSE(contains(local.said("broken.out"), "error: the trainer ended"));
}

TEST_CASE("process: `atoll local` bears a coordinator that does not answer for a while") {
  const LocalRun local;
  Process command = local.start("starved", "40");
  REQUIRE(Cluster::eventually([&] { return local.has_checkpoint(2); }, std::chrono::seconds(120)));
  pid_t coordinator = 0;
  for (const std::string& process : local.processes()) {
    if (contains(process, "atoll" + std::string(1, '\0') + "coordinator")) {
      coordinator = static_cast<pid_t>(std::stol(process));
    }
  }
  INFO(local.said("starved.err") << local.logs());
  REQUIRE(coordinator > 0);
  REQUIRE(::kill(coordinator, SIGSTOP) == 0);
  const bool told = Cluster::eventually([&] { return contains(local.said("starved.err"), "asking again"); }, std::chrono::seconds(60));
  ::kill(coordinator, SIGCONT);
  REQUIRE(told);
  const int ended = command.wait(std::chrono::seconds(120));
  INFO(local.said("starved.err"));
  REQUIRE(ended == 0);
  CHECK(json::parse(local.said("starved.out")).at("run").at("state") == "completed");
  check_nothing_left(local);
}

TEST_CASE("process: what `plan` foretells, and what the summary says data-parallel would send, is what islands send") {
  const atl_test::TemporaryFolder folder;
  folder.write("text.txt", std::string(100'000, 'x'));
  const auto path = [&](const std::string& name) { return (folder.path() / name).string(); };
  const auto document_of = [&](const std::vector<std::string>& arguments, const std::map<std::string, std::string>& environment,
                               const std::string& name) {
    Process process(arguments, environment, path(name + ".out"), path(name + ".err"));
    const int ended = process.wait(std::chrono::seconds(120));
    INFO(atl_test::text_of(path(name + ".err")));
    REQUIRE(ended == 0);
    return json::parse(atl_test::text_of(path(name + ".out")));
  };
  constexpr unsigned kSteps = 12;
  for (const unsigned islands : {2U, 3U}) {
    std::string would_have_sent;
    for (const std::string strategy : {"diloco", "data-parallel"}) {
      const std::string name = strategy + "-" + std::to_string(islands);
      INFO(name);
      folder.write(name + ".toml",
                   "[run]\nname = \"" + name + "\"\n[model]\nlayers = 1\nwidth = 32\nheads = 2\n[data]\nfiles = [\"text.txt\"]\n" +
                       "[training]\nsteps = " + std::to_string(kSteps) + "\nbatch = 4\nsequence_length = 16\n[strategy]\nname = \"" +
                       strategy + "\"\n" + (strategy == "diloco" ? "inner_steps = 4\n" : "") +
                       "[islands]\nmin = " + std::to_string(islands) + "\nmax = " + std::to_string(islands) + "\n");
      std::vector<std::string> plan = {kAtoll, "plan", path(name + ".toml"), "--json"};
      for (unsigned i = 1; i <= islands; ++i) {
        plan.insert(plan.end(), {"--island", "island-" + std::to_string(i) + "=100ms,100mbit"});
      }
      const json foretold = document_of(plan, {}, name + ".plan");
      // The tests' trainer says that its model is as large as the run file's.
      const std::string head = std::to_string(foretold.at("parameters").get<std::uint64_t>() - 200);
      const json summary =
          document_of({kAtoll, "local", path(name + ".toml"), "--islands", std::to_string(islands), "--state", path(name), "--json"},
                      {{"ATOLL_TRAINER_MODULE", atl_test::arithmetic_trainer()}, {"ATOLL_TEST_HEAD", head}}, name);
      CHECK(summary.at("run").at("parameters") == foretold.at("parameters"));
      std::uint64_t in_all = 0;
      for (const json& island : foretold.at("islands")) {
        in_all += island.at("bytes_sent").get<std::uint64_t>();
      }
      CHECK(summary.at("run").at("bytes_sent") == in_all);
      if (strategy == "diloco") {
        would_have_sent = atl::render_summary(summary, {});
      } else {
        INFO(would_have_sent);
        CHECK(contains(would_have_sent, "data-parallel would have sent " + atl::human_bytes(in_all / islands) + ", 4.0 times as much"));
      }
    }
  }
}

TEST_CASE("process: a run's own uplink holds on every island") {
  const atl_test::TemporaryFolder folder;
  folder.write("text.txt", std::string(100'000, 'x'));
  folder.write("run.toml",
               "[run]\nname = \"thin\"\n[model]\nlayers = 1\nwidth = 32\nheads = 2\n[data]\nfiles = [\"text.txt\"]\n[training]\nsteps = 8\n"
               "batch = 4\nsequence_length = 16\n[strategy]\ninner_steps = 4\n[islands]\nmin = 2\nmax = 2\nuplink = \"2mbit\"\n");
  const auto path = [&](const std::string& name) { return (folder.path() / name).string(); };
  Process process({kAtoll, "local", path("run.toml"), "--islands", "2", "--state", path("state"), "--json"},
                  {{"ATOLL_TRAINER_MODULE", atl_test::arithmetic_trainer()}, {"ATOLL_TEST_HEAD", "50000"}}, path("out"), path("err"));
  const int ended = process.wait(std::chrono::seconds(120));
  INFO(atl_test::text_of(path("err")));
  REQUIRE(ended == 0);
  const json run = json::parse(atl_test::text_of(path("out"))).at("run");
  const double seconds = (run.at("ended_unix_ms").get<double>() - run.at("started_unix_ms").get<double>()) / 1000;
  const double each = run.at("bytes_sent").get<double>() / 2;
  CHECK(each > 2 * 200'000);  // two rounds of 50,200 float32 values
  CHECK(seconds > 0.9 * each * 8 / 2e6);
}

TEST_CASE("process: an interrupted export or generate ends with 130 and leaves no file") {
  Cluster cluster;
  // A model of 1.6 MB on an uplink that needs half a minute for it and its momentum.
  cluster.start_island("a", {{"ATOLL_TEST_HEAD", "400000"}}, {"--uplink", "1mbit"});
  const std::string run = cluster.submit(
      "[run]\nname = \"slow\"\n[model]\nlayers = 1\nwidth = 32\nheads = 2\n[data]\nset = \"corpus\"\n[training]\nsteps = 4\nbatch = 4\n"
      "sequence_length = 16\nwarmup_steps = 1\n[strategy]\ninner_steps = 2\n[islands]\nmin = 1\nmax = 1\n");
  const atl_test::CommandResult waited = cluster.run({"wait", run, "--timeout", "120s"});
  INFO(waited.out << waited.err << cluster.logs());
  REQUIRE(waited.exit == 0);
  // What the coordinator told of the checkpoint's file before it was killed, it knows afterwards.
  cluster.coordinator.signal(SIGKILL);
  CHECK(cluster.coordinator.wait() == 128 + SIGKILL);
  cluster.start_coordinator();
  REQUIRE(Cluster::eventually([&] {
    const json islands = json::parse(cluster.run({"islands", "--json"}).out, nullptr, false);
    return islands.is_object() && islands.at("islands").at(0).value("link", "") == "up";
  }));
  const fs::path here = cluster.folder() / "fetched";
  fs::create_directories(here);
  const std::string state = cluster.state("coordinator").string();
  const std::vector<std::vector<std::string>> commands = {
      {kAtoll, "export", run, "-o", (here / "model.safetensors").string(), "--state", state},
      {kAtoll, "generate", "--run", run, "--state", state}};
  for (const std::vector<std::string>& command : commands) {
    INFO(command[1]);
    const fs::path said = cluster.folder() / (command[1] + ".err");
    Process process(command, {{"TMPDIR", here.string()}, {"ATOLL_TRAINER_MODULE", atl_test::arithmetic_trainer()}}, said, said);
    const auto fetching = [&] {
      for (const fs::directory_entry& entry : fs::recursive_directory_iterator(here)) {
        if (entry.path().extension() == ".part") {
          return true;
        }
      }
      return false;
    };
    REQUIRE(Cluster::eventually(fetching));
    process.signal(SIGINT);
    CHECK(process.wait() == 130);
    CHECK(contains(atl_test::text_of(said), "interrupted; no file was written"));
    CHECK(files_like(here, "") == std::vector<std::string>{});
  }
}

TEST_CASE("process: local trains on files behind links that lead out of their folder, as Hugging Face's cache has them") {
  const atl_test::TemporaryFolder folder;
  fs::create_directories(folder.path() / "hub" / "blobs");
  fs::create_directories(folder.path() / "hub" / "snapshots" / "1");
  folder.write("hub/blobs/3f2a", std::string(100'000, 'x'));
  fs::create_symlink("../../blobs/3f2a", folder.path() / "hub" / "snapshots" / "1" / "text.txt");
  const auto run_file = [](const std::string& data) {
    return "[run]\nname = \"here\"\n[model]\nlayers = 1\nwidth = 32\nheads = 2\n[data]\n" + data +
           "\n[training]\nsteps = 10\nbatch = 4\nsequence_length = 16\nwarmup_steps = 1\n[strategy]\ninner_steps = 5\n";
  };
  const std::string snapshot = (folder.path() / "hub" / "snapshots" / "1").string();
  for (const bool mapped : {false, true}) {
    folder.write("run.toml", run_file(mapped ? "set = \"text\"" : "files = [\"hub/snapshots/1\"]"));
    std::vector<std::string> command = {kAtoll,
                                        "local",
                                        (folder.path() / "run.toml").string(),
                                        "--islands",
                                        "2",
                                        "--state",
                                        (folder.path() / (mapped ? "mapped" : "named")).string()};
    if (mapped) {
      command.insert(command.end(), {"--data", "text=" + snapshot});
    }
    const std::string said = (folder.path() / "said").string();
    Process local(command, {{"ATOLL_TRAINER_MODULE", atl_test::arithmetic_trainer()}, {"ATOLL_TEST_STEP_MS", "1"}}, said, said);
    const bool ended = Cluster::eventually([&] { return !local.running(); }, std::chrono::seconds(60));
    INFO(atl_test::text_of(said));
    REQUIRE(ended);
    CHECK(local.wait() == 0);
  }
}

TEST_CASE("process: local's islands read a store's token from a file that is named from where it was started") {
  const atl_test::StoreServer server;
  const atl_test::TemporaryFolder folder;
  folder.write("text.txt", std::string(100'000, 'x'));
  const fs::path token = folder.write("token", "bearer-of-a-test\n");
  fs::permissions(token, fs::perms::owner_read | fs::perms::owner_write);
  folder.write("run.toml",
               "[run]\nname = \"here\"\n[model]\nlayers = 1\nwidth = 32\nheads = 2\n[data]\nfiles = [\"text.txt\"]\n[training]\nsteps = "
               "10\nbatch = 4\nsequence_length = 16\nwarmup_steps = 1\n[strategy]\ninner_steps = 5\n[checkpoint]\nevery_rounds = 1\n"
               "copy = \"" +
                   server.url() + "/kept\"\n");
  const std::string said = (folder.path() / "said").string();
  Process local({kAtoll, "local", (folder.path() / "run.toml").string(), "--islands", "2", "--state", (folder.path() / "state").string()},
                {{"ATOLL_TRAINER_MODULE", atl_test::arithmetic_trainer()},
                 {"ATOLL_TEST_STEP_MS", "1"},
                 {"ATOLL_STORE_TOKEN_FILE", fs::relative(token).string()}},
                said, said);
  const bool ended = Cluster::eventually([&] { return !local.running(); }, std::chrono::seconds(90));
  INFO(atl_test::text_of(said));
  REQUIRE(ended);
  CHECK(local.wait() == 0);
  const auto puts = server.requests("PUT");
  CHECK_FALSE(puts.empty());
  CHECK(std::ranges::all_of(puts, [](const auto& put) { return put.headers.at("authorization") == "Bearer bearer-of-a-test"; }));
}

}  // namespace of_local_test
