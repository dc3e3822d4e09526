// Commands that ask a coordinator: what they ask, print and return.
#include <atomic>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/views/views.hpp"
#include "tests/catch.hpp"
#include "tests/cli/scripted_coordinator.hpp"
#include "tests/cli/served_model.hpp"
#include "tests/places.hpp"
#include "tests/special_files.hpp"
#include "tests/temporary_files_in.hpp"
#include "tests/temporary_folder.hpp"
#include "transport/identity/join_token.hpp"

namespace of_operator_commands_test {

using namespace atl;
using nlohmann::json;

namespace {

Reply documented_reply(const std::string& verb, const json& arguments) {
  if (verb == "token_create") {
    return document_reply(
        {{"schema", 1}, {"now_unix_ms", 0}, {"id", "t-1"}, {"role", "island"}, {"token", "atoll1-abc"}, {"expires_unix_ms", 86400000}});
  }
  if (verb == "token_revoke" && arguments["id"] != "t-1") {
    return document_reply({{"schema", 1},
                           {"now_unix_ms", 0},
                           {"revoked", "i-2"},
                           {"kind", "island"},
                           {"ended", arguments["id"]},
                           {"ended_id", "i-2"},
                           {"changed", arguments["id"] != "gone"}});
  }
  if (verb == "token_revoke") {
    return document_reply({{"schema", 1}, {"now_unix_ms", 0}, {"revoked", "t-1"}, {"kind", "token"}});
  }
  return document_reply(documented(verb == "resume" ? "cancel" : verb));
}

json status_in(const std::string& state) {
  json document = documented("status");
  document["run"]["state"] = state;
  document["run"]["reason"] = "with 3 of 3 islands";
  return document;
}

}  // namespace

TEST_CASE("lists print the document or its view") {
  ScriptedCoordinator coordinator(documented_reply);
  const Called runs = coordinator.call({"runs"});
  CHECK(runs.exit == 0);
  CHECK(runs.out == render_runs(documented("runs"), {}));
  CHECK(json::parse(coordinator.call({"runs", "-o", "json"}).out) == documented("runs"));
  CHECK(coordinator.call({"runs", "-q"}).out == "r-7f3a9c12\n");
  CHECK(coordinator.call({"islands"}).out == render_islands(documented("islands"), {}));
  CHECK(coordinator.call({"islands", "-q"}).out == "cloud-a\n");
  CHECK(coordinator.call({"token", "list"}).out == render_tokens(documented("tokens"), {}));
  CHECK(coordinator.call({"status"}).out == render_status(documented("status"), {}));
  CHECK(coordinator.asked("status").back()["run"] == "");
  CHECK(coordinator.call({"status", "r-7", "--json"}).exit == 0);
  CHECK(coordinator.asked("status").back()["run"] == "r-7");
}

TEST_CASE("an error of the coordinator is one line and its exit code") {
  const std::map<Code, int> exits = {
      {Code::not_found, 4}, {Code::conflict, 8}, {Code::unauthorized, 7}, {Code::invalid_argument, 2}, {Code::internal, 70}};
  Code code = Code::not_found;
  ScriptedCoordinator coordinator([&](const std::string&, const json&) { return error_reply(code, "no run fits \"x\"\x1b[2J"); });
  for (const auto& [each, exit] : exits) {
    code = each;
    const Called called = coordinator.call({"status", "x"});
    CHECK(called.exit == exit);
    CHECK(called.out.empty());
    CHECK(called.err.starts_with("atoll: no run fits \"x\""));
    CHECK(called.err.find('\x1b') == std::string::npos);
    CHECK(std::count(called.err.begin(), called.err.end(), '\n') == 1);
  }
  const Called in_json = coordinator.call({"cancel", "x", "--json"});
  CHECK(json::parse(in_json.err)["error"]["code"] == to_string(code));
}

TEST_CASE("an answer that is no document is corrupt, not a crash") {
  std::string text;
  ScriptedCoordinator coordinator([&](const std::string&, const json&) {
    Reply reply;
    reply.document = text;
    return reply;
  });
  const std::string deep = "{\"x\": " + std::string(300'000, '[') + std::string(300'000, ']') + "}";
  for (const std::string& bad : {std::string(), std::string("{"), std::string("[1]"), std::string("3"), deep}) {
    text = bad;
    CHECK(coordinator.call({"runs"}).exit == 70);
  }
}

TEST_CASE("nobody at the address: exit 3 within five seconds, naming it") {
  std::filesystem::path state;
  {
    ScriptedCoordinator coordinator(documented_reply);
    state = coordinator.state();
    const auto begin = std::chrono::steady_clock::now();
    const Called called = atl::call({"runs", "--coordinator", "tcp://127.0.0.1:1"}, {{"ATOLL_STATE", state.string()}});
    CHECK(called.exit == 3);
    CHECK(called.err.find("127.0.0.1:1") != std::string::npos);
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(5));
  }
  const Called unknown = atl::call({"runs"}, {{"ATOLL_STATE", "/nonexistent/state"}});
  CHECK(unknown.exit == 3);
  CHECK(unknown.err.find("atoll coordinator init") != std::string::npos);
  CHECK(atl::call({"runs"}).exit == 2);  // not even HOME
}

TEST_CASE("without an operator's key it is not authorised") {
  ScriptedCoordinator coordinator(documented_reply);
  std::filesystem::remove(coordinator.state() / "keys" / "operator");
  const Called called = coordinator.call({"runs"});
  CHECK(called.exit == 7);
  CHECK(called.err.find("atoll token use TOKEN") != std::string::npos);
}

TEST_CASE("a key file alone implies the state directory it lies in") {
  ScriptedCoordinator coordinator(documented_reply);
  CHECK(atl::call({"runs", "--key", (coordinator.state() / "keys" / "operator").string()}, {{"HOME", "/nonexistent"}}).exit == 0);
  CHECK(atl::call({"runs", "--state", coordinator.state().string()}, {{"HOME", "/nonexistent"}}).exit == 0);
}

TEST_CASE("a key that is not there, or lies in no state directory, is what the error is about") {
  ScriptedCoordinator coordinator(documented_reply);
  const Called missing = coordinator.call({"runs", "--key", "nowhere/operator"});
  CHECK(missing.exit == 7);
  CHECK(missing.err.find("no operator's key at nowhere/operator (--key)") != std::string::npos);
  const atl_test::TemporaryFolder folder;
  const std::filesystem::path elsewhere = folder.path() / "operator";
  std::filesystem::copy_file(coordinator.state() / "keys" / "operator", elsewhere);
  const Called alone = atl::call({"runs", "--key", elsewhere.string()}, {{"HOME", "/nonexistent"}});
  CHECK(alone.exit == 3);
  CHECK(alone.err.find("operator (--key) lies in no coordinator's state directory; name that with --state DIR") != std::string::npos);
  CHECK(atl::call({"runs", "--key", elsewhere.string(), "--state", coordinator.state().string()}, {{"HOME", "/nonexistent"}}).exit == 0);
}

TEST_CASE("submit prints the id, and what to do next on stderr") {
  ScriptedCoordinator coordinator(documented_reply);
  const std::string file = atl_test::source_folder() + "/examples/diloco-text.toml";
  const Called called = coordinator.call({"submit", file});
  CHECK(called.exit == 0);
  CHECK(called.out == "r-7f3a9c12\n");
  CHECK(called.err.find("atoll status r-7f3a9c12 --watch") != std::string::npos);
  CHECK(coordinator.asked("submit").back()["once"] == false);
  CHECK(coordinator.asked("submit").back()["spec"]["rounds"] == 67);
  const Called quiet = coordinator.call({"submit", file, "-q", "--name", "mine"});
  CHECK(quiet.out == "r-7f3a9c12\n");
  CHECK(quiet.err.empty());
  CHECK(coordinator.asked("submit").back()["once"] == true);
  CHECK(coordinator.asked("submit").back()["spec"]["run"]["name"] == "mine");
  CHECK(json::parse(coordinator.call({"submit", file, "-o", "json"}).out) == documented("submit"));
  // What `validate` notes is told here, too.
  atl_test::TemporaryFolder folder;
  const std::string wide =
      folder.write("wide.toml", "[run]\nname = \"t\"\n[data]\nset = \"corpus\"\n[training]\nsteps = 300\n[islands]\nmin = 2\n").string();
  const Called told = coordinator.call({"submit", wide});
  CHECK(told.out == "r-7f3a9c12\n");
  CHECK(told.err.find("note: outer_momentum") != std::string::npos);
  CHECK(coordinator.call({"submit", wide, "-q"}).err.empty());
}

TEST_CASE("submit --dry-run shows who would take part, what is missing and the plan, and its exit code says whether the run would begin") {
  json rehearsal = documented("submit");
  rehearsal.update({{"run", nullptr}, {"created", false}, {"dry_run", true}, {"enough", true}, {"reason", ""}, {"min", 1}, {"max", 2}});
  rehearsal["islands"] = {{{"id", "i-5c1d…"}, {"name", "cloud-a"}, {"takes_part", true}, {"obstacle", ""}},
                          {{"id", "i-77aa…"}, {"name", "laptop"}, {"takes_part", false}, {"obstacle", "has no data set 'corpus'"}}};
  ScriptedCoordinator coordinator([&](const std::string& verb, const json&) {
    return verb == "submit" ? document_reply(rehearsal) : document_reply(documented(verb));
  });
  const std::string file = atl_test::source_folder() + "/examples/diloco-text.toml";
  const Called begins = coordinator.call({"submit", file, "--dry-run"});
  CHECK(begins.exit == 0);
  INFO(begins.out);
  CHECK(begins.out.find("run text would begin with 1 island (min 1, max 2)\n") != std::string::npos);
  CHECK(begins.out.find("laptop   no          has no data set 'corpus'\n") != std::string::npos);
  CHECK((begins.out.find("\nno plan: ") != std::string::npos) != (begins.out.find("\nexpected\n") != std::string::npos));
  CHECK(coordinator.asked("submit").back()["dry_run"] == true);
  rehearsal["enough"] = false;
  rehearsal["reason"] = "waits for 1 more island";
  const Called waits = coordinator.call({"submit", file, "-n"});
  CHECK(waits.exit == 8);
  CHECK(waits.out.find("would not begin: there is 1 island (min 1, max 2); it waits for 1 more island\n") != std::string::npos);
  const json told = json::parse(coordinator.call({"submit", file, "-n", "--json"}).out);
  CHECK(told["islands"] == rehearsal["islands"]);
  CHECK(told["pairs"].empty());
}

TEST_CASE("submit --dry-run says over what each two of the islands that take part exchange") {
  json rehearsal = documented("submit");
  rehearsal.update({{"run", nullptr}, {"created", false}, {"dry_run", true}, {"enough", true}, {"reason", ""}, {"min", 2}, {"max", 2}});
  rehearsal["islands"] = {{{"id", "i-1"}, {"name", "reef"}, {"takes_part", true}, {"obstacle", ""}},
                          {{"id", "i-2"}, {"name", "shoal"}, {"takes_part", true}, {"obstacle", ""}},
                          {{"id", "i-3"}, {"name", "lagoon"}, {"takes_part", false}, {"obstacle", ""}}};
  const auto island = [](const char* id, const char* name, const char* from) {
    return json{{"id", id},
                {"name", name},
                {"connected", true},
                {"paths", {{{"from", from}, {"passes", true}, {"way", "punched"}, {"why_indirect", "neither can dial the other"}}}}};
  };
  ScriptedCoordinator coordinator([&](const std::string& verb, const json&) {
    json islands = {{"schema", 1},
                    {"islands", {island("i-1", "reef", "shoal"), island("i-2", "shoal", "reef"), island("i-3", "lagoon", "reef")}}};
    return verb == "submit" ? document_reply(rehearsal) : verb == "islands" ? document_reply(islands) : document_reply(documented(verb));
  });
  const std::string file = atl_test::source_folder() + "/examples/diloco-text.toml";
  const Called shown = coordinator.call({"submit", file, "--dry-run"});
  INFO(shown.out << shown.err);
  CHECK(shown.out.find("reef     shoal  punched         -\nreef and shoal: neither can dial the other\n") != std::string::npos);
  const json pairs = json::parse(coordinator.call({"submit", file, "-n", "--json"}).out)["pairs"];
  REQUIRE(pairs.size() == 1);
  CHECK(pairs[0]["islands"] == json{"reef", "shoal"});
}

TEST_CASE("submit refuses a bad run file before it asks anybody") {
  CHECK(call({"submit", "/nonexistent.toml"}).exit == 2);
  const Called name = call({"submit", atl_test::source_folder() + "/examples/diloco-text.toml", "--name", "../x"});
  CHECK(name.exit == 2);
  CHECK(name.err.find("--name") != std::string::npos);
}

TEST_CASE("runs are removed once all of them can be, and it is said who hears of it when") {
  const auto answer = [](const std::string& verb, const json& arguments) {
    if (verb != "remove" || arguments["run"] == "gone") {
      Reply reply;
      reply.error = Error{Code::not_found, "there is no run 'gone'"};
      return reply;
    }
    if (arguments["run"] == "busy") {
      Reply reply;
      reply.error = Error{Code::conflict, "run busy is running, and only a run that has ended can be removed"};
      return reply;
    }
    json document = documented("remove");
    document["removed"] = !arguments["dry_run"].get<bool>();
    document["run"] = arguments["run"] == "old" ? json("r-7f3a9c12") : arguments["run"];
    document["islands"].push_back({{"id", "i-2"}, {"name", "lagos"}, {"connected", false}});
    return document_reply(document);
  };
  ScriptedCoordinator coordinator(answer);
  const Called dry = coordinator.call({"runs", "rm", "old", "--dry-run"});
  CHECK(dry.exit == 0);
  CHECK(dry.out ==
        "run r-7f3a9c12 (text) would be removed; what tokyo holds of it would go at once; lagos would hear of it on coming back\n");
  CHECK(coordinator.asked("remove").size() == 1);
  const Called removed = coordinator.call({"runs", "rm", "old", "r-7f3a9c12", "other"});  // the first two are one
  CHECK(removed.exit == 0);
  CHECK(removed.out ==
        "run r-7f3a9c12 (text) is removed; what tokyo holds of it goes now; lagos hears of it on coming back\n"
        "run other (text) is removed; what tokyo holds of it goes now; lagos hears of it on coming back\n");
  CHECK(coordinator.asked("remove").size() == 6);
  for (const auto& [run, exit] : std::map<std::string, int>{{"busy", 8}, {"gone", 4}}) {
    const std::size_t before = coordinator.asked("remove").size();
    const Called refused = coordinator.call({"runs", "rm", "old", run});
    CHECK(refused.exit == exit);
    CHECK(refused.out.empty());
    CHECK(std::count(refused.err.begin(), refused.err.end(), '\n') == 1);
    for (std::size_t i = before; i < coordinator.asked("remove").size(); ++i) {
      CHECK(coordinator.asked("remove")[i]["dry_run"] == true);
    }
  }
  const json list = json::parse(coordinator.call({"runs", "rm", "other", "-o", "json"}).out);
  CHECK(list["runs"][0]["run"] == "other");
  CHECK(list["runs"][0]["removed"] == true);
  CHECK(coordinator.call({"runs", "rm"}).exit == 2);
}

TEST_CASE("pause and drain ask the coordinator and say what happens next") {
  ScriptedCoordinator coordinator(
      [](const std::string& verb, const json&) { return document_reply(documented(verb == "pause" ? "cancel" : verb)); });
  const Called paused = coordinator.call({"pause", "r-7f"});
  CHECK(paused.exit == 0);
  CHECK(paused.out == "run r-7f3a9c12 (text) pauses after the round in hand; `atoll status r-7f3a9c12` shows when it has\n");
  CHECK(coordinator.asked("pause").back()["run"] == "r-7f");
  const Called drained = coordinator.call({"drain", "cloud-a"});
  CHECK(drained.exit == 0);
  CHECK(drained.out.find("cloud-a finishes the round in hand") != std::string::npos);
  CHECK(coordinator.asked("drain").back()["island"] == "cloud-a");
}

TEST_CASE("events asks for the tape, diff reads the tapes of both runs") {
  ScriptedCoordinator coordinator([&](const std::string&, const json& arguments) {
    json document = documented("events");
    const bool second = arguments["run"] == "two";
    document["run"] = second ? "r-2" : "r-1";
    document["events"] =
        json::array({{{"kind", "round_committed"}, {"text", "round 0"}, {"fields", {{"round", 0}, {"digest", second ? "bb" : "aa"}}}}});
    return document_reply(document);
  });
  const Called tape = coordinator.call({"events", "one", "-o", "json"});
  CHECK(tape.exit == 0);
  CHECK(json::parse(tape.out)["fields"]["digest"] == "aa");
  CHECK(coordinator.asked("events").back()["level"] == "debug");
  CHECK(coordinator.call({"logs", "one"}).exit == 0);
  CHECK_FALSE(coordinator.asked("events").back().contains("level"));
  const Called parted = coordinator.call({"diff", "one", "two"});
  CHECK(parted.exit == 1);
  CHECK(parted.out.find("round 0 parts them: the initial states differ") != std::string::npos);
  CHECK(parted.out.find("r-2: digest bb") != std::string::npos);
  const Called equal = coordinator.call({"diff", "one", "one", "--json"});
  CHECK(equal.exit == 0);
  CHECK(json::parse(equal.out)["parted"] == false);
  CHECK(coordinator.call({"diff", "one", "two", "--json"}).exit == 1);
}

TEST_CASE("data shows the parts and whether they add up, and exits with 70 if not") {
  bool holds = true;
  ScriptedCoordinator coordinator([&](const std::string&, const json&) {
    json document = documented("data");
    if (!holds) {
      document["proof"]["holds"] = false;
      document["proof"]["fault"] = "part 0: sequences 7 to 9 are committed twice, again in round 2";
    }
    return document_reply(document);
  });
  const Called whole = coordinator.call({"data", "text"});
  CHECK(whole.exit == 0);
  CHECK(coordinator.asked("data").back()["run"] == "text");
  CHECK(whole.out.find("928 sequences") != std::string::npos);
  CHECK(whole.out.find("in 60 rounds: each sequence up to every part's position once, no sequence on two islands") != std::string::npos);
  CHECK(whole.out.find("cloud-a 448, reef 480") != std::string::npos);
  holds = false;
  const Called broken = coordinator.call({"data", "text"});
  CHECK(broken.exit == 70);
  CHECK(broken.out.find("it does not add up: part 0: sequences 7 to 9 are committed twice") != std::string::npos);
  CHECK(coordinator.call({"data", "text", "--json"}).exit == 70);
}

TEST_CASE("logs prints pages until there is no more, -f until the run has ended") {
  int questions = 0;
  ScriptedCoordinator coordinator([&](const std::string&, const json& arguments) {
    ++questions;
    json document = documented("events");
    const int after = arguments["after"].get<int>();
    document["next"] = after + 1;
    document["ended"] = after >= 2;
    if (after >= 3) {
      document["events"] = json::array();
      document["state"] = "completed";
    }
    return document_reply(document);
  });
  const Called once = coordinator.call({"logs", "r-7f"});
  CHECK(once.exit == 0);
  CHECK(once.out == render_events(documented("events"), {}));
  CHECK(questions == 1);
  const Called followed = coordinator.call({"logs", "r-7f", "-f", "--island", "cloud-a", "--since", "10m", "--json"});
  CHECK(followed.exit == 0);
  CHECK(std::count(followed.out.begin(), followed.out.end(), '\n') == 3);
  CHECK(json::parse(followed.out.substr(0, followed.out.find('\n')))["kind"] == "round_committed");
  const json last = coordinator.asked("events").back();
  CHECK(last["after"] == 3);
  CHECK(last["run"] == "r-7f3a9c12");
  CHECK(last["island"] == "cloud-a");
  CHECK(last["since_unix_ms"].is_number());
}

TEST_CASE("wait: the run's end is the exit code, and a time-out is 5") {
  std::string state = "running";
  int questions = 0;
  ScriptedCoordinator coordinator([&](const std::string&, const json&) {
    ++questions;
    return document_reply(status_in(questions > 1 ? state : "running"));
  });
  state = "completed";
  const Called completed = coordinator.call({"wait", "r"});
  CHECK(completed.exit == 0);
  CHECK(completed.out.find("completed: with 3 of 3 islands") != std::string::npos);
  CHECK(completed.err.find("is running") != std::string::npos);
  state = "failed";
  CHECK(coordinator.call({"wait", "r"}).exit == 1);
  state = "cancelled";
  CHECK(coordinator.call({"wait", "r"}).exit == 6);
  state = "running";
  const Called late = coordinator.call({"wait", "r", "--timeout", "50ms"});
  CHECK(late.exit == 5);
  CHECK(late.err.find("has not ended within 50 ms: it is running, with 3 of 3 islands") != std::string::npos);
  CHECK(coordinator.call({"wait", "r", "--timeout", "soon"}).exit == 2);
}

TEST_CASE("status --watch ends when the run ends") {
  int questions = 0;
  ScriptedCoordinator coordinator(
      [&](const std::string&, const json&) { return document_reply(status_in(++questions < 3 ? "running" : "completed")); });
  const Called called = coordinator.call({"status", "--watch", "--every", "50ms", "--json"});
  CHECK(called.exit == 0);
  CHECK(std::count(called.out.begin(), called.out.end(), '\n') == 3);
  CHECK(coordinator.asked("status").back()["run"] == "r-7f3a9c12");
  CHECK(coordinator.call({"status", "--watch", "--every", "1us"}).exit == 2);
}

TEST_CASE("an answer of the coordinator that a full disk cut off is a failure, and one that follows ends with it") {
  ScriptedCoordinator coordinator([&](const std::string& verb, const json&) {
    return document_reply(verb == "runs" ? json{{"runs", json::array()}} : verb == "submit" ? json{{"run", "r-1"}} : status_in("running"));
  });
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"runs"},
                                             {"status"},
                                             {"status", "--json"},
                                             {"status", "--watch", "--every", "50ms"},
                                             {"submit", atl_test::source_folder() + "/examples/quickstart.toml", "-q"}}) {
    const Called called = call_into("/dev/full", arguments, {{"ATOLL_STATE", coordinator.state().string()}});
    INFO(arguments.front() << ": " << called.err);
    CHECK(called.exit == 1);
    CHECK(called.err.find("standard output cannot be written") != std::string::npos);
  }
}

