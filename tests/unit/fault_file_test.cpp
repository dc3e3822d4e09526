// The fault file: what it says, and every mistake at once; and how faults and strikes travel between `atoll local` and the agents it
// starts.
#include "cli/run_file/fault_file.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/local/fault_script.hpp"
#include "tests/catch.hpp"

namespace of_fault_file_test {

using namespace atl;
using agent::Fault;
using agent::FaultAction;
using agent::RoundPhase;
using nlohmann::json;

namespace {

const FaultedRun kRun{{"island-1", "island-2", "island-3"}, 20};

// "line: why" of each problem.
std::vector<std::string> problems_of(const std::string& text, const FaultedRun& run = kRun) {
  std::vector<std::string> all;
  for (const TomlProblem& problem : parse_fault_file(text, "faults.toml", run).problems) {
    all.push_back(std::to_string(problem.line) + ": " + problem.why);
  }
  return all;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

const std::string kWhole = "[[fault]]\nisland = \"island-2\"\nround = 3\nphase = \"reducing\"\ndo = \"kill\"\n";

}  // namespace

TEST_CASE("a fault file says what strikes where and when") {
  const FaultFile file = parse_fault_file(
      kWhole + "[[fault]]\nisland = \"island-1\"\nround = 5\nphase = \"receiving\"\ndo = \"slow\"\nrate = \"1mbit\"\nfor = \"500ms\"\n" +
          "[[fault]]\nisland = \"island-3\"\nround = 6\nphase = \"before-send\"\ndo = \"cut-off\"\nlink = \"control\"\n",
      "faults.toml", kRun);
  INFO(problems_text(file.source, file.problems));
  REQUIRE(file.valid());
  REQUIRE(file.faults.size() == 3);
  CHECK(file.faults[0].island == "island-2");
  CHECK(file.faults[0].fault ==
        Fault{1, Round(3), RoundPhase::reducing, FaultAction::kill, std::chrono::seconds(2), 0, agent::FaultLink::both});
  CHECK(file.faults[1].fault ==
        Fault{2, Round(5), RoundPhase::receiving, FaultAction::slow, std::chrono::milliseconds(500), 1e6, agent::FaultLink::both});
  CHECK(file.faults[2].fault ==
        Fault{3, Round(6), RoundPhase::before_send, FaultAction::cut_off, std::chrono::seconds(2), 0, agent::FaultLink::control});
}

TEST_CASE("every mistake of a fault file is told at once, with its line and the nearest word") {
  const std::vector<std::string> told = problems_of(
      "[[fault]]\nisland = \"island-9\"\nround = 21\nphase = \"reducin\"\ndo = \"kil\"\nfoor = \"2s\"\n"
      "[[fault]]\nround = 0\nphase = \"sending\"\ndo = \"slow\"\nlink = \"bulk\"\nfor = \"long\"\n"
      "[faults]\nx = 1\n");
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"2: ", "there is no island \"island-9\"; there are island-1, island-2, island-3"},
      {"3: ", "from 1 to 20"},
      {"4: ", "nearest is \"reducing\""},
      {"5: ", "nearest is \"kill\""},
      {"6: ", "unknown key \"foor\" in [[fault]]; nearest is \"for\""},
      {"7: ", "missing key \"island\""},
      {"7: ", "missing key \"rate\""},
      {"8: ", "from 1 to 20"},
      {"11: ", "link has no effect on do = \"slow\""},
      {"12: ", "like \"2s\""},
      {"13: ", "unknown key \"faults\" at the top level"}};
  INFO(json(told).dump(1));
  REQUIRE(told.size() == expected.size());
  for (std::size_t i = 0; i < told.size(); ++i) {
    INFO(told[i] << " | " << expected[i].second);
    CHECK(told[i].starts_with(expected[i].first));
    CHECK(contains(told[i], expected[i].second));
  }
}

