// Real agents that meet in pairs, on loopback: what comes out at the end is what arithmetic says, whoever met whom, whatever dies.
#include <algorithm>
#include <set>

#include "agent/storage/checkpoint.hpp"
#include "agent/storage/safetensors.hpp"
#include "coordinator/ledger/database.hpp"
#include "tests/process/cluster.hpp"
#include "transport/base/own_disk.hpp"

namespace of_noloco_test {

using atl_test::Cluster;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

constexpr unsigned kPeriod = 5;
constexpr unsigned kRounds = 10;  // and one that merges all

std::string run_file(const std::string& name, unsigned islands, const std::string& deadline = "10s") {
  std::ostringstream text;
  text << "[run]\nname = \"" << name
       << "\"\n[model]\nlayers = 1\nwidth = 32\nheads = 2\n[data]\nset = \"corpus\"\n[training]\nsteps = " << kPeriod * kRounds
       << "\nbatch = 4\nsequence_length = 16\nwarmup_steps = 1\n[strategy]\nname = \"noloco\"\npace = \"fixed\"\ninner_steps = " << kPeriod
       << "\n[islands]\nmin = " << islands << "\nmax = " << islands << "\ndeadline = \"" << deadline
       << "\"\n[checkpoint]\nevery_rounds = 2\n";
  return text.str();
}

// What the mean of all islands' element i is after all rounds, in double: the pulls of a pair cancel, so it moves as with heavy-ball
// DiLoCo (0.7, 0.5), whoever met whom and whoever went alone. The arithmetic trainer's steps do not depend on where it stands.
double expected_mean(std::size_t i, unsigned parts) {
  double value = 0.5;
  double momentum = 0;
  for (unsigned round = 0; round < kRounds; ++round) {
    double gradient = 0;
    for (unsigned part = 0; part < parts; ++part) {
      for (unsigned step = round * kPeriod + 1; step <= (round + 1) * kPeriod; ++step) {
        gradient += static_cast<double>((part + 1) * step % 7 + i % 5) / 1024.0 / parts;
      }
    }
    momentum = 0.5 * momentum - 0.7 * gradient;
    value += momentum;
  }
  return value;
}

void check_completed(Cluster& cluster, const std::string& run) {
  const atl_test::CommandResult waited = cluster.run({"wait", run, "--timeout", "150s"});
  INFO(waited.out << waited.err << cluster.logs());
  REQUIRE(waited.exit == 0);
}

// Every island ends with the same bytes: those of the merged model.
void check_merged(Cluster& cluster, const std::string& run, const std::vector<std::string>& islands) {
  std::set<std::string> files;
  for (const std::string& island : islands) {
    INFO(island);
    const std::optional<atl::CheckpointMeta> meta =
        atl::CheckpointStore::open(atl::on_this_machine(cluster.state(island) / "runs" / run / "checkpoints")).value().newest_good();
    REQUIRE(meta.has_value());
    CHECK(meta->round == atl::Round(kRounds + 1));
    const atl::SafetensorsFile file =
        atl::SafetensorsFile::open(cluster.state(island) / "runs" / run / "checkpoints" / std::to_string(kRounds + 1) / "outer.safetensors")
            .value();
    std::string bytes;
    for (const char* name : {"embedding", "layer", "head"}) {
      const auto values = file.floats(name).value();
      bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    }
    files.insert(bytes);
  }
  CHECK(files.size() == 1);
}

std::size_t count(Cluster& cluster, const std::string& run, const std::string& kind) {
  std::size_t found = 0;
  for (const json& event : cluster.events(run)) {
    found += event.value("kind", "") == kind ? 1U : 0U;
  }
  return found;
}

// By the names alone: the store itself belongs to the agent that runs.
atl::Round newest_checkpoint(Cluster& cluster, const std::string& run, const std::string& island) {
  atl::Round newest;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(cluster.state(island) / "runs" / run / "checkpoints", none)) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") == std::string::npos) {
      newest = std::max(newest, atl::Round(std::stoull(name)));
    }
  }
  return newest;
}