TEST_CASE("status --watch begins at the window's top, says what it leaves out, and follows the window's size") {
  std::atomic<int> questions = 0;
  ScriptedCoordinator coordinator([&](const std::string&, const json&) {
    json document = status_in(++questions < 4 ? "running" : "completed");
    for (int i = 0; i < 40; ++i) {
      json island = document["islands"][0];
      island["name"] = "island-" + std::to_string(i);
      document["islands"].push_back(island);
    }
    return document_reply(document);
  });
  std::istringstream in;
  std::ostringstream out;
  std::ostringstream err;
  const Streams streams{in,   out,   err, false,
                        true, false, 80,  [&] {
                          return std::optional(questions < 3 ? WindowSize{80, 24} : WindowSize{120, 10}); }};
  const std::string state = coordinator.state().string();
  const int exit = run_command_line(std::vector<std::string>{"status", "--watch", "--every", "50ms"}, streams,
                                    [&](const std::string& name) { return name == "ATOLL_STATE" ? std::optional(state) : std::nullopt; });
  CHECK(exit == 0);
  std::vector<std::vector<std::string>> pictures;
  const std::string home = "\x1b[H\x1b[2J";
  for (std::size_t at = out.str().find(home); at != std::string::npos;) {
    const std::size_t next = out.str().find(home, at + 1);
    std::istringstream picture(out.str().substr(at + home.size(), next - at - home.size()));
    pictures.emplace_back();
    for (std::string line; std::getline(picture, line);) {
      pictures.back().push_back(line);
    }
    at = next;
  }
  REQUIRE(pictures.size() == 4);
  CHECK(pictures[0].size() == 23);  // the cursor stands in the last line
  CHECK(pictures[2].size() == 9);
  for (std::size_t i = 0; i < 3; ++i) {
    INFO(pictures[i].back());
    CHECK(pictures[i].front().find("r-7f3a9c12") != std::string::npos);
    CHECK(pictures[i][1].find("running") != std::string::npos);
    CHECK(pictures[i].back().find(" more lines: enlarge the window, or see `atoll status r-7f3a9c12`") != std::string::npos);
  }
  CHECK(pictures[3].size() > 40);  // at the end it is shown whole
}

