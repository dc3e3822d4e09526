// The island link: messages as text, the arena and its layout, both ends over a local socket.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "agent/island_link/agent_end.hpp"
#include "agent/island_link/arena.hpp"
#include "agent/island_link/trainer_link.hpp"
#include "tests/catch.hpp"
#include "tests/places.hpp"

using namespace atl;
using namespace atl::island_link;
using namespace std::chrono_literals;

namespace {

// A folder of this test's own, removed at the end.
struct Folder {
  std::string path;
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "atoll-link-XXXXXX").string();
    path = ::mkdtemp(pattern.data());
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path); }
};

std::vector<TrainerMessage> trainer_messages() {
  Published published{3, 1, 40, 640, 81920, 40, 2.5, 0.75, false, 12.5, 2.25};
  Published lost = published;
  lost.loss.reset();
  lost.norm.reset();
  lost.local_validation_loss.reset();
  lost.nonfinite = true;
  return {Hello{kProtocol, "mine", "0.1", 4711, 0, 1, true},
          Manifest{{{"embedding", {256, 8}, -1}, {"norm \"quoted\"\n", {8}, 0}}, {}},
          Manifest{{{"x", {1}, 0}}, "{\"patch\": 2}"},
          Ready{10, 160, 1'000'000},
          PublishedNow{{0, 1}, 10, 160},
          published,
          lost,
          Merged{3, 1, 42, 672, 0.25, 2.125, true, std::nullopt},
          Merged{3, 1, 42, 672, 0.25, std::nullopt, false, "disk full"},
          Loaded{{0}, 7, 112},
          Saved{"/tmp/x", 7, 112, "disk full"},
          Evaluated{2.5, 16, 42},
          Progress{7, 112, std::nullopt, true, 11000.5, 1.5, 0.5},
          Failed{"no data"},
          Failed{"no such model", true},
          Preparing{"compiling the model"}};
}

std::vector<AgentMessage> agent_messages() {
  Configure configure{"r-1",
                      "island",
                      std::numeric_limits<std::uint64_t>::max(),
                      {4, 128, 4, 0, 256, true},
                      {{"/data/a", "/data/b"}, "bytes", 0.05, 1, 3},
                      {600, 16, 128, 2, 1e-3, 100, 0.1, 0.1, 0.9, 0.95, 1e-8, 1.0, 0.0, "cpu", "float32", 1, 16},
                      Payload::gradient,
                      {},
                      {},
                      Resume{"/state", 20, 320}};
  Configure fresh = configure;
  fresh.resume.reset();
  fresh.payload = Payload::parameters;
  Configure images = fresh;
  images.data.format = "idx";
  images.diffusion = Diffusion{};
  images.diffusion->times = "logit-normal";
  images.diffusion->ema = 0.99;
  Configure group = images;
  group.work = Work{"experts/2", {{"clustering", "/c/ab", "ab", 12}}};
  Configure own = fresh;
  own.model = {};
  own.trainer = OwnTrainer{"gpt", 8, 256, R"({"layers":6,"names":["a",{"b":[1.5,true]}]})"};
  return {configure,
          fresh,
          own,
          images,
          group,
          ArenaLayout{"/dev/shm/a", 64, {{0, 0}, {1, 8}}, {{0, 16}}},
          PublishNow{{0}},
          Load{{0, 1}, 20, 320},
          Plan{40, {{1, 0, 40, true}}, {{1, 0, 42, 0.5, true, false, "/state/1"}, {2, 0, 52, 0.0, false, true, std::nullopt}}},
          RoundResult{1, 0, true},
          Save{"/state"},
          Evaluate{},
          Stop{"the run is complete", true, false}};
}

std::string why(const Result<AgentMessage>& result) { return result ? "(a message)" : result.error().why; }

}  // namespace

TEST_CASE("island link messages come back from their text as they were") {
  for (const TrainerMessage& message : trainer_messages()) {
    const auto back = decode_trainer_message(encode(message));
    INFO(encode(message));
    REQUIRE(back.has_value());
    CHECK(*back == message);
  }
  for (const AgentMessage& message : agent_messages()) {
    const auto back = decode_agent_message(encode(message));
    INFO(encode(message));
    REQUIRE(back.has_value());
    CHECK(*back == message);
  }
}

