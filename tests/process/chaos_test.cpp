// Chaos on real processes: agents, trainers and the coordinator are killed and stopped at random for a while, an island joins in the middle; no committed
// round is lost, everybody has the same bytes, and once left alone the run goes on.
//
// ATOLL_CHAOS_SECONDS: how long (60); ATOLL_CHAOS_SEED: which history (time decides the rest). The soak is the same for ten minutes: ctest -L soak.
#include <cstdlib>
#include <set>

#include "agent/checkpoint.hpp"
#include "tests/process/cluster.hpp"
#include "transport/base/rng.hpp"

using atl_test::Cluster;
using nlohmann::json;
using std::chrono::milliseconds;

namespace {

const std::map<std::string, std::string> kSlow = {{"ATOLL_TEST_STEP_MS", "20"}};

const char* const kRun =
    "[run]\nname = \"chaos\"\n[model]\nlayers = 1\nwidth = 32\nheads = 2\n[data]\nset = \"corpus\"\n[training]\nsteps = 10000000\nbatch = 4\nsequence_length = 16\n"
    "warmup_steps = 1\n[strategy]\nname = \"diloco\"\ninner_steps = 10\n[islands]\nmin = 1\nmax = 5\ndeadline = \"20s\"\n[checkpoint]\nevery_rounds = 5\n";

int number_from(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoi(text);
}

class Chaos {
 public:
  Chaos(Cluster& cluster, std::string run, std::uint64_t seed) : cluster_(cluster), run_(std::move(run)), rng_(seed, atl::stream_of("chaos")) {}

  void run_for(std::chrono::seconds duration) {
    const auto end = std::chrono::steady_clock::now() + duration;
    const auto half = std::chrono::steady_clock::now() + duration / 2;
    while (std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(milliseconds(1000 + static_cast<int>(rng_.below(2000))));
      if (cluster_.islands.count("e") == 0 && std::chrono::steady_clock::now() >= half) {
        cluster_.start_island("e", kSlow);  // somebody new
      }
      strike();
    }
  }
  [[nodiscard]] const std::string& history() const { return history_; }

 private:
  // Somebody is always left who has the run's state: chaos is no proof of what cannot be had.
  bool enough_active() {
    const json status = cluster_.status(run_);
    return status.contains("run") && status["run"].value("members", 0) >= 3;
  }
  std::string somebody() {
    auto island = cluster_.islands.begin();
    std::advance(island, static_cast<std::ptrdiff_t>(rng_.below(cluster_.islands.size())));
    return island->first;
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
        told("trainer of " + name + " killed");
        ::kill(trainers.front(), SIGKILL);
      }
    } else if (!enough_active()) {
      told("too few are active to lose one more");
    } else if (kind < 8) {
      told("agent " + name + " killed");
      cluster_.islands[name].signal(SIGKILL);
      (void)cluster_.islands[name].wait();
      std::this_thread::sleep_for(milliseconds(rng_.below(1500)));
      cluster_.start_island(name, kSlow);
    } else {
      told("agent " + name + " stopped for a while");
      cluster_.islands[name].signal(SIGSTOP);
      std::this_thread::sleep_for(milliseconds(300 + static_cast<int>(rng_.below(7000))));
      cluster_.islands[name].signal(SIGCONT);
    }
  }

  Cluster& cluster_;
  std::string run_;
  atl::Rng rng_;
  std::string history_;
};

void chaos(std::chrono::seconds duration) {
  Cluster cluster;
  for (const char* name : {"a", "b", "c", "d"}) {
    cluster.start_island(name, kSlow);
  }
  const std::string run = cluster.submit(kRun);
  REQUIRE(Cluster::eventually([&] { return cluster.round_of(run) >= 2; }));
  const auto seed = static_cast<std::uint64_t>(number_from("ATOLL_CHAOS_SEED", 1));
  Chaos chaos(cluster, run, seed);
  chaos.run_for(duration);
  INFO("seed " << seed << "\n" << chaos.history());

  // Left alone: everybody comes back, and rounds go on with all five. One that was killed a moment ago may still count in the round that it had
  // contributed to, so it takes three such rounds.
  const std::uint64_t left_alone = cluster.round_of(run);
  const auto everybody = [&] {
    std::size_t whole = 0;
    for (const json& event : cluster.events(run)) {
      if (event.value("kind", "") == "round_committed" && event["round"] > left_alone) {
        whole = event["fields"]["members"].size() == 5 ? whole + 1 : 0;
      }
    }
    return whole >= 3;
  };
  const bool healed = Cluster::eventually(everybody, std::chrono::seconds(300));
  INFO(cluster.run({"status", run}).out << cluster.logs().substr(0, 200'000));
  REQUIRE(healed);

  // The same bytes everywhere, at the round after which it is paused.
  REQUIRE(cluster.run({"pause", run}).exit == 0);
  REQUIRE(Cluster::eventually([&] { return cluster.status(run)["run"].value("state", "") == "paused"; }, std::chrono::seconds(120)));
  const std::uint64_t last = cluster.round_of(run);
  std::set<std::string> files;
  for (const char* name : {"a", "b", "c", "d", "e"}) {
    atl::CheckpointStore store = atl::CheckpointStore::open(cluster.state(name) / "runs" / run / "checkpoints").value();
    const std::optional<atl::CheckpointMeta> meta = store.newest_good();
    REQUIRE(meta);
    INFO(name);
    CHECK(meta->round == atl::Round(last));
    files.insert(atl::to_hex(meta->outer()->sha256) + atl::to_hex(meta->chain));
  }
  CHECK(files.size() == 1);

  // Every round once and in order; none was ever taken back.
  std::uint64_t next = 0;
  for (const json& event : cluster.events(run)) {
    const std::string kind = event.value("kind", "");
    CHECK(kind != "rolled_back");
    if (kind == "round_committed") {
      CHECK(event["round"] == next);
      ++next;
    }
  }
  CHECK(next == last + 1);
  std::printf("chaos: %lld s, %llu rounds\n%s", static_cast<long long>(duration.count()), static_cast<unsigned long long>(last), chaos.history().c_str());
}

}  // namespace

TEST_CASE("process: chaos for a minute: no committed round is lost, and everybody has the same bytes") {
  chaos(std::chrono::seconds(number_from("ATOLL_CHAOS_SECONDS", 60)));
}

TEST_CASE("process: soak: chaos for ten minutes", "[.soak]") { chaos(std::chrono::seconds(number_from("ATOLL_CHAOS_SECONDS", 600))); }
