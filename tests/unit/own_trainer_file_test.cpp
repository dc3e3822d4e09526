// [trainer] of a run file: what is handed over, what is refused, and what follows where there is no [model].
#include <algorithm>

#include "agent/engine/built_in_model.hpp"
#include "agent/engine/parameter_layout.hpp"
#include "cli/run_file/run_file.hpp"
#include "strategies/specification/model_kind.hpp"
#include "tests/catch.hpp"

namespace of_own_trainer_file_test {

using namespace atl;

namespace {

RunFile file_of(const std::string& trainer, const std::string& rest = "") {
  return parse_run_file("[run]\nname = \"x\"\n[training]\nsteps = 1000\n" + rest + "[trainer]\n" + trainer, "run.toml");
}

// The first problem with a file, with its place.
std::string problem(const RunFile& file) { return file.valid() ? "" : problems_text(file); }

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("settings of a trainer come through with their types, in the file, as JSON and back") {
  const RunFile file = file_of(
      "name = \"gpt\"\nranks = 8\nstart_within = \"30m\"\nparameters = \"1.3B\"\ntokens_per_sample = 256\nsame_code = true\n"
      "[trainer.settings]\nlayers = 6\nrate = 3e-4\nnegative = -5\ntied = true\nnames = [\"a\", 1, [2.5]]\n[trainer.settings.data]\npath = "
      "\"/x\"\n");
  INFO(problem(file));
  REQUIRE(file.valid());
  CHECK(file.spec.trainer.settings == R"({"data":{"path":"/x"},"layers":6,"names":["a",1,[2.5]],"negative":-5,"rate":0.0003,"tied":true})");
  CHECK(tokens_per_sequence(file.spec) == 256);
  CHECK(model_parameter_bytes(file.spec) == 4 * 1.3e9);
  CHECK(file.spec.rounds == 10);
  const Result<RunSpec> back = run_spec_from_json(to_json(file.spec));
  REQUIRE(back);
  CHECK(*back == file.spec);
}

TEST_CASE("what a run file says wrong about a trainer is refused where it stands") {
  CHECK(contains(problem(file_of("ranks = 2\n")), "5:2: missing key \"name\" in [trainer]"));
  CHECK(contains(problem(file_of("name = \"gpt\"\n", "[model]\nlayers = 2\n")), "6:1: the model is the trainer's own"));
  CHECK(contains(problem(file_of("name = \"../x\"\n")), "6:8: "));
  CHECK(contains(problem(file_of("name = \"gpt\"\nparameters = \"many\"\n")), "1.3B"));
  CHECK(contains(problem(file_of("name = \"gpt\"\nparameters = \"1T\"\n")), "more than run.arena_limit"));
  CHECK(contains(problem(file_of("name = \"gpt\"\n[trainer.settings]\nwhen = 2024-01-01\n")), "8:8: settings hold a date"));
  CHECK(contains(problem(file_of("name = \"gpt\"\n[trainer.settings]\nx = inf\n")), "not finite"));
  CHECK(contains(problem(file_of("name = \"gpt\"\n[trainer.settings]\nx = [[[[[[[[[1]]]]]]]]]\n")), "nested deeper"));
  CHECK(contains(problem(file_of("name = \"gpt\"\n[trainer.settings]\nx = \"" + std::string(70'000, 'x') + "\"\n")), "at most 65536"));
  CHECK(contains(problem(file_of("name = \"gpt\"\nsettings = 3\n")), "settings is an integer here, but must be a table"));
  CHECK(contains(problem(file_of("name = \"gpt\"\n", "[strategy]\nname = \"streaming-diloco\"\n")),
                 "only the trainer knows how many layers"));
  CHECK(contains(problem(file_of("name = \"gpt\"\n", "[strategy]\nname = \"decentralized-diffusion\"\n")), "cannot do the tasks"));
}

TEST_CASE("tokens of a sample that cannot be are refused in one line where they stand") {
  for (const char* value : {"0", "-1", "1000000001"}) {
    const std::string said = problem(file_of("name = \"gpt\"\ntokens_per_sample = " + std::string(value) + "\n"));
    INFO(said);
    CHECK(contains(said, "7:21: " + std::string(value) + " is out of range: tokens_per_sample is an integer from 1 to 1000000000"));
    CHECK(std::ranges::count(said, '\n') <= 1);
  }
  CHECK(contains(problem(file_of("name = \"gpt\"\ntokens_per_sample = 2.5\n")), "7:21: tokens_per_sample is a "));
  CHECK(contains(problem(file_of("name = \"gpt\"\ntokens_per_sample = \"many\"\n")), "7:21: tokens_per_sample is a "));
}

TEST_CASE("the rounds of a trainer of one's own follow from the run file alone") {
  const auto fragments = [](const std::string& strategy) {
    const RunFile file = file_of("name = \"gpt\"\nparameters = \"1000\"\n", "[strategy]\n" + strategy);
    INFO(problem(file));
    REQUIRE(file.valid());
    return fragment_values(file.spec, compose(file.spec.strategy)->fragments).value();
  };
  CHECK(fragments("name = \"diloco\"\n") == std::vector<std::uint64_t>{1000});
  CHECK(fragments("name = \"streaming-diloco\"\nfragments = 3\n") == std::vector<std::uint64_t>(4, 250));
  CHECK(fragments("name = \"streaming-diloco\"\ngrouping = \"balanced\"\nfragments = 4\n") == std::vector<std::uint64_t>(4, 250));
}

TEST_CASE("counts of parameters are read as people write them") {
  CHECK(parse_count("1.3B") == 1'300'000'000);
  CHECK(parse_count("350M") == 350'000'000);
  CHECK(parse_count("150k") == 150'000);
  CHECK(parse_count("12_000") == 12'000);
  CHECK(parse_count("7e9") == 7'000'000'000);
  for (const char* text : {"", "B", "0", "-1", "1.3X", "1e30", "nan", "0.2"}) {
    INFO(text);
    CHECK_FALSE(parse_count(text).has_value());
  }
}

TEST_CASE("two manifests differ first in a name, a shape, a block, their length or their description") {
  using island_link::Manifest;
  const Manifest run{{{"a", {2, 3}, 0}, {"b", {4}, 1}}, "base"};
  CHECK(first_difference(run, run, "here", "in the run").empty());
  const auto difference = [&run](const Manifest& ours) { return first_difference(ours, run, "on lyon", "in the run"); };
  CHECK(difference({{{"a", {2, 3}, 0}, {"c", {5}, 1}}, "base"}) == "parameter 1 is 'c' (5) on lyon, and 'b' (4) in the run");
  CHECK(difference({{{"a", {3, 2}, 0}, {"b", {4}, 1}}, "base"}) == "parameter 0 is 'a' (3 × 2) on lyon, and 'a' (2 × 3) in the run");
  CHECK(contains(difference({{{"a", {2, 3}, 1}, {"b", {4}, 1}}, "base"}), "block 1) on lyon, and 'a' (2 × 3, block 0)"));
  CHECK(contains(difference({{{"a", {2, 3}, 0, "mean"}, {"b", {4}, 1}}, "base"}),
                 "block 0, a buffer: mean) on lyon, and 'a' (2 × 3, block 0)"));
  CHECK(difference({{{"a", {2, 3}, 0}}, "base"}) == "parameter 1, 'b' (4), is missing on lyon");
  CHECK(contains(difference({run.parameters, "other"}), "describes its model as \"other\" on lyon, and as \"base\" in the run"));
}

}  // namespace of_own_trainer_file_test