TEST_CASE("what goes into a pipe is not wrapped whatever COLUMNS says, and in a terminal it is the width") {
  ScriptedCoordinator coordinator([&](const std::string&, const json&) {
    json document = status_in("running");
    document["run"]["reason"] = std::string(40, 'x') + " " + std::string(40, 'y') + " " + std::string(40, 'z');
    return document_reply(document);
  });
  const auto lines = [&](bool terminal, std::size_t columns) {
    std::istringstream in;
    std::ostringstream out;
    std::ostringstream err;
    const Streams streams{in, out, err, false, terminal, false, columns};
    const std::map<std::string, std::string> variables = {{"ATOLL_STATE", coordinator.state().string()}, {"COLUMNS", "60"}};
    run_command_line(std::vector<std::string>{"status"}, streams, [&](const std::string& name) {
      const auto found = variables.find(name);
      return found == variables.end() ? std::nullopt : std::optional(found->second);
    });
    return out.str();
  };
  CHECK(lines(false, kNoEdge).find(std::string(40, 'x') + " " + std::string(40, 'y')) != std::string::npos);
  CHECK(lines(true, 200).find(std::string(40, 'x') + " " + std::string(40, 'y')) == std::string::npos);
}

TEST_CASE("submit --follow ends with the run and its exit code") {
  int events = 0;
  ScriptedCoordinator coordinator([&](const std::string& verb, const json&) {
    if (verb == "submit") {
      return document_reply(documented("submit"));
    }
    if (verb == "status") {
      return document_reply(status_in("failed"));
    }
    json document = documented("events");
    document["next"] = ++events;
    if (events > 2) {
      document["events"] = json::array();
      document["ended"] = true;
      document["state"] = "failed";
    }
    return document_reply(document);
  });
  const Called called = coordinator.call({"submit", atl_test::source_folder() + "/examples/diloco-text.toml", "--follow"});
  CHECK(called.exit == 1);
  CHECK(called.out.find("round 7 committed") != std::string::npos);
  CHECK(called.out.find("failed: with 3 of 3 islands") != std::string::npos);
}

