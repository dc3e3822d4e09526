// What the coordinator shows outlives it: while its disk is full, documents tell what is in the ledger and not what was decided since.
#include <nlohmann/json.hpp>

#include "coordinator/service/driver.hpp"
#include "coordinator/service/init.hpp"
#include "strategies/specification/run_spec.hpp"
#include "tests/catch.hpp"
#include "tests/full_disk.hpp"
#include "tests/scripted_islands.hpp"
#include "tests/temporary_folder.hpp"
#include "transport/base/log.hpp"
#include "transport/identity/identity.hpp"

namespace of_durable_before_shown_test {

using namespace atl;
using namespace atl::coordinator;
using namespace std::chrono_literals;
using nlohmann::json;

namespace {

// A coordinator with two scripted islands, and a run that waits for both.
struct Place {
  atl_test::TemporaryFolder folder;
  std::filesystem::path state = folder.path() / "state";
  atl_test::ScriptedIslands islands{2};
  TimePoint time = from_unix_ms(1'767'225'600'000);
  std::unique_ptr<Driver> driver;
  std::string operator_key;

  Place() {
    set_log_sink([](LogLevel, std::string_view) {});
    REQUIRE(init_coordinator(state, {"test", "tcp://127.0.0.1:4400", "tcp://127.0.0.1:4400"}).ok());
    operator_key = read_key_file(operator_key_file(state)).value().public_key;
    {
      Ledger ledger = Ledger::open(state).value();
      Admission admission = Admission::load(ledger.database()).value();
      for (std::size_t i = 0; i < islands.size(); ++i) {
        REQUIRE(admission.admit(islands.key(i), Role::island, islands.name(i), time).ok());
      }
    }
    start();
    RunSpec spec;
    spec.name = "text";
    spec.data.set = "corpus";
    spec.training.steps = 100'000;
    spec.training.warmup_steps = 10;
    spec.strategy.inner_steps = 10;
    spec.islands.min = 2;
    spec.islands.max = 2;
    spec.rounds = 10'000;
    ask("submit", {{"spec", json::parse(to_json(spec))}});
  }
  ~Place() { set_log_sink({}); }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  void start() {
    driver = Driver::start(Settings{}, coordinator::Place{"0.1.0", "tcp://127.0.0.1:4400", operator_key}, Ledger::open(state).value(),
                           std::make_unique<atl_test::BorrowedIslands>(islands), time)
                 .value();
  }
  // What was not in the ledger is gone.
  void kill() {
    driver.reset();
    start();
  }
  void step() {
    time += 10ms;
    driver->step(time);
  }
  // The question is taken in the same batch as what the islands have said last, and right behind it.
  json ask(const std::string& verb, const json& arguments = json::object()) {
    islands.request(operator_key, Request{kProtocolVersion, 1, verb, arguments.dump()});
    step();
    REQUIRE_FALSE(islands.reply().error.has_value());
    return json::parse(islands.reply().document);
  }
};

}  // namespace

TEST_CASE("with a full disk no document shows a run's start, or a member, that a crash would take back") {
  Place place;
  json status;
  json runs;
  json islands;
  {
    const atl_test::FullDisk full(1000);
    place.islands.say_hello();
    status = place.ask("status");
    runs = place.ask("runs");
    islands = place.ask("islands");
  }
  CHECK(status["run"]["reason"].get<std::string>().find("cannot write its ledger") != std::string::npos);
  CHECK(status["run"]["state"] == "queued");
  CHECK(status["islands"].empty());
  CHECK(runs["runs"][0]["state"] == "queued");
  CHECK(runs["runs"][0]["islands"] == 0);
  CHECK(islands["islands"][0]["run"].is_null());
  CHECK(islands["islands"][0]["state"] == "free");
  place.kill();
  CHECK(place.ask("status")["run"]["state"] == "queued");
}

TEST_CASE("the round that is shown with a full disk is the one that is found after a crash, whenever the disk became full") {
  bool decided = false;
  for (int turns = 20; turns < 32; ++turns) {
    Place place;
    place.islands.say_hello();
    for (int turn = 0; turn < turns; ++turn) {
      place.step();
    }
    json status;
    json runs;
    const std::uint64_t before = place.ask("status")["run"]["round"];
    {
      const atl_test::FullDisk full(1000);
      status = place.ask("status");
      for (int turn = 0; turn < 4; ++turn) {
        place.step();
      }
      CHECK(place.ask("status")["run"]["round"] == status["run"]["round"]);
      runs = place.ask("runs");
    }
    INFO("the disk became full after turn " << turns);
    CHECK(before > 0);
    CHECK(runs["runs"][0]["round"] == status["run"]["round"]);
    CHECK(runs["runs"][0]["tokens_committed"] == status["run"]["tokens_committed"]);
    place.kill();
    const json found = place.ask("status");
    CHECK(found["run"]["round"] == status["run"]["round"]);
    CHECK(found["run"]["tokens_committed"] == status["run"]["tokens_committed"]);
    decided = decided || status["run"]["reason"].get<std::string>().find("cannot write its ledger") != std::string::npos;
  }
  CHECK(decided);
}

TEST_CASE("a document shows what was said right before the question, and that is durable by then") {
  Place place;
  place.islands.say_hello();
  const json status = place.ask("status");
  CHECK(status["run"]["state"] == "starting");
  place.kill();
  CHECK(place.ask("status")["run"]["state"] != "queued");
}

}  // namespace of_durable_before_shown_test
