// Mutated island link messages give an error or a message, never a crash.
#include <string>

#include "agent/island_link/messages.hpp"
#include "tests/catch.hpp"
#include "transport/base/rng.hpp"

using namespace atl;
using namespace atl::island_link;

namespace {

std::string mutate(std::string text, Rng& rng) {
  static const std::string kPieces[] = {"null",     "-1",   "1e999",     "18446744073709551616", "\"\\ud800\"", "[[[[", "}",
                                        "\xff\xfe", "true", "{\"type\":"};
  const std::uint64_t changes = 1 + rng.below(4);
  for (std::uint64_t i = 0; i < changes && !text.empty(); ++i) {
    const std::size_t at = rng.below(text.size());
    switch (rng.below(5)) {
      case 0:
        text[at] = static_cast<char>(rng.below(256));
        break;
      case 1:
        text.erase(at, 1 + rng.below(8));
        break;
      case 2:
        text.insert(at, kPieces[rng.below(std::size(kPieces))]);
        break;
      case 3:
        text.resize(at);
        break;
      default:
        text.insert(at, text.substr(rng.below(text.size()), rng.below(40)));
        break;
    }
  }
  return text;
}

}  // namespace

TEST_CASE("mutated island link messages are refused or read, and what is read can be written and read again") {
  const std::string trainer_seeds[] = {encode(TrainerMessage(Hello{1, "t", "1", 1, 0, 1, {}})),
                                       encode(TrainerMessage(Manifest{{{"a", {2, 3}, -1}, {"b", {1}, 0}}, "about"})),
                                       encode(TrainerMessage(Published{1, 0, 10, 160, 2048, 10, 2.5, 1.0, false, 1.0, 2.0})),
                                       encode(TrainerMessage(Merged{1, 0, 10, 160, 0.5, 2.0, true, "x"}))};
  const std::string agent_seeds[] = {encode(AgentMessage(Configure{"r",
                                                                   "i",
                                                                   1,
                                                                   {},
                                                                   {{"/a"}, "bytes", 0.1, 0, 1},
                                                                   {},
                                                                   Payload::parameters,
                                                                   Diffusion{},
                                                                   Work{"experts/1", {{"clustering", "/c", "ab", 1}}},
                                                                   Resume{"/d", 1, 2}})),
                                     encode(AgentMessage(ArenaLayout{"/a", 64, {{0, 0}}, {{0, 4}}})),
                                     encode(AgentMessage(Plan{40, {{1, 0, 40, true}}, {{1, 0, 42, 0.5, true, false, "/state/1"}}}))};
  Rng rng(20'240'521);
  int read = 0;
  for (int i = 0; i < 40'000; ++i) {
    const auto trainer = decode_trainer_message(mutate(trainer_seeds[rng.below(std::size(trainer_seeds))], rng));
    if (trainer) {
      ++read;
      REQUIRE(decode_trainer_message(encode(*trainer)).has_value());
    }
    const auto agent = decode_agent_message(mutate(agent_seeds[rng.below(std::size(agent_seeds))], rng));
    if (agent) {
      ++read;
      REQUIRE(decode_agent_message(encode(*agent)).has_value());
    }
  }
  CHECK(read > 0);
  CHECK(read < 80'000);
}