TEST_CASE("cancel and resume say what the run is now") {
  ScriptedCoordinator coordinator(documented_reply);
  CHECK(coordinator.call({"cancel", "text"}).out == "run r-7f3a9c12 (text) is cancelled\n");
  const Called resumed = coordinator.call({"resume", "text"});
  CHECK(resumed.exit == 0);
  CHECK(resumed.out.starts_with("run r-7f3a9c12 (text) goes on (now cancelled); "));
  CHECK(coordinator.asked("resume").back() == json{{"run", "text"}});
  CHECK(coordinator.call({"cancel"}).exit == 2);
}

TEST_CASE("token create prints the token alone") {
  ScriptedCoordinator coordinator(documented_reply);
  const Called called = coordinator.call({"token", "create", "--expires", "2h", "--name", "cloud-a"});
  CHECK(called.out == "atoll1-abc\n");
  CHECK(called.err.find("atoll agent --join TOKEN") != std::string::npos);
  CHECK(coordinator.asked("token_create").back() == json{{"role", "island"}, {"name", "cloud-a"}, {"expires_ms", 7200000}});
  CHECK(coordinator.call({"token", "create", "--role", "king"}).exit == 2);
  CHECK(coordinator.call({"token", "revoke", "t-1"}).out == "revoked token t-1\n");
  CHECK(coordinator.call({"token", "revoke", "porto"}).out == "revoked island porto (i-2): it has no access any more\n");
  CHECK(coordinator.call({"islands", "revoke", "porto"}).out ==
        "island porto (i-2) has no access any more, on open connections neither; let it in again with a new token\n");
  CHECK(coordinator.asked("token_revoke").back() == json{{"id", "porto"}, {"kind", "island"}});
  CHECK(coordinator.call({"islands", "revoke", "gone"}).out == "island gone (i-2) had been revoked before: nothing changed\n");
  CHECK(coordinator.call({"token"}).exit == 2);
}