TEST_CASE("what is no fault file is refused in words") {
  CHECK(contains(problems_of("[[fault")[0], "not TOML"));
  CHECK(contains(problems_of("")[0], "there is no [[fault]]"));
  CHECK(contains(problems_of("[fault]\nisland = \"island-1\"\n")[0], "two pairs of brackets"));
  CHECK(contains(problems_of("fault = [1]\n")[0], "two pairs of brackets"));
  CHECK(contains(problems_of(kWhole, {{"island-2"}, 0})[0], "no rounds"));
  CHECK(contains(problems_of(std::string(2U << 20U, '#'))[0], "1 MiB"));
  CHECK(contains(problems_of("a.b.c.d.e.f.g.h.i.j = 1\n")[0], "parts"));
  CHECK(contains(problems_of(kWhole + "rate = \"100kbit\"\n")[0], "at least 500kbit"));
  CHECK(contains(problems_of("[[fault]]\nisland = 3\nround = \"x\"\nphase = \"sending\"\ndo = \"corrupt\"\nfor = \"1s\"\n")[0],
                 "must be a text"));
  CHECK(problems_of("[[fault]]\nisland = 3\nround = \"x\"\nphase = \"sending\"\ndo = \"corrupt\"\nfor = \"1s\"\n").size() == 3);
}

TEST_CASE("faults reach an agent as they are, and what is none is refused") {
  const std::vector<Fault> faults = {
      {1, Round(3), RoundPhase::before_commit, FaultAction::corrupt, {}, 0, agent::FaultLink::both},
      {7, Round(12), RoundPhase::checkpointing, FaultAction::slow, std::chrono::milliseconds(1500), 2e6, agent::FaultLink::both},
      {8, Round(1), RoundPhase::before_send, FaultAction::cut_off, std::chrono::seconds(3), 0, agent::FaultLink::bulk}};
  const auto back = agent::parse_faults(agent::faults_text(faults));
  REQUIRE(back);
  CHECK(*back == faults);
  CHECK(agent::parse_faults("")->empty());
  for (const char* text :
       {"nonsense", "1 2 sending kill", "1 2 never kill 0 0 both\n", "1 2 sending kill -5 0 both\n", "1 2 sending kill 0 0 wire\n"}) {
    CHECK(agent::parse_faults(text).error().code == Code::invalid_argument);
  }
  const agent::Strike strike{4, Round(9), 1'767'225'600'123};
  CHECK(agent::parse_strike(agent::strike_text(strike)) == strike);
  CHECK_FALSE(agent::parse_strike("[info] round 9 committed"));
  CHECK_FALSE(agent::parse_strike("rehearsal-strike x y z"));
}

TEST_CASE("a fault strikes once, in its round or the first later one, and only in its phase") {
  agent::Rehearsal rehearsal({{1, Round(3), RoundPhase::sending, FaultAction::cut_off, std::chrono::hours(1), 0, agent::FaultLink::bulk},
                              {2, Round(5), RoundPhase::receiving, FaultAction::slow, std::chrono::hours(1), 1e6, agent::FaultLink::both}});
  rehearsal.reached(RoundPhase::sending, Round(2));
  rehearsal.reached(RoundPhase::receiving, Round(4));
  CHECK_FALSE(rehearsal.bulk_is_cut(now()));
  CHECK(rehearsal.uplink_bits_per_second(now()) == 0);
  CHECK(rehearsal.awaits(RoundPhase::sending));
  rehearsal.reached(RoundPhase::sending, Round(4));
  CHECK(rehearsal.bulk_is_cut(now()));
  CHECK_FALSE(rehearsal.control_is_cut(now()));
  CHECK_FALSE(rehearsal.bulk_is_cut(now() + std::chrono::hours(2)));
  CHECK_FALSE(rehearsal.awaits(RoundPhase::sending));
  rehearsal.reached(RoundPhase::receiving, Round(5));
  CHECK(rehearsal.uplink_bits_per_second(now()) == 1e6);
}

