// Chaos on real processes: agents, trainers and the coordinator are killed and stopped at random for a while, links are cut, an island
// joins in the middle; no committed round is lost, everybody has the same bytes, an island that nothing happened to has lost no step, and
// once left alone the run goes on.
//
// ATOLL_CHAOS_SECONDS: how long (30); ATOLL_CHAOS_SEED: which history (time decides the rest; each day of a week has another). The soaks
// are the same for ten minutes (ctest -L soak), one of them with a real model, whose loss is compared with that of an undisturbed run of as
// many tokens.
#include <cmath>
#include <cstdlib>
#include <set>

#include "agent/faults/rehearsal.hpp"
#include "agent/storage/checkpoint.hpp"
#include "coordinator/ledger/thinning.hpp"
#include "tests/day.hpp"
#include "tests/places.hpp"
#include "tests/process/cluster.hpp"
#include "tests/skip.hpp"
#include "transport/base/own_disk.hpp"
#include "transport/base/rng.hpp"

namespace of_chaos_test {

using atl_test::Cluster;
using nlohmann::json;
using std::chrono::milliseconds;

namespace {

constexpr std::uint64_t kInnerSteps = 10;

// What the islands are, and what they train.
struct World {
  std::map<std::string, std::string> environment;  // of every agent
  std::vector<std::string> options;                // of every agent
  std::string run_file;
  double rounds_a_second = 1.2;  // under chaos, about
  bool in_step = true;           // every round has all steps of an island to which nothing happens, and ends at the same step of each
};

World arithmetic_world(const std::string& strategy = "name = \"diloco\"\n") {
  return {{{"ATOLL_TEST_STEP_MS", "20"}},
          {},
          "[run]\nname = \"chaos\"\n[model]\nlayers = 1\nwidth = 32\nheads = 2\n[data]\nset = \"corpus\"\n[training]\nsteps = "
          "10000000\nbatch = 4\nsequence_length = 16\n"
          "warmup_steps = 1\n[strategy]\ninner_steps = 10\n" +
              strategy +
              "[islands]\nmin = 1\nmax = 5\ndeadline = "
              "\"20s\"\n[checkpoint]\nevery_rounds = 5\n"};
}

// A small language model on real text, ten steps a second.
World language_world(const std::filesystem::path& module, const std::filesystem::path& text) {
  return {{{"ATOLL_TRAINER_MODULE", module.string()}, {"OMP_WAIT_POLICY", "passive"}},
          {"--data", "text=" + text.string()},
          "[run]\nname = \"chaos-text\"\n[model]\nlayers = 2\nwidth = 64\nheads = 4\n[data]\nset = \"text\"\n[training]\nsteps = "
          "10000000\nbatch = 4\nsequence_length = 64\n"
          "learning_rate = 2e-3\nwarmup_steps = 20\nmax_steps_per_second = 10\nthreads = 1\nevaluate_batches = 64\n[strategy]\nname = "
          "\"diloco\"\ninner_steps = 10\n"
          "[islands]\nmin = 1\nmax = 5\ndeadline = \"20s\"\n[checkpoint]\nevery_rounds = 5\n",
          0.7};
}

int number_from(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoi(text);
}

class Chaos {
 public:
  Chaos(Cluster& cluster, World world, std::chrono::seconds duration, std::uint64_t seed)
      : cluster_(cluster),
        world_(std::move(world)),
        last_cut_(15 + static_cast<std::uint64_t>(static_cast<double>(duration.count()) * world_.rounds_a_second)),
        rng_(seed, atl::stream_of("chaos")) {
    survivor_ = std::string(1, static_cast<char>('a' + rng_.below(4)));
    told("nothing happens to " + survivor_);
  }