TEST_CASE("token use makes a machine an operator's") {
  ScriptedCoordinator coordinator(documented_reply);
  const std::filesystem::path state = coordinator.state() / "elsewhere";
  const auto token = [&](const std::string& secret, const std::string& role, TimePoint expires) {
    return to_text({coordinator.address(), coordinator.public_key(), secret, role, expires}).value();
  };
  const TimePoint later = now() + std::chrono::hours(1);
  const auto use = [&](const std::string& text) { return atl::call({"token", "use", text, "--state", state.string()}); };
  CHECK(use("nonsense").exit == 2);
  CHECK(use(token("goodgoodgoodgoodgoodgoodgoodgood", "island", later)).exit == 2);
  CHECK(use(token("goodgoodgoodgoodgoodgoodgoodgood", "operator", now() - std::chrono::hours(1))).exit == 7);
  const Called reused = use(token("usedusedusedusedusedusedusedused", "operator", later));
  CHECK(reused.exit == 7);
  CHECK(reused.err.find("this token was used already") != std::string::npos);
  CHECK(use(token("goodgoodgoodgoodgoodgoodgoodgood", "operator", later)).exit == 0);
  CHECK(atl::call({"runs", "--state", state.string()}).exit == 0);
}

TEST_CASE("token use remembers the address that it was given, where the coordinator answered, not the token's") {
  ScriptedCoordinator coordinator(documented_reply);
  const std::filesystem::path state = coordinator.state() / "elsewhere";
  const std::string token = to_text({"tcp://127.0.0.1:1", coordinator.public_key(), "goodgoodgoodgoodgoodgoodgoodgood", "operator",
                                     now() + std::chrono::hours(1)})
                                .value();
  CHECK(atl::call({"token", "use", token, "--state", state.string(), "--coordinator", coordinator.address()}).exit == 0);
  CHECK(atl::call({"runs", "--state", state.string()}).exit == 0);
}