TEST_CASE("a corrupted piece is one that becomes the island's own result, once") {
  const auto piece = [](BlobKind kind) {
    BlobPiece head;
    head.blob.kind = kind;
    head.length = 4;
    return head;
  };
  for (const std::size_t members : {std::size_t{2}, std::size_t{3}}) {
    agent::Rehearsal rehearsal({{1, Round(1), RoundPhase::before_send, FaultAction::corrupt, {}, 0, agent::FaultLink::both}});
    rehearsal.exchange_begins(members);
    const BlobKind own = members == 2 ? BlobKind::contribution : BlobKind::reduced;
    CHECK_FALSE(rehearsal.corrupts(piece(own)));  // not struck yet
    rehearsal.reached(RoundPhase::before_send, Round(1));
    CHECK_FALSE(rehearsal.corrupts(piece(members == 2 ? BlobKind::reduced : BlobKind::contribution)));
    CHECK_FALSE(rehearsal.corrupts(piece(BlobKind::checkpoint_file)));
    CHECK(rehearsal.corrupts(piece(own)));
    CHECK_FALSE(rehearsal.corrupts(piece(own)));
  }
}

TEST_CASE("the report says of each fault whether it struck, the next commit, and when the island was back") {
  FaultFile file = parse_fault_file(kWhole + kWhole, "faults.toml", kRun);
  REQUIRE(file.valid());
  FaultScript script(file.faults);
  CHECK(agent::parse_faults(script.environment_of("island-2").at(agent::kRehearsalVariable))->size() == 2);
  CHECK(agent::parse_faults(script.environment_of("island-1").at(agent::kRehearsalVariable))->empty());
  const TimePoint at = now();
  CHECK_FALSE(script.take_line("round 3 committed", at));
  REQUIRE(script.take_line(agent::strike_text({1, Round(3), 10'000}), at));
  CHECK(script.killed("island-2"));
  CHECK(agent::parse_faults(script.environment_of("island-2").at(agent::kRehearsalVariable))->size() == 1);  // not once more
  CHECK_FALSE(script.starts_now("island-2", at + std::chrono::milliseconds(1999)));
  CHECK_FALSE(script.starts_now("island-1", at + std::chrono::seconds(2)));
  CHECK(script.starts_now("island-2", at + std::chrono::seconds(2)));
  CHECK_FALSE(script.killed("island-2"));

  const auto commit = [](unsigned round, std::int64_t time, unsigned attempt, const std::vector<std::string>& members) {
    return json{{"kind", "round_committed"},
                {"level", "info"},
                {"round", round},
                {"time_unix_ms", time},
                {"fields", {{"attempt", attempt}, {"members", members}}}};
  };
  const json events = {commit(2, 9'900, 1, kRun.islands),
                       json{{"kind", "island_lost"}, {"level", "warning"}, {"time_unix_ms", 11'200}, {"text", "island-2 is lost"}},
                       commit(3, 11'300, 2, {"island-1", "island-3"}), commit(4, 11'500, 1, {"island-1", "island-3"}),
                       commit(5, 13'000, 1, kRun.islands)};
  const json told = script.report(events, 8'000);
  REQUIRE(told.size() == 2);
  CHECK(told[0]["struck"] == true);
  CHECK(told[0]["struck_round"] == 3);
  CHECK(told[0]["struck_after_ms"] == 2'000);
  CHECK(told[0]["next_commit_round"] == 3);
  CHECK(told[0]["next_commit_ms"] == 1'300);
  CHECK(told[0]["next_commit_attempt"] == 2);
  CHECK(told[0]["next_commit_with_island"] == false);
  CHECK(told[0]["rounds_without_island"] == 2);
  CHECK(told[0]["back_round"] == 5);
  CHECK(told[0]["back_ms"] == 3'000);
  CHECK(told[0]["said"] == json{"island-2 is lost"});
  CHECK(told[1]["struck"] == false);
}

}  // namespace of_fault_file_test
