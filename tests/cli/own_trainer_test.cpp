// Commands on run files that name a trainer of one's own.
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/run_file/run_file.hpp"
#include "strategies/codec.hpp"
#include "tests/catch.hpp"
#include "tests/cli/command_call.hpp"
#include "tests/cli/pages.hpp"
#include "tests/temporary_folder.hpp"

namespace of_own_trainer_test {

using namespace atl;

namespace {

std::string file_with(const atl_test::TemporaryFolder& folder, const std::string& trainer) {
  const std::filesystem::path path = folder.path() / "run.toml";
  std::ofstream(path) << "[run]\nname = \"x\"\n[training]\nsteps = 1000\n[trainer]\nname = \"gpt\"\n" << trainer;
  return path.string();
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("validate and plan count the parameters that [trainer] says, and plan asks for them") {
  const atl_test::TemporaryFolder folder;
  const Called valid = call({"validate", file_with(folder, "parameters = \"2M\"\n")});
  INFO(valid.out << valid.err);
  CHECK(valid.exit == 0);
  CHECK(contains(valid.out + valid.err, "2.0 M parameters of trainer gpt"));
  const Called large = call({"validate", file_with(folder, "parameters = \"1.3B\"\ntokens_per_sample = 256\n")});
  CHECK(
      contains(large.out, "1300.0 M parameters of trainer gpt, contributions of 5.2 GB, an arena of 5.2 GB, 256 tokens a sample, 1 to 64"));
  const Called in_json = call({"validate", "-o", "json", file_with(folder, "parameters = \"2M\"\n[strategy]\ncodec = \"int8\"\n")});
  const nlohmann::json document = nlohmann::json::parse(in_json.out)["files"][0];
  CHECK(document["parameters"] == 2'000'000);
  CHECK(document["contribution_bytes"] == encoded_bytes({CodecKind::int8, 256}, 2'000'000));
  const Called silent = call({"validate", file_with(folder, "")});
  CHECK(contains(silent.out, "parameters of trainer gpt, 1 token a sample"));
  const std::vector<std::string> islands = {"--island", "a=100ms,20mbit", "--island", "b=100ms,20mbit", "--agent-ns", "1,1"};
  std::vector<std::string> plan = {"plan", file_with(folder, "parameters = \"2M\"\n")};
  plan.insert(plan.end(), islands.begin(), islands.end());
  const Called planned = call(plan);
  INFO(planned.out << planned.err);
  CHECK(planned.exit == 0);
  CHECK(contains(planned.out, "2.00 M parameters"));
  plan[1] = file_with(folder, "");
  const Called unknown = call(plan);
  CHECK(unknown.exit == 2);
  CHECK(contains(unknown.err, "[trainer] parameters = \"1.3B\""));
}

TEST_CASE("a command in a run file is for local alone, and local needs one") {
  const atl_test::TemporaryFolder folder;
  const Called submitted = call({"submit", file_with(folder, "command = \"python3 train.py\"\n")});
  CHECK(submitted.exit == 2);
  CHECK(contains(submitted.err, "--trainer gpt='python3 train.py'"));
  const Called local = call({"local", file_with(folder, ""), "--state", (folder.path() / "state").string()});
  INFO(local.err);
  CHECK(local.exit == 2);
  CHECK(contains(local.err, "no program is given for trainer gpt"));
  const std::vector<std::string> run = {"local", file_with(folder, ""), "--state", (folder.path() / "state").string(), "--trainer"};
  std::vector<std::string> missing = run;
  missing.emplace_back("gpt=./nowhere");
  CHECK(call(missing).exit == 4);
  std::vector<std::string> form = run;
  form.emplace_back("gpt");
  CHECK(contains(call(form).err, "NAME=COMMAND"));
  CHECK_FALSE(std::filesystem::exists(folder.path() / "state"));
}

TEST_CASE("given parameters that are not there, have another digest or are another model's are refused before anything is started") {
  const atl_test::TemporaryFolder folder;
  const auto started = [&folder](const std::string& model) {
    const std::filesystem::path path = folder.path() / "run.toml";
    std::ofstream(path) << "[run]\nname = \"x\"\n[training]\nsteps = 1000\n[data]\nfiles = [\"run.toml\"]\n[model]\n" << model;
    return call({"local", path.string(), "--state", (folder.path() / "state").string()});
  };
  const Called missing = started("from = \"base.safetensors\"\n");
  CHECK(missing.exit == 4);
  CHECK(contains(missing.err, "base.safetensors (model.from) is not on this machine: put it there, or give model.sha256"));
  const std::string header = R"({"embedding.weight":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  const std::string length(1, static_cast<char>(header.size()));
  std::ofstream(folder.path() / "base.safetensors", std::ios::binary) << length << std::string(7, '\0') << header << std::string(4, '\0');
  const Called other = started("from = \"base.safetensors\"\nsha256 = \"" + std::string(64, '0') + "\"\n");
  CHECK(other.exit == 2);
  CHECK(contains(other.err, "base.safetensors (model.from) has SHA-256 "));
  CHECK(contains(other.err, ", and the run file says " + std::string(64, '0')));
  const Called unfit = started("from = \"base.safetensors\"\n");
  CHECK(unfit.exit == 2);
  CHECK(contains(unfit.err, "model.from: " + (folder.path() / "base.safetensors").string() + ": it"));
  CHECK((contains(unfit.err, "it has no tensor '") || contains(unfit.err, "its tensor is 1, and the model's '")));
  CHECK_FALSE(std::filesystem::exists(folder.path() / "state"));
}

TEST_CASE("what an agent's owner writes wrong about a trainer is a usage error before anything is started") {
  const atl_test::TemporaryFolder folder;
  const std::string state = (folder.path() / "state").string();
  const Called missing = call({"agent", "--state", state, "--trainer", "gpt=/no/such/program"});
  CHECK(missing.exit == 4);
  CHECK(contains(missing.err, "there is no program /no/such/program"));
  const Called form = call({"agent", "--state", state, "--trainer", "gpt"});
  CHECK(form.exit == 2);
  CHECK(contains(form.err, "NAME=COMMAND"));
}

TEST_CASE("the run file on the page about trainers of one's own is one") {
  const std::string page = pages::file_text(pages::kSource / "docs/own-trainer.md");
  const std::size_t begin = page.find("```toml\n") + 8;
  const RunFile file = parse_run_file(page.substr(begin, page.find("```", begin) - begin), "page");
  INFO(problems_text(file));
  CHECK(file.valid());
  CHECK(file.spec.trainer.name == "gpt");
}

}  // namespace of_own_trainer_test