TEST_CASE("a token comes from a file, standard input or the environment, and not from two of them") {
  ScriptedCoordinator coordinator(documented_reply);
  const atl_test::TemporaryFolder folder;
  const std::string good = "goodgoodgoodgoodgoodgoodgoodgood";
  const std::string token =
      to_text({coordinator.address(), coordinator.public_key(), good, "operator", now() + std::chrono::hours(1)}).value();
  const std::string file = folder.write("token", token + "\n").string();
  int states = 0;
  const auto use = [&](std::vector<std::string> how, const std::map<std::string, std::string>& environment = {},
                       const std::string& in = {}) {
    how.insert(how.begin(), {"token", "use", "--state", (folder.path() / std::to_string(++states)).string()});
    return atl::call(how, environment, in);
  };
  CHECK(use({"--join-file", file}).exit == 0);
  CHECK(use({"--join-file", "-"}, {}, "  " + token + "\r\nanother line\n").exit == 0);
  CHECK(use({"--join-file", folder.write("marked", "\xEF\xBB\xBF" + token + "\r\n").string()}).exit == 0);
  std::string wide = "\xFF\xFE";
  for (const char c : token) {
    wide += {c, '\0'};
  }
  const Called utf16 = use({"--join-file", folder.write("wide", wide).string()});
  CHECK(utf16.exit == 2);
  CHECK(utf16.err.find("wide is UTF-16 text, as PowerShell's > and some editors write; save it as UTF-8") != std::string::npos);
  CHECK(use({}, {{"ATOLL_JOIN_TOKEN", token}}).exit == 0);
  CHECK(use({token}, {{"ATOLL_JOIN_TOKEN", "not this one"}}).exit == 0);
  CHECK(use({}).exit == 2);
  CHECK(use({token, "--join-file", file}).exit == 2);
  CHECK(use({"--join-file", (folder.path() / "none").string()}).exit == 4);
  CHECK(use({"--join-file", folder.path().string()}).exit == 1);
  CHECK(use({"--join-file", folder.write("empty", "").string()}).exit == 2);
  CHECK(use({"--join-file", folder.write("zero", std::string(1 << 20, 'x')).string()}).exit == 2);
  CHECK(use({"--join-file", atl_test::make_zero_device(folder.path() / "device").string()}).exit == 2);
  const Called agent = atl::call({"agent", "--state", (folder.path() / "agent").string(), "--join-file", "-"}, {}, "nonsense\n");
  CHECK(agent.exit == 2);
  CHECK(agent.err.find("nonsense") == std::string::npos);
}

