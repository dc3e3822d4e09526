// What a killed island has lost of its trainer: nothing with a checkpoint of every round, else the optimiser's steps since the newest one.
#ifdef ATOLL_TORCH_TRAINER

#include <sstream>

#include "tests/process/cluster.hpp"

using atl_test::Cluster;
using nlohmann::json;

namespace {

constexpr unsigned kRounds = 9;
constexpr unsigned kPeriod = 10;

std::string run_file(const std::string& name, unsigned checkpoint_every) {
  std::ostringstream text;
  text << "[run]\nname = \"" << name
       << "\"\nseed = 3\n[model]\nlayers = 1\nwidth = 32\nheads = 2\n[data]\nset = \"corpus\"\n[training]\nsteps = " << kRounds * kPeriod
       << "\nbatch = 4\nsequence_length = 16\nwarmup_steps = 5\nmax_steps_per_second = 20\n"
       << "[strategy]\nname = \"diloco\"\ninner_steps = " << kPeriod << "\n[islands]\nmin = 2\nmax = 2\ndeadline = \"60s\"\n"
       << "[checkpoint]\nevery_rounds = " << checkpoint_every << "\n";
  return text.str();
}

void start(Cluster& cluster, const std::string& name, const std::filesystem::path& text) {
  cluster.start_island(name, {{"ATOLL_TRAINER_MODULE", ATOLL_TORCH_TRAINER}}, {"--data", "letters=" + text.string()});
}

// The run to its end; with `kill_after`, b's agent (and with it its trainer) is killed once that round is committed, and started again.
json finished(Cluster& cluster, const std::filesystem::path& text, const std::string& file, std::uint64_t kill_after = 0) {
  std::string toml = file;
  toml.replace(toml.find("corpus"), 6, "letters");
  const std::string run = cluster.submit(toml);
  std::uint64_t struck = 0;
  if (kill_after > 0) {
    REQUIRE(Cluster::eventually([&] { return cluster.round_of(run) >= kill_after; }));
    cluster.islands["b"].signal(SIGKILL);
    CHECK(cluster.islands["b"].wait() == 128 + SIGKILL);
    struck = cluster.round_of(run);
    start(cluster, "b", text);
  }
  const atl_test::CommandResult waited = cluster.run({"wait", run, "--timeout", "100s"});
  INFO(waited.err << cluster.logs());
  REQUIRE(waited.exit == 0);
  json document = cluster.status(run);
  document["struck"] = struck;
  return document;
}

}  // namespace

TEST_CASE("process: a killed island comes back to the same bytes with a checkpoint of every round, else with an older optimiser") {
  const atl_test::TemporaryFolder folder;
  std::string letters;
  for (unsigned i = 0; i < 60'000; ++i) {
    letters += static_cast<char>('a' + (i * i + i / 7) % 23);
  }
  const std::filesystem::path text = folder.write("letters.txt", letters);
  Cluster cluster;
  start(cluster, "a", text);
  start(cluster, "b", text);
  const json undisturbed = finished(cluster, text, run_file("undisturbed", 3));
  CHECK(undisturbed["run"]["round"] == kRounds);
  const json every = finished(cluster, text, run_file("every-round", 1), 4);
  CHECK(every["run"]["round"] == kRounds);
  CHECK(every["run"]["digest"] == undisturbed["run"]["digest"]);
  const json third = finished(cluster, text, run_file("every-third-round", 3), 4);
  CHECK(third["run"]["round"] == kRounds);
  // The other island went on where it was: the samples of every round count once, and both hold the same result.
  CHECK(third["run"]["tokens"] == undisturbed["run"]["tokens"]);
  CHECK(std::abs(third["run"]["outer_loss"].get<double>() - undisturbed["run"]["outer_loss"].get<double>()) < 0.1);
  if (third["struck"] == 4 || third["struck"] == 5) {  // not right after the checkpoint of round 6
    CHECK(third["run"]["digest"] != undisturbed["run"]["digest"]);
  }
}

#endif  // ATOLL_TORCH_TRAINER