// The rounds' metrics know what they moved, and no more than the islands sent in all.
void check_bytes(Cluster& cluster, const std::string& run) {
  atl::coordinator::Database ledger = atl::coordinator::Database::open(cluster.state("coordinator") / "ledger.db").value();
  auto rounds = ledger.prepare("SELECT sum(bytes_sent), sum(bytes_received) FROM metrics WHERE run=? AND round<=?");
  rounds.bind(run).bind(std::uint64_t{kRounds});
  REQUIRE(rounds.row().value());
  double sent = 0;
  const json islands = cluster.status(run)["islands"];
  for (const json& island : islands) {
    sent += island["bytes_sent"].get<double>();
  }
  CHECK(rounds.integer(0) > 0);
  CHECK(rounds.integer(1) > 0);
  CHECK(static_cast<double>(rounds.integer(0)) < sent);
}

const std::vector<std::string> kNames = {"a", "b", "c", "d"};

}  // namespace

TEST_CASE("process: four agents in pairs end with the mean that arithmetic says, and it is exported") {
  Cluster cluster;
  for (const std::string& name : kNames) {
    cluster.start_island(name);
  }
  const std::string run = cluster.submit(run_file("pairs", 4));
  check_completed(cluster, run);
  check_merged(cluster, run, kNames);
  CHECK(count(cluster, run, "consensus") > 0);
  const json islands = cluster.status(run)["islands"];
  for (const json& island : islands) {
    INFO(island.dump());
    CHECK(island["own_loss"].is_number());
    CHECK(island["own_loss_round"] == kRounds);
  }
  check_bytes(cluster, run);
  const atl_test::CommandResult data = cluster.run({"data", run});
  CHECK(data.exit == 0);
  CHECK(data.out.find("every island keeps a state of its own") != std::string::npos);

  const fs::path model = cluster.folder() / "model.safetensors";
  const atl_test::CommandResult exported = cluster.run({"export", run, "-o", model.string()});
  INFO(exported.err);
  REQUIRE(exported.exit == 0);
  const atl::SafetensorsFile file = atl::SafetensorsFile::open(model).value();
  for (const char* name : {"embedding", "layer", "head"}) {
    const auto values = file.floats(name).value();
    for (std::size_t i = 0; i < values.size(); ++i) {
      INFO(name << " " << i);
      REQUIRE(static_cast<double>(values[i]) == Approx(expected_mean(i, 4)).epsilon(1e-4));
    }
  }

  // The islands' own models, from before: they differ, and the merged one is their mean.
  std::set<float> firsts;
  double mean = 0;
  for (const std::string& name : kNames) {
    const fs::path own = cluster.folder() / (name + ".safetensors");
    const atl_test::CommandResult one = cluster.run({"export", run, "--island", name, "-o", own.string()});
    INFO(name << ": " << one.err);
    REQUIRE(one.exit == 0);
    const atl::SafetensorsFile its = atl::SafetensorsFile::open(own).value();
    CHECK(its.header().metadata.at("atoll.round") == std::to_string(kRounds));
    firsts.insert(its.floats("layer").value()[0]);
    mean += static_cast<double>(its.floats("layer").value()[0]) / 4.0;
  }
  CHECK(firsts.size() > 1);
  CHECK(static_cast<double>(file.floats("layer").value()[0]) == Approx(mean).epsilon(1e-5));
  CHECK(cluster.run({"export", run, "--island", "nobody", "-o", (cluster.folder() / "none").string()}).exit == 4);
}

