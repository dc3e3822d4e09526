// Mutated fault files and what agents are handed of them: an error or faults, never a crash.
#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>

#include "cli/run_file/fault_file.hpp"
#include "tests/catch.hpp"
#include "tests/places.hpp"
#include "transport/base/rng.hpp"

using namespace atl;

namespace {

constexpr std::array<std::string_view, 16> kPieces = {"[[fault]]\n", "[",   "]]",     "{",     "}",  "=",    "\"", "-1",
                                                      "1e999",       "nan", "\"2s\"", "round", "do", "\xff", "\n", "1979-05-27"};

std::string mutate(std::string text, Rng& rng) {
  const std::uint64_t changes = 1 + rng.below(5);
  for (std::uint64_t i = 0; i < changes && !text.empty(); ++i) {
    const std::size_t at = rng.below(text.size());
    switch (rng.below(4)) {
      case 0:
        text[at] = static_cast<char>(rng.below(256));
        break;
      case 1:
        text.erase(at, 1 + rng.below(20));
        break;
      case 2:
        text.insert(at, kPieces[rng.below(kPieces.size())]);
        break;
      default:
        text.insert(at, text.substr(rng.below(text.size()), rng.below(60)));
        break;
    }
  }
  return text;
}

}  // namespace

TEST_CASE("mutated fault files give an error or faults that reach the agent as they are, never a crash") {
  std::stringstream example;
  example << std::ifstream(atl_test::source_folder() + "/examples/faults/three-islands.toml").rdbuf();
  const FaultedRun run{{"island-1", "island-2", "island-3"}, 20};
  std::size_t valid = 0;
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    Rng rng(seed, stream_of("fault-file"));
    const FaultFile file = parse_fault_file(mutate(example.str(), rng), "fuzz", run);
    INFO("seed " << seed);
    REQUIRE(file.valid() == problems_text(file.source, file.problems).empty());
    if (!file.valid()) {
      continue;
    }
    ++valid;
    std::vector<agent::Fault> faults;
    for (const ScriptedFault& scripted : file.faults) {
      REQUIRE(std::find(run.islands.begin(), run.islands.end(), scripted.island) != run.islands.end());
      faults.push_back(scripted.fault);
    }
    const std::string text = agent::faults_text(faults);
    const auto back = agent::parse_faults(text);
    REQUIRE(back);
    REQUIRE(agent::faults_text(*back) == text);
    (void)agent::parse_faults(mutate(text, rng));
    (void)agent::parse_strike(mutate("rehearsal-strike 1 2 3", rng));
  }
  CHECK(valid > 100);
  CHECK(valid < 4000);
}