  void start(const std::string& name, std::uint64_t round) {
    std::map<std::string, std::string> environment = world_.environment;
    if (name != survivor_) {
      environment[atl::agent::kRehearsalVariable] = cuts_after(round);
    }
    cluster_.start_island(name, environment, world_.options);
  }
  void run_for(const std::string& run, std::chrono::seconds duration) {
    run_ = run;
    const auto end = std::chrono::steady_clock::now() + duration;
    const auto half = std::chrono::steady_clock::now() + duration / 2;
    while (std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(milliseconds(1000 + static_cast<int>(rng_.below(2000))));
      if (cluster_.islands.count("e") == 0 && std::chrono::steady_clock::now() >= half) {
        start("e", cluster_.round_of(run_));  // somebody new
      }
      strike();
    }
  }
  [[nodiscard]] const std::string& history() const { return history_; }
  [[nodiscard]] const std::string& survivor() const { return survivor_; }
  // No link is cut because of a later round: an island that comes to it has all its cuts behind it.
  [[nodiscard]] std::uint64_t last_cut() const { return last_cut_; }
  // How often a link was cut so far.
  [[nodiscard]] std::size_t cuts() const {
    std::size_t count = 0;
    for (const auto& [name, process] : cluster_.islands) {
      std::istringstream lines(cluster_.log(name));
      for (std::string line; std::getline(lines, line);) {
        count += atl::agent::parse_strike(line) ? 1U : 0U;
      }
    }
    return count;
  }

 private:
  // Every few seconds while this agent lives its links are cut, all of them or some, for up to seven seconds.
  std::string cuts_after(std::uint64_t round) {
    std::vector<atl::agent::Fault> faults;
    for (std::uint32_t number = 1; round + 25 <= last_cut_; ++number) {
      round += 5 + rng_.below(20);
      atl::agent::Fault fault;
      fault.number = number;
      fault.round = atl::Round(round);
      fault.phase = static_cast<atl::agent::RoundPhase>(rng_.below(5));
      fault.action = atl::agent::FaultAction::cut_off;
      fault.length = milliseconds(300 + static_cast<int>(rng_.below(7000)));
      fault.link = static_cast<atl::agent::FaultLink>(rng_.below(3));
      faults.push_back(fault);
    }
    return atl::agent::faults_text(faults);
  }
  std::string somebody() {
    std::vector<std::string> names;
    for (const auto& [name, process] : cluster_.islands) {
      if (name != survivor_) {
        names.push_back(name);
      }
    }
    return names[rng_.below(names.size())];
  }
  void told(const std::string& what) { history_ += what + "\n"; }

  void strike() {
    const std::uint64_t kind = rng_.below(10);
    const std::string name = somebody();
    if (kind < 2) {
      told("coordinator killed");
      cluster_.coordinator.signal(SIGKILL);
      (void)cluster_.coordinator.wait();
      std::this_thread::sleep_for(milliseconds(rng_.below(1500)));
      cluster_.start_coordinator();
    } else if (kind < 5) {
      const std::vector<pid_t> trainers = atl_test::children_of(cluster_.islands[name].pid());
      if (!trainers.empty()) {
        told("trainer of " + name + (kind == 4 ? " stopped for a while" : " killed"));
        ::kill(trainers.front(), kind == 4 ? SIGSTOP : SIGKILL);
        if (kind == 4) {
          std::this_thread::sleep_for(milliseconds(300 + static_cast<int>(rng_.below(7000))));
          ::kill(trainers.front(), SIGCONT);
        }
      }
    } else if (kind < 8) {
      told("agent " + name + " killed");
      cluster_.islands[name].signal(SIGKILL);
      (void)cluster_.islands[name].wait();
      std::this_thread::sleep_for(milliseconds(rng_.below(1500)));
      start(name, cluster_.round_of(run_));
    } else {
      told("agent " + name + " stopped for a while");
      cluster_.islands[name].signal(SIGSTOP);
      std::this_thread::sleep_for(milliseconds(300 + static_cast<int>(rng_.below(7000))));
      cluster_.islands[name].signal(SIGCONT);
    }
  }

