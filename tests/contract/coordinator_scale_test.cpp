// The coordinator with 100 islands: rounds commit, memory stays within its bound, a restart in the middle loses nothing committed.
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "coordinator/service/driver.hpp"
#include "coordinator/service/init.hpp"
#include "strategies/specification/run_spec.hpp"
#include "tests/catch.hpp"
#include "tests/scripted_islands.hpp"
#include "tests/temporary_folder.hpp"
#include "transport/base/log.hpp"
#include "transport/identity/identity.hpp"

using namespace atl;
using namespace atl::coordinator;
using namespace std::chrono_literals;
using atl_test::ScriptedIslands;
using nlohmann::json;

namespace {

constexpr std::size_t kIslands = 100;
constexpr std::uint64_t kRounds = 30;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

double resident_mib() {
  std::ifstream file("/proc/self/statm");
  double total = 0;
  double resident = 0;
  file >> total >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1 << 20);
}

struct Cluster {
  atl_test::TemporaryFolder folder;
  std::filesystem::path state = folder.path() / "state";
  ScriptedIslands islands{kIslands};
  TimePoint time = from_unix_ms(1'767'225'600'000);
  std::unique_ptr<Driver> driver;
  std::string operator_key;

  Cluster() {
    set_log_sink([](LogLevel, std::string_view) {});
    REQUIRE(init_coordinator(state, default_settings()).ok());
    operator_key = read_key_file(operator_key_file(state)).value().public_key;
    Ledger ledger = Ledger::open(state).value();
    Admission admission = Admission::load(ledger.database()).value();
    for (std::size_t i = 0; i < kIslands; ++i) {
      REQUIRE(admission.admit(islands.key(i), Role::island, islands.name(i), time).ok());
    }
    start(std::move(ledger));
  }
  ~Cluster() { set_log_sink({}); }
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  void start(Ledger ledger) {
    driver = Driver::start(Settings{}, Place{"0.1.0", "tcp://127.0.0.1:4400", operator_key}, std::move(ledger),
                           std::make_unique<atl_test::BorrowedIslands>(islands), time)
                 .value();
  }
  void restart() {
    driver.reset();
    start(Ledger::open(state).value());
  }
  json ask(const std::string& verb, const std::string& arguments) {
    islands.request(operator_key, Request{kProtocolVersion, 1, verb, arguments});
    driver->step(time);
    REQUIRE_FALSE(islands.reply().error.has_value());
    return json::parse(islands.reply().document);
  }
  void second() {
    time += 1s;
    islands.beat();
    driver->step(time);
  }
};

}  // namespace

TEST_CASE("a hundred islands take part in one run, within 40 MiB, through a restart of the coordinator") {
  const double before = resident_mib();
  Cluster cluster;
  RunSpec spec;
  spec.name = "wide";
  spec.data.set = "corpus";
  spec.training.steps = kRounds * 10;
  spec.training.warmup_steps = 10;
  spec.strategy.inner_steps = 10;
  spec.islands.min = kIslands;
  spec.islands.max = kIslands;
  spec.rounds = kRounds;
  cluster.ask("submit", "{\"spec\":" + to_json(spec) + "}");
  cluster.islands.say_hello();
  cluster.driver->step(cluster.time);
  bool restarted = false;
  for (int seconds = 0; seconds < 300 && cluster.islands.commits() < kIslands * (kRounds + 1); ++seconds) {
    cluster.second();
    if (!restarted && cluster.islands.commits() >= kIslands * 10) {
      restarted = true;
      const std::uint64_t committed = cluster.ask("status", "{}")["run"]["round"];
      cluster.driver->step(cluster.time);  // what was merged is told once, and is not to be lost with the coordinator
      cluster.restart();
      cluster.islands.say_hello();
      CHECK(cluster.ask("status", "{}")["run"]["round"].get<std::uint64_t>() >= committed);
    }
  }
  REQUIRE(restarted);
  CHECK(cluster.islands.commits() == kIslands * (kRounds + 1));
  cluster.second();
  const json status = cluster.ask("status", "{}");
  CHECK(status["run"]["round"] == kRounds);
  CHECK(status["islands"].size() == kIslands);
  CHECK(status["run"]["losses"].size() == kRounds + 1);
  CHECK(cluster.ask("islands", "{}")["islands"].size() == kIslands);
  // A round commits once, whatever happens to the coordinator.
  const json events = cluster.ask("events", R"({"run":"wide","limit":1000})");
  std::map<std::uint64_t, int> commits;
  for (const json& event : events["events"]) {
    if (event["kind"] == "round_committed") {
      ++commits[event["round"].get<std::uint64_t>()];
    }
  }
  CHECK(commits.size() == kRounds + 1);
  for (const auto& [round, times] : commits) {
    INFO("round " << round);
    CHECK(times == 1);
  }
  if (!kSanitized) {
    CHECK(resident_mib() - before < 40);
  }
}
