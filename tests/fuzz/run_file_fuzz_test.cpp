// Mutated run files and specs: an error or a valid spec, never a crash, and every valid spec survives JSON.
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/run_file/run_file.hpp"
#include "strategies/specification/run_rules.hpp"
#include "tests/catch.hpp"
#include "tests/places.hpp"
#include "transport/base/rng.hpp"

using namespace atl;

namespace {

std::vector<std::string> example_texts() {
  std::vector<std::string> texts;
  for (const auto& entry : std::filesystem::directory_iterator(atl_test::source_folder() + "/examples")) {
    if (entry.path().extension() == ".toml") {
      std::stringstream text;
      text << std::ifstream(entry.path()).rdbuf();
      texts.push_back(text.str());
    }
  }
  return texts;
}

constexpr std::array<std::string_view, 24> kPieces = {"[",
                                                      "]",
                                                      "[[",
                                                      "]]",
                                                      "{",
                                                      "}",
                                                      "=",
                                                      "\"",
                                                      "\"\"\"",
                                                      "'''",
                                                      "\n",
                                                      "\0",
                                                      "\\u",
                                                      "\\",
                                                      "1e999",
                                                      "0x7fffffffffffffff",
                                                      "-1",
                                                      "nan",
                                                      "inf",
                                                      ".",
                                                      "#",
                                                      "\xff",
                                                      "\xf0\x9f\x98\x80",
                                                      "1979-05-27T07:32:00Z"};

std::string mutate(std::string text, Rng& rng) {
  const std::uint64_t changes = 1 + rng.below(6);
  for (std::uint64_t i = 0; i < changes && !text.empty(); ++i) {
    const std::size_t at = rng.below(text.size());
    switch (rng.below(6)) {
      case 0:
        text[at] = static_cast<char>(rng.below(256));
        break;
      case 1:
        text.erase(at, 1 + rng.below(20));
        break;
      case 2:
        text.insert(at, kPieces[rng.below(kPieces.size())]);
        break;
      case 3:
        text.insert(at, text.substr(rng.below(text.size()), rng.below(60)));
        break;
      case 4:
        text.resize(at);
        break;
      default:
        std::swap(text[at], text[rng.below(text.size())]);
        break;
    }
  }
  return text;
}

}  // namespace

TEST_CASE("mutated run files give an error or a spec, never a crash") {
  const std::vector<std::string> texts = example_texts();
  REQUIRE_FALSE(texts.empty());
  std::size_t valid = 0;
  std::size_t invalid = 0;
  for (std::uint64_t seed = 0; seed < 8000; ++seed) {
    Rng rng(seed, stream_of("run-file"));
    const std::string text = mutate(texts[rng.below(texts.size())], rng);
    const RunFile file = parse_run_file(text, "fuzz");
    const std::string said = problems_text(file);
    INFO("seed " << seed);
    if (file.valid()) {
      ++valid;
      REQUIRE(check_run_spec(file.spec));
      const Result<RunSpec> back = run_spec_from_json(to_json(file.spec));
      REQUIRE(back);
      REQUIRE(*back == file.spec);
    } else {
      ++invalid;
      REQUIRE_FALSE(said.empty());
    }
  }
  CHECK(valid > 100);
  CHECK(invalid > 1000);
}

TEST_CASE("mutated specs in JSON give an error or the same bytes, never a crash") {
  const std::vector<std::string> texts = example_texts();
  const RunFile file = parse_run_file(texts.front(), "example");
  REQUIRE(file.valid());
  const std::string json = to_json(file.spec);
  std::size_t refused = 0;
  for (std::uint64_t seed = 0; seed < 8000; ++seed) {
    Rng rng(seed, stream_of("run-spec"));
    const Result<RunSpec> spec = run_spec_from_json(mutate(json, rng));
    INFO("seed " << seed);
    if (spec) {
      REQUIRE(run_spec_from_json(to_json(*spec)).value() == *spec);
    } else {
      ++refused;
      REQUIRE(spec.error().code == Code::invalid_argument);
    }
  }
  CHECK(refused > 1000);
}