TEST_CASE("process: a paused run of pairs stands after one round on every island, and goes on to the bytes of one that was never paused") {
  Cluster cluster("127.0.0.1", "wan");
  cluster.hold_at(27);  // in the sixth of ten rounds
  for (const std::string& name : kNames) {
    cluster.start_island(name);
  }
  const auto file_of = [](const std::string& name) {
    std::string file = run_file(name, 4, "600s");
    return file.insert(file.find("inner_steps"), "max_skew = 1000\n");  // nobody goes alone, however slow this machine is
  };
  const std::string paused = cluster.submit(file_of("paused"));
  REQUIRE(Cluster::eventually([&] { return cluster.round_of(paused) >= 5; }));
  REQUIRE(cluster.run({"pause", paused}).exit == 0);
  cluster.release();
  const bool stopped = Cluster::eventually([&] { return cluster.status(paused)["run"]["state"] == "paused"; });
  INFO(cluster.logs());
  REQUIRE(stopped);
  for (const std::string& name : kNames) {
    CHECK(Cluster::eventually([&] { return atl_test::children_of(cluster.islands[name].pid()).empty(); }));
    CHECK(newest_checkpoint(cluster, paused, name) == atl::Round(6));
  }
  REQUIRE(cluster.run({"resume", paused}).exit == 0);
  check_completed(cluster, paused);
  check_merged(cluster, paused, kNames);
  CHECK(count(cluster, paused, "pair_alone") == 0);
  CHECK(cluster.status(paused)["absences"] == json::array());
  Cluster others;  // whoever the islands are: who meets whom depends on seed and places alone
  for (const std::string& name : kNames) {
    others.start_island(name);
  }
  const std::string plain = others.submit(file_of("plain"));
  check_completed(others, plain);
  std::set<std::string> models;
  for (const auto& [where, run] : {std::pair(&cluster, paused), std::pair(&others, plain)}) {
    const fs::path model = where->folder() / "model.safetensors";
    REQUIRE(where->run({"export", run, "-o", model.string()}).exit == 0);
    const atl::SafetensorsFile file = atl::SafetensorsFile::open(model).value();
    std::string bytes;
    for (const char* name : {"embedding", "layer", "head"}) {
      const auto values = file.floats(name).value();
      bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    }
    models.insert(bytes);
  }
  CHECK(models.size() == 1);
}

// In groups of all, with equal outer states, the pull has nothing to pull: NoLoCo's equivalence with DiLoCo, on real processes.
TEST_CASE("process: three agents in groups of three do what heavy-ball DiLoCo does, to the last bit") {
  Cluster cluster;
  const std::vector<std::string> names = {"a", "b", "c"};
  for (const std::string& name : names) {
    cluster.start_island(name);
  }
  const std::string outer_state = GENERATE("f32", "bf16");  // rounded alike in groups and by all
  const std::string kept = "outer_state = \"" + outer_state + "\"\n";
  std::string file = run_file("threes", 3, "600s");
  file.insert(file.find("inner_steps"), "group_size = 3\nmax_skew = 1000\n" + kept);
  const std::string threes = cluster.submit(file);
  check_completed(cluster, threes);
  check_merged(cluster, threes, names);
  CHECK(count(cluster, threes, "pair_alone") == 0);
  file = run_file("all", 3, "600s");
  file.insert(file.find("inner_steps"), kept);
  file.replace(file.find("\"noloco\""), 8,
               "\"diloco\"\nouter_optimizer = \"heavy-ball\"\nouter_learning_rate = 0.7\nouter_momentum = 0.5\nweighting = \"uniform\"");
  const std::string all = cluster.submit(file);
  check_completed(cluster, all);
  const fs::path expected = cluster.folder() / "all.safetensors";
  REQUIRE(cluster.run({"export", all, "-o", expected.string()}).exit == 0);
  const atl::SafetensorsFile theirs = atl::SafetensorsFile::open(expected).value();
  for (const std::string& name : names) {
    const fs::path own = cluster.folder() / (name + ".safetensors");
    const atl_test::CommandResult exported = cluster.run({"export", threes, "--island", name, "-o", own.string()});
    INFO(name << ": " << exported.err);
    REQUIRE(exported.exit == 0);
    const atl::SafetensorsFile its = atl::SafetensorsFile::open(own).value();
    for (const char* tensor : {"embedding", "layer", "head"}) {
      INFO(tensor);
      CHECK(std::ranges::equal(its.floats(tensor).value(), theirs.floats(tensor).value()));
    }
  }
}

