// A run that begins with what another has come to, on islands that have it and on one that has it not.
#include "agent/storage/checkpoint.hpp"
#include "tests/process/cluster.hpp"
#include "transport/base/own_disk.hpp"

namespace of_given_parameters_test {

using atl_test::Cluster;
namespace fs = std::filesystem;

namespace {

std::string run_file(const std::string& name, const std::string& islands, const std::string& model) {
  return "[run]\nname = \"" + name + "\"\nseed = 11\n[data]\nset = \"corpus\"\n" + model +
         "[training]\nsteps = 24\n[strategy]\ninner_steps = 6\n[islands]\nmin = 2\nmax = 2\nnames = [" + islands +
         "]\n[checkpoint]\nevery_rounds = 1\nkeep = 10\n";
}

std::vector<float> parameters_of(const Cluster& cluster, const std::string& island, const std::string& run, unsigned round) {
  const fs::path file = cluster.state(island) / "runs" / run / "checkpoints" / std::to_string(round) / atl::kOuterFile;
  INFO(file.string());
  REQUIRE(fs::exists(file));
  const atl::SafetensorsFile opened = atl::SafetensorsFile::open(file).value();
  std::vector<float> all;
  for (const char* name : {"embedding", "head", "layer"}) {
    const auto values = opened.floats(name).value();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

}  // namespace

TEST_CASE("process: a run begins with what another came to, and an island that has it not copies it from one that has") {
  Cluster cluster;
  for (const char* name : {"a", "b", "c"}) {
    cluster.start_island(name);
  }
  const auto completes = [&](const std::string& run) {
    const atl_test::CommandResult waited = cluster.run({"wait", run, "--timeout", "120s"});
    INFO(waited.out << waited.err << cluster.logs());
    REQUIRE(waited.exit == 0);
  };
  const std::string first = cluster.submit(run_file("first", "\"a\", \"b\"", ""));
  completes(first);
  const std::vector<float> end = parameters_of(cluster, "a", first, 4);

  const std::string second = cluster.submit(run_file("second", "\"b\", \"c\"", "[model]\nfrom = \"run:first\"\n"));
  completes(second);
  CHECK(parameters_of(cluster, "b", second, 0) == end);
  CHECK(parameters_of(cluster, "b", second, 4) != end);
  CHECK(parameters_of(cluster, "c", second, 4) == parameters_of(cluster, "b", second, 4));
  bool told = false;
  for (const nlohmann::json& event : cluster.events(second)) {
    told = told || event.value("kind", "") == "parameters_lacking";
  }
  CHECK(told);

  const std::string third = cluster.submit(run_file("third", "\"a\", \"c\"", "[model]\nfrom = \"run:second\"\n"));
  completes(third);
  CHECK(parameters_of(cluster, "a", third, 4) == parameters_of(cluster, "c", third, 4));

  const fs::path file = cluster.folder() / "none.toml";
  std::ofstream(file) << run_file("fourth", "\"a\", \"b\"", "[model]\nfrom = \"run:nobody\"\n");
  const atl_test::CommandResult refused = cluster.run({"submit", file.string()});
  CHECK(refused.exit == 4);
  CHECK(refused.err.find("model.from = \"run:nobody\"") != std::string::npos);
  // Nobody has them: the run waits, and says for what.
  std::ofstream(file) << run_file("fourth", "\"a\", \"b\"",
                                  "[model]\nfrom = \"elsewhere.safetensors\"\nsha256 = \"" + std::string(64, '0') + "\"\n");
  const atl_test::CommandResult submitted = cluster.run({"submit", file.string(), "-q"});
  REQUIRE(submitted.exit == 0);
  const std::string fourth = submitted.out.substr(0, submitted.out.find('\n'));
  const bool waits = Cluster::eventually([&] {
    return cluster.status(fourth)["run"].value("reason", "").find("waits for an island that has the parameters") != std::string::npos;
  });
  INFO(cluster.status(fourth).dump() << cluster.logs());
  CHECK(waits);
}

}  // namespace of_given_parameters_test