TEST_CASE("island link messages name what is wrong with them") {
  CHECK(why(decode_agent_message("")) == "island link: a message that is not a JSON object");
  CHECK(why(decode_agent_message("[1]")) == "island link: a message that is not a JSON object");
  CHECK(why(decode_agent_message("{}")) == "island link: a message without a type");
  CHECK(why(decode_agent_message(R"({"type":"hello"})")) == "island link: a message of unknown type 'hello'");
  CHECK(why(decode_agent_message(R"({"type":"save"})")) == "island link: in 'save' 'directory' is missing");
  CHECK(why(decode_agent_message(R"({"type":"result","round":-1,"fragment":0,"applied":true})")) ==
        "island link: in 'result' 'round' must be an integer from 0 to 2^64 - 1");
  CHECK(why(decode_agent_message(R"({"type":"result","round":1,"fragment":4294967296,"applied":true})")) ==
        "island link: in 'result' 'fragment' must be an integer from 0 to 4294967295");
  CHECK(why(decode_agent_message(R"({"type":"plan","until_step":1,"publish":[],"merge":[{"round":1}]})")) ==
        "island link: in 'plan' 'merge[0].fragment' is missing");
  CHECK(why(decode_agent_message(std::string(100'000, '['))) == "island link: a message that is nested too deep");
  CHECK(why(decode_agent_message(std::string(kLargestMessage + 1, ' '))).find("at most 1048576") != std::string::npos);
  // More than is known is allowed.
  CHECK(decode_agent_message(R"({"type":"evaluate","later":{"version":[2]}})").has_value());
}

TEST_CASE("numbers that are not finite become null") {
  Progress progress;
  progress.loss = std::numeric_limits<double>::quiet_NaN();
  const auto back = decode_trainer_message(encode(TrainerMessage(progress)));
  REQUIRE(back.has_value());
  CHECK_FALSE(std::get<Progress>(*back).loss.has_value());
}

TEST_CASE("an arena is shared between those who map it, and removed with its maker") {
  const Folder folder;
  const std::string path = folder.path + "/arena";
  {
    auto made = Arena::create(path, 64);
    REQUIRE(made.has_value());
    CHECK(Arena::create(path, 64).error().code == Code::conflict);
    CHECK(remove_abandoned_arenas(std::filesystem::path(path).parent_path(), std::filesystem::path(path).filename()).empty());
    auto opened = Arena::open(path, 64);
    REQUIRE(opened.has_value());
    made->range({4, 2})[1] = 2.5F;
    CHECK(opened->floats()[5] == 2.5F);
    CHECK(Arena::open(path, 60).error().code == Code::corrupt);
    CHECK(Arena::open(path, 63).error().code == Code::invalid_argument);
    const Arena moved = std::move(*opened);
    CHECK(moved.floats()[5] == 2.5F);
  }
  CHECK_FALSE(std::filesystem::exists(path));
  CHECK(Arena::open(path, 64).error().code == Code::io);
  CHECK(Arena::create(path, 1ULL << 60).error().code == Code::io);
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("a layout holds every parameter exactly once, fragment by fragment") {
  const Manifest manifest{{{"a", {3, 5}, -1}, {"b", {7}, 0}, {"c", {2, 2}, 1}}, {}};
  const auto layout = lay_out(manifest, {{2, 0}, {1}});
  REQUIRE(layout.has_value());
  CHECK(layout->entries == std::vector<Entry>{{2, 0}, {0, 4}, {1, 32}});
  CHECK(layout->fragments == std::vector<Fragment>{{0, 19}, {32, 7}});
  CHECK(layout->bytes == 39 * 4);
  CHECK(check_layout(manifest, *layout).ok());
  CHECK_FALSE(lay_out(manifest, {{0, 1}}).has_value());
  CHECK_FALSE(lay_out(manifest, {{0, 1, 2, 2}}).has_value());
  CHECK_FALSE(lay_out(manifest, {{0, 1, 2}, {}}).has_value());
  CHECK_FALSE(lay_out(manifest, {{0, 1, 3}}).has_value());
}

TEST_CASE("a layout that is not one is refused") {
  const Manifest manifest{{{"a", {4}, -1}, {"b", {4}, 0}}, {}};
  const ArenaLayout good = lay_out(manifest, {{0}, {1}}).value();
  const auto bad = [&](auto change) {
    ArenaLayout layout = good;
    change(layout);
    return !check_layout(manifest, layout).ok();
  };
  CHECK(check_layout(manifest, good).ok());
  CHECK(bad([](ArenaLayout& l) { l.bytes = 8; }));
  CHECK(bad([](ArenaLayout& l) { l.bytes -= 4; }));
  CHECK(bad([](ArenaLayout& l) { l.entries.pop_back(); }));
  CHECK(bad([](ArenaLayout& l) { l.entries[1].parameter = 0; }));
  CHECK(bad([](ArenaLayout& l) { l.entries[1].parameter = 2; }));
  CHECK(bad([](ArenaLayout& l) { l.entries[1].offset = 3; }));
  CHECK(bad([](ArenaLayout& l) { l.entries[1].offset = ~0ULL; }));
  CHECK(bad([](ArenaLayout& l) { l.fragments.pop_back(); }));
  CHECK(bad([](ArenaLayout& l) { l.fragments[0].count = 5; }));
  CHECK(bad([](ArenaLayout& l) { l.fragments[0].count = 3; }));
  CHECK(bad([](ArenaLayout& l) { l.fragments[0].count = ~0ULL; }));
  CHECK(bad([](ArenaLayout& l) { l.fragments[1].offset = 0; }));
}

TEST_CASE("a manifest that cannot be laid out is refused") {
  const auto good = [](std::vector<Parameter> parameters, std::optional<std::string> description = {}) {
    return check_manifest({std::move(parameters), std::move(description)}).ok();
  };
  CHECK_FALSE(good({}));
  CHECK_FALSE(good({{"", {1}, 0}}));
  CHECK_FALSE(good({{"a", {1}, 0}, {"a", {1}, 0}}));
  CHECK_FALSE(good({{"a", {0}, 0}}));
  CHECK_FALSE(good({{"a", {1ULL << 40, 1ULL << 40}, 0}}));
  CHECK_FALSE(good({{"a", {1}, 2}}));
  CHECK(good({{"a", {}, -1}}));  // a scalar
  CHECK(good({{"a", {1}, 0, kBufferMean}, {"b", {1}, 0, kBufferOfOne}}));
  CHECK_FALSE(good({{"a", {1}, 0, "7"}}));
  CHECK(good({{"a", {1}, 0}}, std::string(4096, 'x')));
  CHECK_FALSE(good({{"a", {1}, 0}}, std::string(4097, 'x')));
}

TEST_CASE("agent and trainer talk over a local socket until one is gone") {
  const Folder folder;
  const std::string path = folder.path + "/link";
  CHECK(TrainerLink::connect(path).error().code == Code::not_found);
  CHECK(AgentEnd::bind(std::string(200, 'x')).error().code == Code::invalid_argument);
  auto agent = std::make_optional(AgentEnd::bind(path).value());
  auto trainer = TrainerLink::connect(path);
  REQUIRE(trainer.has_value());
  for (const TrainerMessage& message : trainer_messages()) {
    REQUIRE(trainer->send(message).ok());
    const auto got = agent->receive(10s);
    REQUIRE(got.has_value());
    REQUIRE(got->has_value());
    CHECK(**got == message);
  }
  CHECK_FALSE(agent->receive().value().has_value());
  for (const AgentMessage& message : agent_messages()) {
    REQUIRE(agent->send(message).ok());
    const auto got = trainer->receive(10s);
    REQUIRE(got.has_value());
    REQUIRE(got->has_value());
    CHECK(**got == message);
  }
  CHECK_FALSE(trainer->receive(0s).value().has_value());
  Failed large;
  large.why = std::string(kLargestMessage, 'x');
  CHECK(trainer->send(large).error().code == Code::invalid_argument);

  REQUIRE(agent->send(Stop{"last words"}).ok());
  agent.reset();
  CHECK(std::get<Stop>(**trainer->receive(10s)).why == "last words");
  const auto after = trainer->receive(10s);
  REQUIRE_FALSE(after.has_value());
  CHECK(after.error().code == Code::unavailable);
  CHECK(trainer->send(Failed{"too late"}).error().code == Code::unavailable);
}

TEST_CASE("the example session of the island link's page is made of valid messages") {
  std::ifstream page(atl_test::source_folder() + "/agent/island_link/README.md");
  REQUIRE(page);
  int messages = 0;
  for (std::string line; std::getline(page, line);) {
    INFO(line);
    if (line.rfind("> {", 0) == 0) {
      CHECK(decode_trainer_message(line.substr(2)).has_value());
      ++messages;
    } else if (line.rfind("< {", 0) == 0) {
      CHECK(decode_agent_message(line.substr(2)).has_value());
      ++messages;
    }
  }
  CHECK(messages > 10);
}
