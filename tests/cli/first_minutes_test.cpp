// What somebody types first: `example`, and what `up` and `join` say where they cannot go on.
#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "cli/doctor/doctor.hpp"
#include "cli/local/reach.hpp"
#include "cli/run_file/run_file.hpp"
#include "tests/catch.hpp"
#include "tests/cli/command_call.hpp"
#include "tests/places.hpp"
#include "tests/temporary_folder.hpp"
#include "transport/base/free_port.hpp"
#include "transport/identity/identity.hpp"
#include "transport/identity/join_token.hpp"

namespace of_first_minutes_test {

using namespace atl;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

std::string text_of(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string token_of(const KeyPair& coordinator, std::uint16_t port, Duration good_for, const std::string& role = "island") {
  JoinToken token;
  token.coordinator_address = "tcp://127.0.0.1:" + std::to_string(port);
  token.coordinator_key = coordinator.public_key;
  token.secret = make_token_secret();
  token.role = role;
  token.expires = TimePoint(std::chrono::milliseconds(unix_ms(now() + good_for)));
  return to_text(token).value();
}

}  // namespace

TEST_CASE("example lists what there is, and writes each with a run file that is valid and a page of 20 lines") {
  const Called listed = call({"example", "--json"});
  REQUIRE(listed.exit == 0);
  std::set<std::string> names;
  const atl_test::TemporaryFolder folder;
  const json document = json::parse(listed.out);
  for (const json& example : document["examples"]) {
    const std::string name = example["name"];
    names.insert(name);
    CHECK(contains(call({"example"}).out, name));
    const fs::path target = folder.path() / "with a space" / name;
    const Called made = call({"example", name, target.string()});
    INFO(made.err);
    REQUIRE(made.exit == 0);
    CHECK(contains(made.err, "next: cd '" + target.string() + "' && atoll local run.toml"));
    const Result<RunFile> file = read_run_file((target / "run.toml").string());
    REQUIRE(file);
    CHECK(file->valid());
    CHECK(file->spec.islands.min == 2);
    const std::string readme = text_of(target / "README.md");
    CHECK(readme.starts_with("# " + example["what"].get<std::string>() + "\n"));
    const auto lines = std::count(readme.begin(), readme.end(), '\n');
    CHECK(lines >= 17);
    CHECK(lines <= 24);
    CHECK(contains(readme, "Apache-2.0"));  // the licence of what it has
    const fs::path source = fs::path(atl_test::source_folder()) / "examples/first" / name;
    for (const fs::directory_entry& entry : fs::directory_iterator(source)) {
      CHECK(text_of(entry.path()) == text_of(target / entry.path().filename()));
    }
  }
  CHECK(names == std::set<std::string>{"c", "classifier", "diffusion", "gpt", "lora"});
  CHECK(text_of(folder.path() / "with a space/c/train.c") ==
        text_of(fs::path(atl_test::source_folder()) / "examples/own-trainer/linear.c"));
  const auto permissions = fs::status(folder.path() / "with a space/c/build_and_run.sh").permissions();
  CHECK((permissions & fs::perms::owner_exec) != fs::perms::none);
}

TEST_CASE("example writes over nothing, and names what is nearest") {
  const atl_test::TemporaryFolder folder;
  folder.write("full/mine.txt", "mine");
  const std::string full = (folder.path() / "full").string();
  const Called refused = call({"example", "gpt", full});
  CHECK(refused.exit == 8);
  CHECK(refused.err == "atoll: " + full + " is not empty; name a new folder\n");
  CHECK(std::distance(fs::directory_iterator(full), fs::directory_iterator()) == 1);
  CHECK(call({"example", "gpt", full + "/mine.txt"}).err == "atoll: " + full + "/mine.txt is a file; name a new folder\n");
  fs::create_directories(folder.path() / "empty");
  CHECK(call({"example", "gpt", (folder.path() / "empty").string()}).exit == 0);
  const Called unknown = call({"example", "gtp", full});
  CHECK(unknown.exit == 4);
  CHECK(contains(unknown.err, "nearest is gpt"));
  CHECK(call({"example", "gpt"}).exit == 2);
}

TEST_CASE("join says in one line why it cannot") {
  const atl_test::TemporaryFolder folder;
  const std::string state = (folder.path() / "state").string();
  const KeyPair keys = make_key_pair().value();
  const std::uint16_t port = free_port().value();
  const auto said = [&](const std::string& line) {
    const Called called = line.empty() ? call({"join", "--state", state}) : call({"join", line, "--state", state});
    CHECK(std::count(called.err.begin(), called.err.end(), '\n') == 1);
    return called;
  };
  CHECK(said("").exit == 4);
  CHECK(contains(said("").err, "type the whole line that `atoll up` prints"));
  const std::string good = token_of(keys, port, std::chrono::hours(1));
  const Called cut = said(good.substr(0, good.size() - 4) + "@127.0.0.1:" + std::to_string(port));
  CHECK(cut.exit == 2);
  CHECK(said(good + "@nonsense").exit == 2);
  const Called old = said(token_of(keys, port, -std::chrono::hours(1)) + "@127.0.0.1:" + std::to_string(port));
  CHECK(old.exit == 7);
  CHECK(contains(old.err, "expired at"));
  for (const std::string& line : {good, good + "@127.0.0.1:" + std::to_string(port)}) {
    const Called nobody = said(line);
    CHECK(nobody.exit == 3);
    CHECK(contains(nobody.err, "the coordinator at tcp://127.0.0.1:" + std::to_string(port) + " cannot be reached: "));
  }
  CHECK_FALSE(fs::exists(state));
}

TEST_CASE("join leaves an island to the coordinator that it has") {
  const atl_test::TemporaryFolder folder;
  const KeyPair mine = make_key_pair().value();
  folder.write("state/coordinator.json", json{{"address", "tcp://127.0.0.1:4"}, {"key", mine.public_key}}.dump());
  const Called other =
      call({"join", token_of(make_key_pair().value(), 4, std::chrono::hours(1)), "--state", (folder.path() / "state").string()});
  CHECK(other.exit == 8);
  CHECK(contains(other.err, "belongs to another coordinator, at tcp://127.0.0.1:4"));
}

TEST_CASE("up says who reaches the coordinator, as far as it is known from inside") {
  const std::array<std::string, 2> own = {"10.0.0.5", "198.51.100.9"};
  const auto said = [&](const char* host) { return reach_text({host, 4400}, own); };
  CHECK(contains(said("127.0.0.1"), "only this machine reaches 127.0.0.1"));
  CHECK(contains(said("10.0.0.5"), "machines of this network reach 10.0.0.5, unless a firewall stops TCP ports 4400"));
  CHECK(contains(said("10.0.0.5"), "let the router pass"));
  CHECK(contains(said("198.51.100.9"), "machines anywhere reach 198.51.100.9"));
  CHECK(contains(said("203.0.113.7"), "is no address of this machine"));
  CHECK(contains(said("atoll.example.org"), "by the name atoll.example.org"));
  const std::vector<std::string> here = own_addresses();
  CHECK(std::ranges::find(here, "127.0.0.1") != here.end());
}

TEST_CASE("doctor says what a file system is not good for") {
  constexpr std::uint64_t kNfs = 0x6969;
  constexpr std::uint64_t kExt4 = 0xEF53;
  const auto island = judge_file_system("/home/me/.local/state/atoll", kNfs, false, false);
  REQUIRE(island);
  CHECK(island->health == Health::doubtful);
  CHECK(contains(island->text, "is on NFS"));
  const auto coordinator = judge_file_system("/home/me/.local/state/atoll", kNfs, false, true);
  REQUIRE(coordinator);
  CHECK(coordinator->health == Health::bad);
  CHECK(contains(coordinator->text, "put it on a local disk"));
  CHECK_FALSE(judge_file_system("/srv", kExt4, false, true));
  const auto no_exec = judge_file_system("/srv", kExt4, true, true);
  REQUIRE(no_exec);
  CHECK(no_exec->health == Health::good);
}

}  // namespace of_first_minutes_test
