// Example run files as a user would submit them, made short: the built-in trainer and real agents.
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agent/storage/checkpoint.hpp"
#include "tests/places.hpp"
#include "tests/process/cluster.hpp"
#include "tests/skip.hpp"
#include "transport/base/own_disk.hpp"

namespace of_example_test {

using atl_test::Cluster;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

std::string with(std::string text, const std::string& line, const std::string& instead) {
  const std::size_t at = text.find(line);
  INFO("the example has no line '" << line << "'");
  REQUIRE(at != std::string::npos);
  return text.replace(at, line.size(), instead);
}

using Changes = std::vector<std::pair<std::string, std::string>>;

// Trains an example's run file, shortened and changed, on two islands with the built-in trainer; returns the run.
std::string train(Cluster& cluster, const std::string& example, const fs::path& module, const Changes& changes) {
  std::string file = atl_test::text_of(atl_test::source_folder() + "/examples/" + example);
  const Changes shorter = {{"set = \"text\"", "set = \"corpus\""},
                           {"width = 128", "width = 32"},
                           {"steps = 2000", "steps = 60"},
                           {"batch = 16", "batch = 2"},
                           {"sequence_length = 128", "sequence_length = 32"},
                           {"inner_steps = 30", "inner_steps = 12"}};
  for (const Changes& list : {shorter, changes}) {
    for (const auto& [line, instead] : list) {
      file = with(file, line, instead);
    }
  }
  for (const char* name : {"a", "b"}) {
    cluster.start_island(name, {{"ATOLL_TRAINER_MODULE", module.string()}});
  }
  const std::string run = cluster.submit(file);
  const atl_test::CommandResult waited = cluster.run({"wait", run, "--timeout", "120s"});
  INFO(waited.out << waited.err << cluster.logs());
  REQUIRE(waited.exit == 0);
  return run;
}

}  // namespace

TEST_CASE("process: examples/streaming-diloco-text.toml, shortened, trains two islands to the same digests") {
  const fs::path module = atl_test::built_in_trainer();
  if (!fs::exists(module)) {
    ATL_SKIP("built without LibTorch, so there is no " << module);
  }
  Cluster cluster;
  const std::string run =
      train(cluster, "streaming-diloco-text.toml", module, {{"max = 4", "max = 2"}, {"every_rounds = 30", "every_rounds = 5"}});
  INFO(cluster.logs());
  const json document = cluster.status(run)["run"];
  // Regular rounds start at 12, 16, 20, … before step 58, and three end the run.
  CHECK(document.value("round", 0) == 15);
  CHECK(document.value("outer_loss", 99.0) < document.value("initial_loss", 0.0) - 0.5);
  std::set<std::string> digests;
  std::set<std::string> files;
  for (const char* name : {"a", "b"}) {
    atl::CheckpointStore store =
        atl::CheckpointStore::open(atl::on_this_machine(cluster.state(name) / "runs" / run / "checkpoints")).value();
    const std::optional<atl::CheckpointMeta> meta = store.newest_good();
    REQUIRE(meta.has_value());
    CHECK(meta->round == atl::Round(15));
    digests.insert(atl::to_hex(meta->digest));
    files.insert(atl::to_hex(meta->outer()->sha256));
  }
  CHECK(digests.size() == 1);
  CHECK(files.size() == 1);
}

TEST_CASE("process: examples/noloco-text.toml, shortened, ends with one model of two islands, which is exported") {
  const fs::path module = atl_test::built_in_trainer();
  if (!fs::exists(module)) {
    ATL_SKIP("built without LibTorch, so there is no " << module);
  }
  Cluster cluster;
  const std::string run = train(cluster, "noloco-text.toml", module, {{"max = 8", "max = 2"}});
  INFO(cluster.logs());
  const json document = cluster.status(run)["run"];
  CHECK(document.value("round", 0) == 6);  // five in pairs, and the merge
  CHECK(document.value("outer_loss", 99.0) < document.value("initial_loss", 0.0));
  CHECK(document["consensus_round"].is_number());
  CHECK(cluster.run({"status", run}).out.find("spread ") != std::string::npos);
  const fs::path model = cluster.folder() / "model.safetensors";
  const atl_test::CommandResult exported = cluster.run({"export", run, "-o", model.string()});
  INFO(exported.err);
  CHECK(exported.exit == 0);
  CHECK(fs::exists(model));
}

}  // namespace of_example_test
