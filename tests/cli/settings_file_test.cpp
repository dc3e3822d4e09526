// Settings files of daemons: every option has a key, what is wrong is named with its line, and the command line counts.
#include "cli/settings/settings_file.hpp"

#include <array>

#include "cli/line/command.hpp"
#include "cli/settings/notify_settings.hpp"
#include "tests/catch.hpp"
#include "tests/cli/command_call.hpp"
#include "tests/cli/pages.hpp"
#include "tests/temporary_folder.hpp"

namespace of_settings_file_test {

using namespace atl;

namespace {

struct Values {
  std::string name;
  std::string mode = "a";
  std::vector<std::string> data;
  bool fast = false;
  std::uint64_t count = 0;
  double part = 0;
  Duration every{};
  std::optional<Duration> limit;
  std::string secret;

  std::vector<CommandOption> options() {
    return {{"--name", "", &name},     {"--mode", "", &mode, false, {"a", "b"}},
            {"--data-set", "", &data}, {"-f,--fast", "", &fast},
            {"--count", "", &count},   {"--part", "", &part},
            {"--every", "", &every},   {"--limit", "", &limit},
            {"--secret", "", &secret}, {"FILE", "", &secret}};
  }
};

Status take(Values& values, const std::string& text, const std::set<std::string>& given = {}) {
  const atl_test::TemporaryFolder folder;
  static constexpr std::array<std::string_view, 1> kNot = {"secret"};
  return take_settings(folder.write("agent.toml", text), values.options(), given, kNot);
}

}  // namespace

TEST_CASE("a settings file gives options of every kind their values") {
  Values values;
  REQUIRE(take(values,
               "name = \"lyon\"\nmode = \"b\"\nfast = true\ncount = 3\npart = 0.5\nevery = \"2m\"\nlimit = \"5s\"\n"
               "[data_set]\ncorpus = \"/srv/text\"\nimages = \"/srv/*.png\"\n"));
  CHECK(values.name == "lyon");
  CHECK(values.mode == "b");
  CHECK(values.fast);
  CHECK(values.count == 3);
  CHECK(values.part == 0.5);
  CHECK(values.every == std::chrono::minutes(2));
  CHECK(values.limit == std::chrono::seconds(5));
  CHECK(values.data == std::vector<std::string>{"corpus=/srv/text", "images=/srv/*.png"});
  REQUIRE(take(values, "data_set = [\"a=b\"]"));
  CHECK(values.data == std::vector<std::string>{"a=b"});
}

TEST_CASE("what is on the command line counts, not what is in the file") {
  Values values;
  values.name = "typed";
  REQUIRE(take(values, "name = \"written\"\ncount = 1", {"name"}));
  CHECK(values.name == "typed");
  CHECK(values.count == 1);
}

TEST_CASE("what is wrong in a settings file is named with its line") {
  for (const auto& [text, line, part] :
       std::vector<std::tuple<std::string, int, std::string>>{{"\nnmae = \"a\"", 2, "unknown key \"nmae\"; nearest is name"},
                                                              {"data-set = []", 1, "nearest is data_set"},
                                                              {"secret = \"s\"", 1, "unknown key \"secret\""},
                                                              {"FILE = \"s\"", 1, "unknown key \"FILE\""},
                                                              {"name = 3", 1, "name is a text"},
                                                              {"mode = \"c\"", 1, "mode is one of a, b"},
                                                              {"fast = \"yes\"", 1, "fast is true or false"},
                                                              {"count = -1", 1, "count is an integer"},
                                                              {"every = \"soon\"", 1, "every "},
                                                              {"data_set = \"a=b\"", 1, "data_set is a list"},
                                                              {"[data_set]\na = 3", 1, "data_set is a list"},
                                                              {"name = ", 1, "not TOML"},
                                                              {"name = \"a\"\nname = \"b\"", 2, "not TOML"}}) {
    Values values;
    const Status taken = take(values, text);
    INFO(text);
    REQUIRE_FALSE(taken.ok());
    CHECK(taken.error().code == Code::invalid_argument);
    INFO(taken.error().why);
    CHECK(taken.error().why.find("agent.toml:" + std::to_string(line) + ": ") != std::string::npos);
    CHECK(taken.error().why.find(part) != std::string::npos);
  }
}

TEST_CASE("web hooks are set in a table of their own, strictly") {
  const atl_test::TemporaryFolder folder;
  const auto read = [&](const std::string& text) { return read_notify_settings(folder.write("c.toml", "name = \"a\"\n" + text)); };
  CHECK(read("").value().url.empty());
  const coordinator::NotifySettings set =
      read("[notify]\nurl = \"https://a.example/b\"\nsecret = \"s\"\nevents = [\"run_ended\"]\nisland_lost_after = \"1m\"\n").value();
  CHECK(set.url == "https://a.example/b");
  CHECK(set.secret == "s");
  CHECK(set.notices.events == std::vector<std::string>{"run_ended"});
  CHECK(set.notices.island_lost_after == std::chrono::minutes(1));
  CHECK(read("[notify]\nurl = \"http://127.0.0.1:9/\"\n").has_value());
  for (const auto& [text, part] : std::vector<std::pair<std::string, std::string>>{
           {"[notify]\nulr = \"https://a/\"\n", "c.toml:3: unknown key \"ulr\"; nearest is url"},
           {"[notify]\nurl = \"http://a.example/\"\n", "not https"},
           {"[notify]\nurl = \"a b\"\n", "not a URL"},
           {"[notify]\nevents = [\"lunch\"]\n", "'lunch' is none of run_ended, "},
           {"notify = 3\n", "c.toml:2: [notify] is a table"}}) {
    const auto settings = read(text);
    INFO(text);
    REQUIRE_FALSE(settings.has_value());
    CHECK(settings.error().why.find(part) != std::string::npos);
  }
}

TEST_CASE("an agent reads agent.toml of its state directory, or the file that it is given") {
  const atl_test::TemporaryFolder folder;
  folder.write("state/agent.toml", "uplnk = \"50mbit\"\n");
  const std::string state = (folder.path() / "state").string();
  const Called called = call({"agent", "--state", state});
  CHECK(called.exit == 2);
  CHECK(called.err.find("agent.toml:1: unknown key \"uplnk\"; nearest is uplink") != std::string::npos);
  CHECK(call({"agent", "--state", state, "--config", (folder.path() / "none.toml").string()}).exit == 4);
  const Called coordinator = call({"coordinator", "--state", state, "--config", folder.write("c.toml", "state = \"/\"\n").string()});
  CHECK(coordinator.exit == 2);
  CHECK(coordinator.err.find("c.toml:1: unknown key \"state\"") != std::string::npos);
  const std::string other = folder.write("other.toml", "uplink = \"fast\"\n").string();
  const Called fast = call({"agent", "--state", state, "--config", other});
  CHECK(fast.exit == 2);
  CHECK(fast.err.find("fast") != std::string::npos);
}

TEST_CASE("the settings files that the pages show and the packages have are what the program takes") {
  const atl_test::TemporaryFolder folder;
  const Command agent = agent_command();
  const std::vector<std::string> shown = pages::blocks(pages::file_text(pages::kSource / "docs/install.md"), "```ini", "```");
  REQUIRE(shown.size() == 2);
  for (const std::string& text : shown) {
    const Status taken = take_settings(folder.write("agent.toml", text), agent.options, {}, {});
    INFO((taken ? "" : taken.error().why));
    CHECK(taken.ok());
  }
  const auto hooks = pages::blocks(pages::file_text(pages::kSource / "docs/web.md"), "```ini", "```");
  REQUIRE(hooks.size() == 1);
  CHECK(read_notify_settings(folder.write("hooks.toml", hooks[0])).value().url == "https://hooks.example.org/atoll");
  // With every setting that stands in a comment, too.
  const auto uncommented = [&](const std::string& name) {
    std::string text;
    for (const std::string& line : pages::lines_of(pages::file_text(pages::kSource / "examples/packaging/etc" / name))) {
      text += line.starts_with("#") && !line.starts_with("# ") ? line.substr(1) + "\n" : "";
    }
    return folder.write(name, text);
  };
  const Status of_agent = take_settings(uncommented("agent.toml"), agent.options, {}, {});
  INFO((of_agent ? "" : of_agent.error().why));
  CHECK(of_agent.ok());
  const std::filesystem::path coordinator = uncommented("coordinator.toml");
  CHECK(read_notify_settings(coordinator).value().notices.events == coordinator::notice_names());
  static constexpr std::array<std::string_view, 1> kTables = {"notify"};
  CHECK(take_settings(coordinator, coordinator_command().options, {}, {}, kTables).ok());
}

}  // namespace of_settings_file_test