  Cluster& cluster_;
  World world_;
  std::uint64_t last_cut_;
  std::string run_;
  atl::Rng rng_;
  std::string survivor_;
  std::string history_;
};

// What a run has come to.
struct Outcome {
  std::uint64_t rounds = 0;
  std::uint64_t tokens = 0;  // committed
  double loss = 0;
};

Outcome outcome_of(Cluster& cluster, const std::string& run) {
  Outcome outcome;
  for (const json& event : cluster.events(run)) {
    if (event.value("kind", "") == "round_committed" && event["round"] > 0) {
      ++outcome.rounds;
      for (const json& tokens : event["fields"]["member_tokens"]) {
        outcome.tokens += tokens.get<std::uint64_t>();
      }
    }
  }
  const json status = cluster.status(run);
  outcome.loss = status["run"]["outer_loss"].is_number() ? status["run"]["outer_loss"].get<double>() : std::nan("");
  return outcome;
}

void pause(Cluster& cluster, const std::string& run) {
  REQUIRE(cluster.run({"pause", run}).exit == 0);
  REQUIRE(Cluster::eventually([&] { return cluster.status(run)["run"].value("state", "") == "paused"; }, std::chrono::seconds(120)));
}

Outcome chaos(const World& world, std::chrono::seconds duration) {
  Cluster cluster;
  const auto seed = static_cast<std::uint64_t>(number_from("ATOLL_CHAOS_SEED", static_cast<int>(1 + atl_test::day() % 7)));
  Chaos chaos(cluster, world, duration, seed);
  for (const char* name : {"a", "b", "c", "d"}) {
    chaos.start(name, 5);
  }
  const std::string run = cluster.submit(world.run_file);
  REQUIRE(Cluster::eventually([&] { return cluster.round_of(run) >= 2; }));
  chaos.run_for(run, duration);
  INFO("seed " << seed << "\n" << chaos.history());

  // Left alone: everybody comes back, and rounds go on with all five. Links are cut on as the islands come to the rounds for that: one
  // that is cut off while the run is being paused is not waited for. One that was killed a moment ago may still count in the round that it
  // had contributed to, so it takes three such rounds, with no cut since the first. An island whose link came and went is let in again once
  // that was steady for a while, for up to eight minutes in the end, and may have some of its cuts before it still.
  std::uint64_t from = std::max(cluster.round_of(run), chaos.last_cut());
  std::size_t cuts = chaos.cuts();
  const auto everybody = [&] {
    if (const std::size_t so_far = chaos.cuts(); so_far != cuts) {
      cuts = so_far;
      from = std::max(from, cluster.round_of(run));
    }
    std::size_t whole = 0;
    for (const json& event : cluster.events(run)) {
      if (event.value("kind", "") == "round_committed" && event["round"] > from) {
        whole = event["fields"]["members"].size() == 5 ? whole + 1 : 0;
      }
    }
    return whole >= 3;
  };
  const bool healed = Cluster::eventually(everybody, std::chrono::seconds(300) + 3 * duration);
  INFO(cluster.run({"status", run}).out << cluster.logs().substr(0, 200'000));
  REQUIRE(healed);
  pause(cluster, run);

  INFO("paused:\n" << cluster.run({"events", run}).out);

  // The same bytes everywhere, at the round after which it is paused.
  const std::uint64_t last = cluster.round_of(run);
  std::set<std::string> files;
  for (const char* name : {"a", "b", "c", "d", "e"}) {
    atl::CheckpointStore store =
        atl::CheckpointStore::open(atl::on_this_machine(cluster.state(name) / "runs" / run / "checkpoints")).value();
    const std::optional<atl::CheckpointMeta> meta = store.newest_good();
    REQUIRE(meta);
    INFO(name);
    CHECK(meta->round == atl::Round(last));
    files.insert(atl::to_hex(meta->outer()->sha256) + atl::to_hex(meta->digest));
    if (world.in_step && name == chaos.survivor()) {
      CHECK(meta->step == atl::Step(last * kInnerSteps));  // no more and no fewer than were committed, as the events tell below
    }
  }
  CHECK(files.size() == 1);

  // Every round once and in order; none was ever taken back, and each has all steps of the island that nothing happened to.
  std::uint64_t next = 0;
  std::set<std::uint64_t> survivors_tokens;
  for (const json& event : cluster.events(run)) {
    const std::string kind = event.value("kind", "");
    CHECK(kind != "rolled_back");
    if (kind == "round_committed") {
      const auto round = event["round"].get<std::uint64_t>();
      CHECK(round >= next);
      // Of long past rounds not all events are kept (coordinator/ledger/thinning.hpp).
      CHECK((round == next || round + atl::coordinator::kRoundsWhole <= last));
      const json& members = event["fields"]["members"];
      const auto survivor = std::find(members.begin(), members.end(), json(chaos.survivor()));
      INFO(event.dump());
      CHECK(survivor != members.end());
      if (next > 0 && survivor != members.end()) {
        survivors_tokens.insert(
            event["fields"]["member_tokens"][static_cast<std::size_t>(survivor - members.begin())].get<std::uint64_t>());
      }
      next = round + 1;
    }
  }
  CHECK(next == last + 1);
  CHECK((survivors_tokens.size() == 1 || !world.in_step));
  CHECK((*survivors_tokens.begin() > 0 || !world.in_step));
  CHECK(chaos.cuts() > 0);
  const Outcome outcome = outcome_of(cluster, run);
  std::printf("chaos: %lld s, %llu rounds, %zu links cut\n%s", static_cast<long long>(duration.count()),
              static_cast<unsigned long long>(last), chaos.cuts(), chaos.history().c_str());
  return outcome;
}

// Five islands from the beginning, to which nothing happens, until as many tokens are committed.
Outcome undisturbed(const World& world, std::uint64_t tokens) {
  Cluster cluster;
  for (const char* name : {"a", "b", "c", "d", "e"}) {
    cluster.start_island(name, world.environment, world.options);
  }
  const std::string run = cluster.submit(world.run_file);
  const bool there = Cluster::eventually(
      [&] {
        std::this_thread::sleep_for(std::chrono::seconds(1));
        return outcome_of(cluster, run).tokens >= tokens;
      },
      std::chrono::seconds(3600));
  INFO(cluster.run({"status", run}).out);
  REQUIRE(there);
  pause(cluster, run);
  return outcome_of(cluster, run);
}

}  // namespace

TEST_CASE("process: chaos for half a minute: no committed round is lost, everybody has the same bytes, and who is spared loses no step") {
  chaos(arithmetic_world(), std::chrono::seconds(number_from("ATOLL_CHAOS_SECONDS", 30)));
}

TEST_CASE("process: soak: chaos for ten minutes", "[.soak][chaos]") {
  chaos(arithmetic_world(), std::chrono::seconds(number_from("ATOLL_CHAOS_SECONDS", 600)));
}

TEST_CASE("process: soak: chaos over rounds that nobody waits for", "[.soak][chaos-unwaited]") {
  const std::string strategy = GENERATE("name = \"decoupled-diloco\"\nfragments = 2\nquorum = 1\n",
                                        "name = \"decoupled-diloco\"\nfragments = 2\nquorum = 1\nanchor = \"own\"\n",
                                        "name = \"eager-diloco\"\noverlap_steps = 10\n", "name = \"co2\"\noverlap_steps = 10\n");
  World world = arithmetic_world(strategy);
  world.in_step = false;
  INFO(strategy);
  chaos(world, std::chrono::seconds(number_from("ATOLL_CHAOS_SECONDS", 150)));
}

TEST_CASE("process: soak: after ten minutes of chaos a model has learnt what an undisturbed run learns from as many tokens",
          "[.soak][learns]") {
  const char* data = std::getenv("ATOLL_TEST_DATA");
  const std::filesystem::path text = std::filesystem::path(data == nullptr ? "" : data) / "tinyshakespeare" / "input.txt";
  const std::filesystem::path module = atl_test::built_in_trainer();
  if (!std::filesystem::exists(text) || !std::filesystem::exists(module)) {
    ATL_SKIP("no LibTorch, or ATOLL_TEST_DATA has no " << text);
  }
  const World world = language_world(module, text);
  const Outcome disturbed = chaos(world, std::chrono::seconds(number_from("ATOLL_CHAOS_SECONDS", 600)));
  const Outcome calm = undisturbed(world, disturbed.tokens);
  std::printf("loss %.4f after %llu tokens in %llu rounds of chaos, %.4f after %llu in %llu undisturbed ones: %+.2f %%\n", disturbed.loss,
              static_cast<unsigned long long>(disturbed.tokens), static_cast<unsigned long long>(disturbed.rounds), calm.loss,
              static_cast<unsigned long long>(calm.tokens), static_cast<unsigned long long>(calm.rounds),
              100 * (disturbed.loss / calm.loss - 1));
  CHECK(disturbed.loss < 1.01 * calm.loss);
}

}  // namespace of_chaos_test
