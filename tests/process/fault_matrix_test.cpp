// The fault matrix: every fault, in every phase of a round, under every strategy that has rounds, rehearsed by `atoll local --faults` on
// three real islands.
//
// In each cell: the fault strikes, the run completes, every round is committed once and in order, islands that have a round have the same
// bytes of it, and an island that was not counted in a round has an absence with a cause. What happened instead of an undisturbed round is
// the cell's entry in the table, which goes to stdout and, with ATOLL_FAULT_MATRIX=FILE, to a file. The default test has a seventh of the
// cells, each fault in each phase once, and on each day of a week other ones (ATOLL_TEST_DAY=0 to 6); all of them: ctest -L soak, or
// test_process "[matrix]"; with ATOLL_FAULT_CELL=TEXT those whose name has it ("corrupt at receiving, data-parallel").
#include <iomanip>
#include <set>

#include "agent/faults/rehearsal.hpp"
#include "agent/storage/checkpoint.hpp"
#include "agent/storage/safetensors.hpp"
#include "coordinator/ledger/ledger.hpp"
#include "tests/day.hpp"
#include "tests/places.hpp"
#include "tests/process/cluster.hpp"
#include "transport/base/own_disk.hpp"

namespace of_fault_matrix_test {

using atl_test::Cluster;
using atl_test::Process;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

constexpr std::array<const char*, 7> kStrategies = {"diloco", "streaming-diloco", "noloco", "data-parallel", "eager-diloco",
                                                    "co2",    "decoupled-diloco"};
constexpr std::size_t kAtOnce = 4;
constexpr unsigned kIslands = 3;

struct Cell {
  std::size_t action = 0;
  std::size_t phase = 0;
  std::size_t strategy = 0;
  std::string outcome;
};

std::string name_of(const Cell& cell) {
  return std::string(atl::agent::kFaultActions[cell.action]) + " at " + std::string(atl::agent::kRoundPhases[cell.phase]) + ", " +
         kStrategies[cell.strategy];
}

// `atoll local` of one cell in a folder of its own.
class Rehearsed {
 public:
  explicit Rehearsed(const Cell& cell) {
    const std::string strategy = kStrategies[cell.strategy];
    const std::string action(atl::agent::kFaultActions[cell.action]);
    folder_.write("text.txt", std::string(100'000, 'x'));
    const std::string own = strategy == "data-parallel"      ? ""
                            : strategy == "streaming-diloco" ? "inner_steps = 12\noverlap_steps = 2\n"
                            : strategy == "decoupled-diloco" ? "inner_steps = 10\nfragments = 2\nquorum = 2\n"
                            : strategy == "noloco"           ? "inner_steps = 5\npace = \"fixed\"\n"
                                                             : "inner_steps = 5\n";
    // One that is expelled waits five seconds before it may come back.
    // Where nobody waits for it the others would be through before one that was away is back.
    const unsigned rounds = action == "corrupt" ? 160 : strategy == "decoupled-diloco" ? 120 : 30;
    const std::string steps = std::to_string(rounds * 5);  // of data-parallel each is a round
    folder_.write(
        "run.toml",
        "[run]\nname = \"cell\"\n[model]\nlayers = 1\nwidth = 32\nheads = 2\n[data]\nfiles = [\"text.txt\"]\n[training]\nsteps = " + steps +
            "\nbatch = 4\nsequence_length = 16\nwarmup_steps = 1\n[strategy]\nname = \"" + strategy + "\"\n" + own +
            "[islands]\nmin = 2\nmax = 3\ndeadline = \"5s\"\n[checkpoint]\nevery_rounds = 3\n");
    folder_.write("faults.toml", "[[fault]]\nisland = \"island-2\"\nround = 3\nphase = \"" +
                                     std::string(atl::agent::kRoundPhases[cell.phase]) + "\"\ndo = \"" + action + "\"\n" +
                                     (action == "slow" ? "rate = \"500kbit\"\n" : "") + (action == "corrupt" ? "" : "for = \"1600ms\"\n"));
    process_ =
        Process({atl_test::atoll_program(), "local", path("run.toml"), "--islands", std::to_string(kIslands), "--network", "local",
                 "--state", path("state"), "--faults", path("faults.toml"), "--json"},
                {{"ATOLL_TRAINER_MODULE", atl_test::arithmetic_trainer()}, {"ATOLL_TEST_STEP_MS", "10"}, {"ATOLL_TEST_HEAD", "3000"}},
                path("out"), path("err"));
  }

  int wait() { return process_.wait(std::chrono::seconds(300)); }
  [[nodiscard]] std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  [[nodiscard]] std::string said(const std::string& name) const { return atl_test::text_of(path(name)); }
  // What the ledger has of the run, the tape included.
  [[nodiscard]] std::vector<json> events(const std::string& run) const {
    atl::coordinator::Ledger ledger = atl::coordinator::Ledger::open(path("state/coordinator")).value();
    atl::coordinator::EventQuery query;
    query.run = atl::RunId(run);
    query.limit = 100'000;
    query.debug = true;
    std::vector<json> all;
    for (const atl::coordinator::StoredEvent& stored : ledger.events(query).value()) {
      all.push_back({{"kind", stored.event.kind}, {"fields", json::parse(stored.fields)}});
    }
    return all;
  }
  [[nodiscard]] std::string logs() const {
    std::string all;
    for (const char* name : {"coordinator", "island-1", "island-2", "island-3"}) {
      all += "---- " + std::string(name) + "\n" + said("state/" + std::string(name) + ".log");
    }
    return all;
  }

 private:
  atl_test::TemporaryFolder folder_;
  Process process_;
};

// The parameters in a checkpoint.
std::string parameters_of(const fs::path& checkpoint) {
  const atl::SafetensorsFile file = atl::SafetensorsFile::open(checkpoint / atl::kOuterFile).value();
  std::string bytes;
  for (const char* name : {"embedding", "layer", "head"}) {
    const auto values = file.floats(name).value();
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  }
  return bytes;
}

// Islands that have a checkpoint of a round have the same bytes of it. In pairs that is so once all are merged, and of the parameters:
// momenta stay their own. (Of data-parallel the trainer here takes the mean as it is: it has no optimiser's state that one that was away
// would lack.)
void check_same_bytes(const Rehearsed& rehearsed, const json& document, bool pairs) {
  const std::string run = document["run"]["id"];
  const std::uint64_t last = document["run"]["round"];
  std::map<std::uint64_t, std::set<std::string>> states;
  std::size_t islands_at_the_end = 0;
  for (unsigned i = 1; i <= kIslands; ++i) {
    const fs::path folder = rehearsed.path("state/island-" + std::to_string(i) + "/runs/" + run + "/checkpoints");
    if (!fs::exists(folder)) {
      continue;
    }
    atl::CheckpointStore store = atl::CheckpointStore::open(atl::on_this_machine(folder)).value();
    for (const atl::CheckpointMeta& meta : store.list()) {
      if (!store.verify(meta.round)) {
        continue;  // corrupted on purpose
      }
      if (!pairs) {
        states[meta.round.value].insert(atl::to_hex(meta.outer()->sha256) + atl::to_hex(meta.digest));
      } else if (meta.round.value == last) {
        states[last].insert(parameters_of(store.folder_of(meta.round).text()));
      }
      islands_at_the_end += meta.round.value == last ? 1U : 0U;
    }
  }
  CHECK(islands_at_the_end >= 2);
  for (const auto& [round, bytes] : states) {
    INFO("round " << round);
    CHECK(bytes.size() == 1);
  }
}

// Every round once and in order, and whoever is not counted in one is accounted for. In pairs the only round that all have in common is the
// last.
void check_rounds(const std::vector<json>& events, const json& document, bool pairs) {
  const std::uint64_t last = document["run"]["round"];
  std::uint64_t next = pairs ? last : 0;
  for (const json& event : events) {
    CHECK(event.value("kind", "") != "rolled_back");
    if (event.value("kind", "") != "round_committed") {
      continue;
    }
    const std::uint64_t round = event["fields"]["round"];
    CHECK(round == next);
    ++next;
    const json& members = event["fields"]["members"];
    for (unsigned i = 1; i <= kIslands; ++i) {
      const std::string island = "island-" + std::to_string(i);
      if (std::find(members.begin(), members.end(), json(island)) != members.end() || round == 0) {
        continue;
      }
      bool told = false;
      for (const json& absence : document["absences"]) {
        told = told || (absence["island"] == island && absence["from_round"] <= round && !absence["cause"].get<std::string>().empty() &&
                        (absence["to_round"].is_null() || round <= absence["to_round"]));
      }
      INFO(island << " is not counted in round " << round);
      CHECK(told);
    }
  }
  CHECK(next == last + 1);
}

std::string time_text(double ms) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(1);
  if (ms < 100) {
    text << "at once";
  } else {
    text << ms / 1000 << " s";
  }
  return text.str();
}

// How soon the next round was committed, in which attempt, and how many were without the island. In pairs, where nobody waits: how long it
// was away.
std::string outcome_of(const json& document, bool pairs) {
  const json& fault = document["faults"][0];
  if (pairs) {
    for (const json& absence : document["absences"]) {
      if (absence["island"] == fault["island"]) {
        return absence["until_unix_ms"].is_null()
                   ? "away to the end"
                   : "away " + time_text(absence["until_unix_ms"].get<double>() - absence["since_unix_ms"].get<double>());
      }
    }
    return "not away";
  }
  if (!fault.contains("next_commit_round")) {
    return "in the last round";
  }
  std::string text = time_text(fault["next_commit_ms"]);
  if (fault["next_commit_attempt"] > 1) {
    text += ", attempt " + fault["next_commit_attempt"].dump();
  }
  if (fault["rounds_without_island"] > 0) {
    text += ", " + fault["rounds_without_island"].dump() + " without it" + (fault.contains("back_round") ? "" : " to the end");
  }
  return text;
}

void check_cell(Cell& cell, Rehearsed& rehearsed) {
  INFO(name_of(cell));
  const int exit = rehearsed.wait();
  INFO(rehearsed.said("err") << rehearsed.said("out") << rehearsed.logs());
  REQUIRE(exit == 0);
  const json document = json::parse(rehearsed.said("out"));
  CHECK(document["run"]["state"] == "completed");
  CHECK(document["run"]["round"] == document["run"]["rounds"]);
  CHECK(document["islands"].size() == kIslands);
  CHECK(document["faults"][0]["struck"] == true);
  const bool pairs = std::string(kStrategies[cell.strategy]) == "noloco";
  check_rounds(rehearsed.events(document["run"]["id"]), document, pairs);
  check_same_bytes(rehearsed, document, pairs);
  cell.outcome = outcome_of(document, pairs);
}

std::string table_of(const std::vector<Cell>& cells) {
  std::ostringstream text;
  text << "| fault | phase |";
  for (const char* strategy : kStrategies) {
    text << " `" << strategy << "` |";
  }
  text << "\n|---|---|";
  for (std::size_t i = 0; i < kStrategies.size(); ++i) {
    text << "---|";
  }
  text << "\n";
  for (std::size_t action = 0; action < atl::agent::kFaultActions.size(); ++action) {
    for (std::size_t phase = 0; phase < atl::agent::kRoundPhases.size(); ++phase) {
      std::array<std::string, kStrategies.size()> row;
      bool any = false;
      for (const Cell& cell : cells) {
        if (cell.action == action && cell.phase == phase) {
          row[cell.strategy] = cell.outcome;
          any = true;
        }
      }
      if (any) {
        text << "| " << atl::agent::kFaultActions[action] << " | " << atl::agent::kRoundPhases[phase] << " |";
        for (const std::string& outcome : row) {
          text << " " << outcome << " |";
        }
        text << "\n";
      }
    }
  }
  return text.str();
}

void rehearse(std::vector<Cell> cells) {
  for (std::size_t first = 0; first < cells.size(); first += kAtOnce) {
    std::vector<std::unique_ptr<Rehearsed>> running;
    for (std::size_t i = first; i < std::min(first + kAtOnce, cells.size()); ++i) {
      running.push_back(std::make_unique<Rehearsed>(cells[i]));
    }
    for (std::size_t i = 0; i < running.size(); ++i) {
      check_cell(cells[first + i], *running[i]);
    }
  }
  const std::string table = table_of(cells);
  std::printf("%s", table.c_str());
  if (const char* file = std::getenv("ATOLL_FAULT_MATRIX")) {
    std::ofstream(file) << table;
  }
}

std::vector<Cell> all_cells() {
  std::vector<Cell> cells;
  for (std::size_t action = 0; action < atl::agent::kFaultActions.size(); ++action) {
    for (std::size_t phase = 0; phase < atl::agent::kRoundPhases.size(); ++phase) {
      for (std::size_t strategy = 0; strategy < kStrategies.size(); ++strategy) {
        cells.push_back({action, phase, strategy, {}});
      }
    }
  }
  return cells;
}

}  // namespace

TEST_CASE("process: faults at every phase of a round: the run completes, each round once, the same bytes, nobody silently missing") {
  std::vector<Cell> cells = all_cells();
  static_assert(kStrategies.size() == 7);  // so that each fault in each phase meets another strategy every day
  std::printf("ATOLL_TEST_DAY=%llu\n", static_cast<unsigned long long>(atl_test::day()));
  std::erase_if(cells, [](const Cell& cell) { return (cell.action + cell.phase + cell.strategy + atl_test::day()) % 7 != 0; });
  rehearse(std::move(cells));
}

TEST_CASE("process: the whole fault matrix", "[.matrix]") {
  std::vector<Cell> cells = all_cells();
  if (const char* only = std::getenv("ATOLL_FAULT_CELL")) {
    std::erase_if(cells, [only](const Cell& cell) { return name_of(cell).find(only) == std::string::npos; });
  }
  REQUIRE_FALSE(cells.empty());
  rehearse(std::move(cells));
}

TEST_CASE("process: examples/faults/three-islands.toml, its times made short, strikes five times, and the run completes") {
  const atl_test::TemporaryFolder folder;
  folder.write("text.txt", std::string(100'000, 'x'));
  const auto path = [&](const std::string& name) { return (folder.path() / name).string(); };
  std::string faults = atl_test::text_of(atl_test::source_folder() + "/examples/faults/three-islands.toml");
  for (std::size_t at = faults.find("\nfor = \""); at != std::string::npos; at = faults.find("\nfor = \"", at + 1)) {
    faults.replace(at, faults.find('"', at + 8) + 1 - at, "\nfor = \"900ms\"");
  }
  folder.write("faults.toml", faults);
  std::string run = atl_test::text_of(atl_test::source_folder() + "/examples/quickstart.toml");
  const std::size_t files = run.find("files = [");
  REQUIRE(files != std::string::npos);
  run.replace(files, run.find('\n', files) - files, "files = [\"text.txt\"]");
  folder.write("run.toml", run);
  Process process({atl_test::atoll_program(), "local", path("run.toml"), "--islands", "3", "--network", "local", "--state", path("state"),
                   "--faults", path("faults.toml")},
                  {{"ATOLL_TRAINER_MODULE", atl_test::arithmetic_trainer()}, {"ATOLL_TEST_STEP_MS", "5"}}, path("out"), path("err"));
  const int exit = process.wait(std::chrono::seconds(300));
  const std::string said = atl_test::text_of(path("out"));
  INFO(atl_test::text_of(path("err")) << said);
  REQUIRE(exit == 0);
  for (const char* struck :
       {"kill of island-2 at reducing of round 3,", "pause of island-1 at before-send of round 6,", "slow of island-3 at sending of round ",
        "cut-off of island-2 at receiving of round 1", "corrupt of island-3 at receiving of round 1"}) {
    INFO(struck);
    CHECK(said.find(struck) != std::string::npos);
  }
  CHECK(said.find("did not strike") == std::string::npos);
  CHECK(said.find("completed") != std::string::npos);
}

TEST_CASE("process: a fault file that cannot be is refused before anything is started, every mistake with its line") {
  const atl_test::TemporaryFolder folder;
  folder.write("text.txt", std::string(1'000, 'x'));
  folder.write("run.toml",
               "[run]\nname = \"cell\"\n[data]\nfiles = [\"text.txt\"]\n[training]\nsteps = 30\n[strategy]\ninner_steps = "
               "5\n[islands]\nmin = 2\nmax = 2\n");
  folder.write("faults.toml", "[[fault]]\nisland = \"island-3\"\nround = 7\nphase = \"sending\"\ndo = \"explode\"\n");
  const auto path = [&](const std::string& name) { return (folder.path() / name).string(); };
  Process process(
      {atl_test::atoll_program(), "local", path("run.toml"), "--islands", "2", "--state", path("state"), "--faults", path("faults.toml")},
      {}, path("out"), path("err"));
  CHECK(process.wait() == 2);
  const std::string said = atl_test::text_of(path("err"));
  INFO(said);
  for (const char* part : {"faults.toml:2:10: there is no island \"island-3\"", "faults.toml:3:9: round is an integer from 1 to 6",
                           "faults.toml:5:6: do \"explode\""}) {
    CHECK(said.find(part) != std::string::npos);
  }
  CHECK_FALSE(fs::exists(path("state")));
}

}  // namespace of_fault_matrix_test
