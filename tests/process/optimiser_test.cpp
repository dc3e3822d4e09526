// What a killed island has lost of its trainer: nothing with a checkpoint of every round, else the optimiser's steps since the newest one.
#include <sstream>

#include "tests/places.hpp"
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
  cluster.start_island(name, {{"ATOLL_TRAINER_MODULE", atl_test::built_in_trainer()}}, {"--data", "letters=" + text.string()});
}

// 0: none.
std::uint64_t newest_checkpoint(const std::filesystem::path& folder) {
  std::uint64_t newest = 0;
  std::error_code none;
  for (const std::filesystem::directory_entry& entry : std::filesystem::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") == std::string::npos) {
      newest = std::max<std::uint64_t>(newest, std::stoull(name));
    }
  }
  return newest;
}

// The run to its end; with `kill_after`, b's agent (and with it its trainer) is killed once that round is committed and has had the time
// for its checkpoint, and started again. "struck": the round that was the newest one then; "kept": the one of b's newest checkpoint.
json finished(Cluster& cluster, const std::filesystem::path& text, const std::string& name, unsigned checkpoint_every,
              std::uint64_t kill_after = 0) {
  std::string toml = run_file(name, checkpoint_every);
  toml.replace(toml.find("corpus"), 6, "letters");
  const std::string run = cluster.submit(toml);
  const std::filesystem::path checkpoints = cluster.state("b") / "runs" / run / "checkpoints";
  std::uint64_t struck = 0;
  std::uint64_t kept = 0;
  if (kill_after > 0) {
    REQUIRE(Cluster::eventually([&] {
      return cluster.round_of(run) >= kill_after && newest_checkpoint(checkpoints) >= kill_after - kill_after % checkpoint_every;
    }));
    cluster.islands["b"].signal(SIGKILL);
    CHECK(cluster.islands["b"].wait() == 128 + SIGKILL);
    struck = cluster.round_of(run);
    kept = newest_checkpoint(checkpoints);
    start(cluster, "b", text);
  }
  const atl_test::CommandResult waited = cluster.run({"wait", run, "--timeout", "100s"});
  INFO(waited.err << cluster.logs());
  REQUIRE(waited.exit == 0);
  json document = cluster.status(run);
  document["struck"] = struck;
  document["kept"] = kept;
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
  const json undisturbed = finished(cluster, text, "undisturbed", 3);
  CHECK(undisturbed["run"]["round"] == kRounds);
  // On a machine that stands still now and then, b may be killed in the moment between a commit and its checkpoint: once more, then.
  json every = finished(cluster, text, "every-round", 1, 4);
  for (int again = 0; again < 3 && every["kept"] != every["struck"]; ++again) {
    every = finished(cluster, text, "every-round", 1, 4);
  }
  REQUIRE(every["kept"] == every["struck"]);
  CHECK(every["run"]["round"] == kRounds);
  CHECK(every["run"]["digest"] == undisturbed["run"]["digest"]);
  const json third = finished(cluster, text, "every-third-round", 3, 4);
  CHECK(third["run"]["round"] == kRounds);
  // The other island went on where it was: the samples of every round count once, and both hold the same result.
  CHECK(third["run"]["tokens"] == undisturbed["run"]["tokens"]);
  CHECK(std::abs(third["run"]["outer_loss"].get<double>() - undisturbed["run"]["outer_loss"].get<double>()) < 0.1);
  if (third["struck"] == 4 || third["struck"] == 5) {  // not right after the checkpoint of round 6
    CHECK(third["run"]["digest"] != undisturbed["run"]["digest"]);
  }
}