TEST_CASE("generate --run fetches the run's newest model and leaves nothing behind") {
  const atl_test::TemporaryFolder scratch;
  ServedModel served;
  const atl_test::TemporaryFilesIn inside(scratch.path());
  const Called called = served.call({"generate", "--run", "text"}, {{"ATOLL_TRAINER_MODULE", atl_test::fixture_module()}});
  INFO(called.err);
  CHECK(called.exit == 20 + 15);  // the fixture could read the model and returns 20 + argc
  CHECK(served.coordinator().asked("export").back()["run"] == "text");
  CHECK(std::filesystem::is_empty(scratch.path()));
}

TEST_CASE("generate takes one of --model and --run, and its errors are export's") {
  ScriptedCoordinator coordinator([](const std::string&, const json&) { return error_reply(Code::not_found, "no run fits \"x\""); });
  CHECK(coordinator.call({"generate"}).exit == 2);
  CHECK(coordinator.call({"generate", "--run", "x", "--model", "y"}).exit == 2);
  CHECK(coordinator.asked("export").empty());
  const Called generated = coordinator.call({"generate", "--run", "x"});
  const Called exported = coordinator.call({"export", "x", "-o", (coordinator.state() / "model").string()});
  CHECK(generated.exit == 4);
  CHECK(generated.err == exported.err);
}

}  // namespace of_operator_commands_test