TEST_CASE("process: four agents in groups of three, one of them left over in turn, end with the mean that arithmetic says") {
  Cluster cluster;
  for (const std::string& name : kNames) {
    cluster.start_island(name);
  }
  std::string file = run_file("left-over", 4, "600s");
  file.insert(file.find("inner_steps"), "group_size = 3\nmax_skew = 1000\n");
  const std::string run = cluster.submit(file);
  check_completed(cluster, run);
  check_merged(cluster, run, kNames);
  CHECK(count(cluster, run, "pair_alone") == 0);
  const fs::path model = cluster.folder() / "model.safetensors";
  REQUIRE(cluster.run({"export", run, "-o", model.string()}).exit == 0);
  const atl::SafetensorsFile merged = atl::SafetensorsFile::open(model).value();
  for (const char* tensor : {"embedding", "layer", "head"}) {
    const auto values = merged.floats(tensor).value();
    for (std::size_t i = 0; i < values.size(); ++i) {
      INFO(tensor << " " << i);
      REQUIRE(static_cast<double>(values[i]) == Approx(expected_mean(i, 4)).epsilon(1e-4));
    }
  }
}

TEST_CASE("process: one of four in pairs is killed: the others go on, it comes back with the state of one of them") {
  Cluster cluster;
  cluster.hold_at(kPeriod * 4);
  for (const std::string& name : kNames) {
    cluster.start_island(name);
  }
  const std::string run = cluster.submit(run_file("killed", 4));
  REQUIRE(Cluster::eventually([&] { return newest_checkpoint(cluster, run, "b") >= atl::Round(2); }));
  cluster.islands["b"].signal(SIGKILL);
  cluster.islands["b"].wait();
  REQUIRE(Cluster::eventually([&] { return !cluster.takes_part(run, "b"); }));
  cluster.start_island("b");
  REQUIRE(Cluster::eventually([&] { return cluster.takes_part(run, "b"); }));
  cluster.release();
  check_completed(cluster, run);
  check_merged(cluster, run, kNames);
}

TEST_CASE("process: in pairs a contribution that is not finite is rejected by name, and nobody leaves") {
  Cluster cluster;
  for (const std::string name : {"a", "b"}) {
    cluster.start_island(name, name == std::string("b")
                                   ? std::map<std::string, std::string>{{"ATOLL_TEST_BREAK", "nan"},
                                                                        {"ATOLL_TEST_ONCE", (cluster.folder() / "once").string()}}
                                   : std::map<std::string, std::string>{});
  }
  const std::string run = cluster.submit(run_file("nan", 2));
  check_completed(cluster, run);
  check_merged(cluster, run, {"a", "b"});
  CHECK(count(cluster, run, "contribution_rejected") == 1);
  CHECK(count(cluster, run, "island_left") == 0);
}

TEST_CASE("process: in pairs the coordinator may be away: the islands do all their rounds without it") {
  Cluster cluster;
  cluster.hold_at(kPeriod * 2);
  for (const std::string& name : kNames) {
    cluster.start_island(name);
  }
  const std::string run = cluster.submit(run_file("away", 4));
  REQUIRE(Cluster::eventually([&] {
    return std::all_of(kNames.begin(), kNames.end(),
                       [&](const std::string& name) { return newest_checkpoint(cluster, run, name) >= atl::Round(2); });
  }));
  cluster.coordinator.signal(SIGKILL);
  cluster.coordinator.wait();
  cluster.release();
  const bool done = Cluster::eventually(
      [&] {
        return std::all_of(kNames.begin(), kNames.end(),
                           [&](const std::string& name) { return newest_checkpoint(cluster, run, name) == atl::Round(kRounds); });
      },
      std::chrono::seconds(120));
  INFO(cluster.logs());
  REQUIRE(done);
  cluster.start_coordinator();
  check_completed(cluster, run);
  check_merged(cluster, run, kNames);
}

}  // namespace of_noloco_test
