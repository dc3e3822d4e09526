// Commands in process: exit code, stdout, stderr.
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "cli/doctor/doctor.hpp"
#include "cli/line/command.hpp"
#include "cli/line/command_line.hpp"
#include "cli/run_file/run_file.hpp"
#include "cli/settings/state_directory.hpp"
#include "tests/catch.hpp"
#include "tests/cli/command_call.hpp"
#include "tests/places.hpp"
#include "tests/temporary_folder.hpp"
#include "transport/base/private_folder.hpp"
#include "transport/zmq/tcp_tuning.hpp"

namespace of_commands_test {

using namespace atl;
using nlohmann::json;

namespace {

std::string file_text(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// A file in a folder of its own, removed at the end.
struct TemporaryFile {
  atl_test::TemporaryFolder folder;
  std::filesystem::path path;
  TemporaryFile(const std::string& name, const std::string& text) : path(folder.write(name, text)) {}
};

// Every command with its path.
void each_command(const Command& command, std::vector<std::string> path,
                  const std::function<void(const Command&, const std::vector<std::string>&)>& visit) {
  visit(command, path);
  for (const Command& subcommand : command.subcommands) {
    std::vector<std::string> longer = path;
    longer.push_back(subcommand.name);
    each_command(subcommand, longer, visit);
  }
}

}  // namespace

TEST_CASE("every command has help that names the exit codes") {
  each_command(atoll_command(), {}, [](const Command& command, std::vector<std::string> path) {
    if (command.passes_arguments) {
      return;
    }
    path.push_back("--help");
    const Called called = call(path);
    INFO(called.out);
    CHECK(called.exit == 0);
    CHECK(called.err.empty());
    CHECK(called.out.find("70 internal · 130 interrupted") != std::string::npos);
    CHECK_FALSE(command.summary.empty());
    if (command.run) {
      CHECK(called.out.find("--json") != std::string::npos);
    }
  });
}

TEST_CASE("no command, unknown commands and options are usage errors on stderr") {
  const Called none = call({});
  CHECK(none.exit == 2);
  CHECK(none.out.empty());
  CHECK(none.err.find("validate") != std::string::npos);
  const Called slip = call({"vaildate"});
  CHECK(slip.exit == 2);
  CHECK(slip.err == "atoll: unknown command \"vaildate\"; nearest is validate; try: atoll --help\n");
  const Called option = call({"validate", "--jsno", "x"});
  CHECK(option.exit == 2);
  CHECK(option.err == "atoll: unknown option \"--jsno\"; nearest is --json; try: atoll validate --help\n");
  CHECK(call({"version", "-o", "xml"}).exit == 2);
  const Called in_json = call({"version", "--jsonn", "-o", "json"});
  CHECK(in_json.exit == 2);
  CHECK(json::parse(in_json.err)["error"]["code"] == "invalid_argument");
}

TEST_CASE("a budget that no island can live on is refused before anything is started") {
  const atl_test::TemporaryFolder folder;
  const std::string state = (folder.path() / "state").string();
  for (const auto& [uplink, said] : std::map<std::string, std::string>{
           {"20kbit", "--uplink: 20kbit: an island needs at least 500kbit to take part"}, {"fast", "--uplink: "}}) {
    const Called refused = call({"local", atl_test::source_folder() + "/examples/quickstart.toml", "--uplink", uplink, "--state", state});
    INFO(refused.err);
    CHECK(refused.exit == 2);
    CHECK(refused.err.find(said) != std::string::npos);
    CHECK_FALSE(std::filesystem::exists(state));
  }
}

TEST_CASE("help says what an option is where it is not given, and `help COMMAND` is COMMAND --help") {
  const Called generate = call({"generate", "--help"});
  for (const char* said : {"how many to write (else 200)", "(else 0.8)", "(else 40)", "(else auto)"}) {
    INFO(said);
    CHECK(generate.out.find(said) != std::string::npos);
  }
  CHECK(call({"token", "create", "--help"}).out.find("(else 24h)") != std::string::npos);
  CHECK(call({"help", "token", "create"}).out == call({"token", "create", "--help"}).out);
  CHECK(call({"help"}).out == call({"--help"}).out);
}

TEST_CASE("a command whose standard output is full fails and says so") {
  const std::string file = atl_test::source_folder() + "/examples/quickstart.toml";
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{{"version"},
                                                                                         {"version", "--json"},
                                                                                         {"--version"},
                                                                                         {"--help"},
                                                                                         {"help", "status"},
                                                                                         {"validate", file},
                                                                                         {"validate", file, "--json"},
                                                                                         {"validate", "--keys-markdown"},
                                                                                         {"completion", "bash"}}) {
    const Called into_pipe = call(arguments);
    const Called called = call_into("/dev/full", arguments);
    INFO(arguments.front() << ": " << called.err);
    CHECK(into_pipe.exit == 0);
    CHECK(called.exit == 1);
    CHECK(called.err.find("standard output cannot be written") != std::string::npos);
  }
  // What failed for another reason keeps its exit code.
  CHECK(call_into("/dev/full", {"validate", "/nowhere.toml"}).exit == call({"validate", "/nowhere.toml"}).exit);
}

TEST_CASE("version") {
  CHECK(call({"version"}).out == "atoll 0.1.0 (protocol 1)\n");
  CHECK(call({"--version"}).out == "atoll 0.1.0 (protocol 1)\n");
  CHECK(json::parse(call({"version", "-o", "json"}).out) == json{{"schema", 1}, {"version", "0.1.0"}, {"protocol", 1}});
}

TEST_CASE("validate says what a good file comes to") {
  const Called good = call({"validate", atl_test::source_folder() + "/examples/diloco-text.toml"});
  CHECK(good.exit == 0);
  CHECK(
      good.err ==
      atl_test::source_folder() +
          "/examples/diloco-text.toml: note: outer_momentum = 0.9 pays in long runs, from some 100 rounds on, and this one synchronises 67 "
          "times: "
          "with outer_learning_rate = 1.0 and outer_momentum = 0 short runs ended at a lower loss\n");
  CHECK(good.out == atl_test::source_folder() +
                        "/examples/diloco-text.toml: valid: diloco, 67 rounds of 30 inner steps, 0.9 M parameters, 2 to 4 islands\n");
  const json document = json::parse(call({"validate", "-o", "json", atl_test::source_folder() + "/examples/diloco-text.toml"}).out);
  CHECK(document["schema"] == 1);
  CHECK(document["files"][0]["valid"] == true);
  CHECK(document["files"][0]["spec"]["strategy"]["inner_steps"] == 30);
  CHECK(document["files"][0]["notes"].size() == 1);
  CHECK(call({"validate", atl_test::source_folder() + "/examples/local-text.toml"}).err.empty());
}

TEST_CASE("validate lists what the built-in trainer would read of this machine's files, and says where it would not") {
  const atl_test::TemporaryFolder folder;
  folder.write("one.txt", std::string(300, 'a'));
  folder.write("two.txt", std::string(200, 'b'));
  const std::string run = (folder.path() / "run.toml").string();
  const auto with = [&](const std::string& data) {
    folder.write("run.toml", "[run]\nname = \"r\"\n[data]\n" + data + "[training]\nsteps = 100\n[strategy]\nname = \"diloco\"\n");
    return call({"validate", run});
  };
  const Called there = with("files = [\"" + folder.path().string() + "/*.txt\"]\n");
  CHECK(there.exit == 0);
  CHECK(there.out.find(run + ": reads 2 files with 500 bytes: one.txt 300, two.txt 200\n") != std::string::npos);
  const json document = json::parse(call({"validate", "-o", "json", run}).out);
  CHECK(document["files"][0]["reads"] == "2 files with 500 bytes: one.txt 300, two.txt 200");
  const std::string where = "each island reads these paths on its own disk, within what its agent allows (--allow-data)";
  const Called absent = with("files = [\"" + folder.path().string() + "/nothing/*.txt\"]\n");
  CHECK(absent.exit == 0);
  CHECK(absent.out.find("reads") == std::string::npos);
  CHECK(absent.err.find("the data are not on this machine (") != std::string::npos);
  CHECK(absent.err.find(where) != std::string::npos);
  // What is there and is something else than the run file says is no mistake of the file's, but named.
  folder.write("three.txt", "odd");  // half a token at its end
  const Called other = with("files = [\"" + folder.path().string() + "/*.txt\"]\nformat = \"uint16\"\n");
  CHECK(other.exit == 0);
  CHECK(other.err.find("on this machine the data cannot be read (") != std::string::npos);
  CHECK(other.err.find(where) != std::string::npos);
  // So is a token that the model has no place for.
  folder.write("tokens.bin", std::string("\x05\x00\x07\x00\xf4\x01\x03\x00", 8));
  const std::string tokens = (folder.path() / "tokens.bin").string();
  const Called beyond = with("files = [\"" + tokens + "\"]\nformat = \"uint16\"\n[model]\nvocabulary = 500\n");
  CHECK(beyond.exit == 0);
  CHECK(beyond.out.find("reads 1 file with 4 uint16 tokens: tokens.bin 4") != std::string::npos);
  CHECK(beyond.err.find("the run would fail on these data: data file " + tokens +
                        ": token 500, number 3 of the file, is not in the model's vocabulary of 500; set model.vocabulary") !=
        std::string::npos);
  CHECK(with("files = [\"" + tokens + "\"]\nformat = \"uint16\"\n[model]\nvocabulary = 501\n").err.find("vocabulary") == std::string::npos);
  const Called named = with("set = \"corpus\"\n");
  CHECK((named.out + named.err).find("on this machine") == std::string::npos);
  CHECK(json::parse(call({"validate", "-o", "json", run}).out)["files"][0]["reads"].is_null());
}

TEST_CASE("validate reports all mistakes of all files") {
  const TemporaryFile bad("bad.toml", "[run]\nnmae = \"x\"\n[training]\nstpes = 3\n");
  const Called called = call({"validate", bad.path.string(), atl_test::source_folder() + "/examples/local-text.toml", "/nonexistent.toml"});
  CHECK(called.exit == 2);
  CHECK(called.out.find("local-text.toml: valid") != std::string::npos);
  CHECK(called.err.find("bad.toml:2:1: unknown key \"nmae\" in [run]; nearest is \"name\"") != std::string::npos);
  CHECK(called.err.find("bad.toml:4:1: unknown key \"stpes\" in [training]; nearest is \"steps\"") != std::string::npos);
  CHECK(called.err.find("/nonexistent.toml: there is no such file") != std::string::npos);
  const Called in_json = call({"validate", "--json", bad.path.string()});
  CHECK(in_json.exit == 2);
  const json problems = json::parse(in_json.out)["files"][0]["problems"];
  REQUIRE(problems.size() == 3);
  CHECK(problems[0]["line"] == 1);  // no data: the file as a whole
  CHECK(problems[1]["key"] == "nmae");
  CHECK(problems[2]["column"] == 1);
  CHECK(call({"validate"}).exit == 2);
}

TEST_CASE("an uplink that is none or nothing is refused before anything starts") {
  for (const char* uplink : {"0mbit", "499kbit", "fast", "-5mbit"}) {
    const Called called = call({"agent", "--state", "/nonexistent/agent", std::string("--uplink=") + uplink});
    INFO(uplink << ": " << called.err);
    CHECK(called.exit == 2);
    CHECK(called.err.find("--uplink") != std::string::npos);
  }
}

TEST_CASE("the run file's page has the code's table of keys") {
  const std::string page = file_text(atl_test::source_folder() + "/docs/run-file.md");
  const std::string begin = "<!-- run file keys -->\n";
  const std::size_t at = page.find(begin);
  REQUIRE(at != std::string::npos);
  const std::size_t end = page.find("<!-- /run file keys -->", at);
  REQUIRE(end != std::string::npos);
  CHECK(page.substr(at + begin.size(), end - at - begin.size()) == run_keys_markdown());
  CHECK(call({"validate", "--keys-markdown"}).out == run_keys_markdown());
}

TEST_CASE("the trainer's module: found, called with its arguments, or missed clearly") {
  const Called missing = call({"trainer", "--help"}, {{"ATOLL_TRAINER_MODULE", "/nonexistent/module.so"}});
  CHECK(missing.exit == 4);
  CHECK(missing.err.find("no file /nonexistent/module.so") != std::string::npos);
  CHECK(missing.err.find("`python -m atoll.build_trainer` makes one") != std::string::npos);

  const TemporaryFile broken("broken.so", "not a library");
  const Called unloadable = call({"trainer"}, {{"ATOLL_TRAINER_MODULE", broken.path.string()}});
  CHECK(unloadable.exit == 3);
  CHECK(unloadable.err.find("cannot be loaded") != std::string::npos);
  CHECK(unloadable.err.find("is the LibTorch that it was made for still there?); `python -m atoll.build_trainer`") != std::string::npos);

  const std::map<std::string, std::string> fixture = {{"ATOLL_TRAINER_MODULE", atl_test::fixture_module()}};
  ::setenv("ATOLL_TEST_MISFIT", "it was made for another", 1);
  const Called misfit = call({"trainer"}, fixture);
  ::unsetenv("ATOLL_TEST_MISFIT");
  CHECK(misfit.exit == 3);
  CHECK(misfit.err.find("fixture_module.so is not this program's built-in trainer: it was made for another; `python") != std::string::npos);
  const Called other = call({"trainer"}, {{"ATOLL_TRAINER_MODULE", "/lib/x86_64-linux-gnu/libm.so.6"}});
  if (std::filesystem::exists("/lib/x86_64-linux-gnu/libm.so.6")) {
    CHECK(other.err.find("it is of another version of Atoll") != std::string::npos);
  }
  CHECK(call({"trainer", "--socket", "x", "--help"}, fixture).exit == 40 + 4);  // the fixture returns 40 + argc
  CHECK(call({"trainer", "fail"}, fixture).exit == 1);
}

TEST_CASE("generate checks what it can before it loads anything") {
  const TemporaryFile model("model.safetensors", "x");
  const std::map<std::string, std::string> fixture = {{"ATOLL_TRAINER_MODULE", atl_test::fixture_module()}};
  CHECK(call({"generate"}, fixture).exit == 2);
  CHECK(call({"generate", "--model", "/nonexistent"}, fixture).exit == 4);
  CHECK(call({"generate", "--model", model.path.string(), "--tokens", "0"}, fixture).exit == 2);
  CHECK(call({"generate", "--model", model.path.string(), "--temperature", "-1"}, fixture).exit == 2);
  CHECK(call({"generate", "--model", model.path.string(), "--temperature", "nan"}, fixture).exit == 2);
  CHECK(call({"generate", "--model", model.path.string(), "--prompt", ""}, fixture).exit == 2);
  CHECK(call({"generate", "--model", model.path.string()}, fixture).exit == 20 + 15);  // the fixture returns 20 + argc
}

TEST_CASE("completion knows every command and every option") {
  for (const std::string shell : {"bash", "zsh", "fish"}) {
    const Called called = call({"completion", shell});
    REQUIRE(called.exit == 0);
    each_command(atoll_command(), {}, [&](const Command& command, const std::vector<std::string>& path) {
      INFO(shell << " " << command.name);
      std::string joined = "atoll";
      for (const std::string& word : path) {
        joined += " " + word;
      }
      CHECK(called.out.find(joined) != std::string::npos);
      for (const CommandOption& option : command.options) {
        const std::size_t at = option.names.find("--");
        if (at != std::string::npos) {
          const std::string name = option.names.substr(at + 2, option.names.find(',', at) - at - 2);
          CHECK(called.out.find(shell == "fish" ? "-l " + name : "--" + name) != std::string::npos);
        }
      }
    });
  }
  CHECK(call({"completion", "tcsh"}).exit == 2);
  CHECK(call({"completion"}).exit == 2);
}

TEST_CASE("bash takes the completion script and completes with it") {
  const TemporaryFile script("completion.bash", call({"completion", "bash"}).out);
  const TemporaryFile out("completion.out", "");
  const auto complete = [&](const std::string& words, int word) {
    const std::string command = "bash -c 'source " + script.path.string() + "; COMP_WORDS=(" + words +
                                "); COMP_CWORD=" + std::to_string(word) + "; _atoll; echo ${COMPREPLY[*]}' >" + out.path.string() + " 2>&1";
    REQUIRE(std::system(command.c_str()) == 0);
    return file_text(out.path.string());
  };
  CHECK(complete("atoll val", 1) == "validate\n");
  CHECK(complete("atoll completion z", 2) == "zsh\n");
  CHECK(complete("atoll validate --keys", 2) == "--keys-markdown\n");
  CHECK(complete("atoll version -o j", 3) == "json\n");
  CHECK(complete("atoll sample run --router t", 4) == "top-1 top-2 threshold:0.1\n");
  CHECK(complete("atoll sample run --solver h", 4) == "heun\n");
}

TEST_CASE("there is a manual page for every command, with its options") {
  const atl_test::TemporaryFolder folder;
  REQUIRE(call({"manual", folder.path().string()}).exit == 0);
  each_command(atoll_command(), {}, [&](const Command& command, const std::vector<std::string>& path) {
    std::string name = "atoll";
    for (const std::string& word : path) {
      name += "-" + word;
    }
    INFO(name);
    const std::string page = file_text((folder.path() / (name + ".1")).string());
    CHECK(page.starts_with(".TH " + name + " 1 "));
    CHECK(page.find("\n.SH EXIT STATUS\n") != std::string::npos);
    for (const CommandOption& option : command.options) {
      std::string head;
      for (const char c : option.names.substr(0, option.names.find(','))) {
        head += c == '-' ? std::string("\\-") : std::string(1, c);
      }
      CHECK(page.find("\n.TP\n\\fB" + head + "\\fR") != std::string::npos);
    }
  });
  CHECK(call({"manual", "/proc/nowhere"}).exit == 1);
}

TEST_CASE("exit codes") {
  CHECK(exit_for(Code::invalid_argument) == Exit::usage);
  CHECK(exit_for(Code::unavailable) == Exit::unreachable);
  CHECK(exit_for(Code::timeout) == Exit::timed_out);
  CHECK(exit_for(Code::internal) == Exit::internal);
  std::set<int> distinct;
  for (const ExitMeaning& meaning : kExitMeanings) {
    distinct.insert(static_cast<int>(meaning.code));
  }
  CHECK(distinct == std::set<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 70, 130});
}

TEST_CASE("doctor says what the built-in trainer computes with, and wants the reference BLAS replaced") {
  const std::string module = "/usr/lib/atoll/atoll_trainer.so";
  const auto judged = [&](const std::string& text) { return judge_trainer(module, module, {text, false, 0}); };
  const Finding slow = judged("LibTorch 2.6.0 (AVX2), a BLAS that is not OpenBLAS: /usr/lib/x86_64-linux-gnu/blas/libblas.so.3.12.0");
  CHECK(slow.health == Health::bad);
  CHECK(slow.text.find("apt-get install libopenblas0-pthread") != std::string::npos);
  CHECK(judged("LibTorch 2.6.0 (AVX2), a BLAS that is not OpenBLAS: /usr/lib/x86_64-linux-gnu/blis-pthread/libblas.so.4").health ==
        Health::good);
  const Finding good = judged("LibTorch 2.13.0 (AVX512), MKL 2024.2");
  CHECK(good.health == Health::good);
  CHECK(good.text == "the built-in trainer is " + module + ": LibTorch 2.13.0 (AVX512), MKL 2024.2");
  CHECK(judged("").health == Health::bad);  // its LibTorch is gone
  CHECK(judged("").text.find("`atoll trainer --facts` tells why") != std::string::npos);
  CHECK(judge_trainer("", module, {}).health == Health::doubtful);
}

TEST_CASE("doctor advises BBR where the kernel has not been given it, and nowhere else") {
  const std::string advice = "modprobe tcp_bbr";
  CHECK(judge_connections({"cubic", "cubic", 0, 0}).text.find(advice) != std::string::npos);
  CHECK(judge_connections({"cubic", "bbr", 0, 0}).text ==
        "the kernel controls congestion with cubic, and with bbr where islands are far apart");
  CHECK(judge_connections({"bbr", "bbr", 0, 0}).text == "the kernel controls congestion with bbr");
  CHECK(judge_connections({"bbr3", "bbr3", 0, 0}).text == "the kernel controls congestion with bbr3");
  CHECK(judge_connections({"bbr", "bbr", 1000, 1000}).health == Health::doubtful);
}

TEST_CASE("what `local` and `token use` make for their state is its owner's alone, as doctor wants it, whatever the umask says") {
  const atl_test::TemporaryFolder folder;
  const mode_t before = ::umask(0022);
  const std::filesystem::path state = folder.path() / "home" / "atoll";
  const std::string run = folder
                              .write("run.toml",
                                     "[run]\nname = \"x\"\n[model]\nlayers = 1\nwidth = 32\nheads = 2\n[data]\nfiles = [\"none\"]\n"
                                     "[training]\nsteps = 2\n[strategy]\ninner_steps = 1\n[islands]\nmin = 1\n")
                              .string();
  // Its program is the test's, so it comes no further than its folders.
  call({"local", run, "--islands", "1"}, {{"ATOLL_STATE", state.string()}, {"PATH", "/bin"}});
  REQUIRE(std::filesystem::exists(state / "local"));
  for (const auto& path : {folder.path() / "home", state, state / "local"}) {
    INFO(path);
    CHECK((std::filesystem::status(path).permissions() & std::filesystem::perms(0077)) == std::filesystem::perms::none);
  }
  const Called doctor = call({"doctor", "--state", state.string()});
  CHECK(doctor.out.find("is its owner's alone") != std::string::npos);
  REQUIRE(write_operator_file(folder.path() / "operator", "tcp://127.0.0.1:1", std::string(40, 'k')));
  CHECK((std::filesystem::status(folder.path() / "operator").permissions() & std::filesystem::perms(0077)) == std::filesystem::perms::none);
  CHECK_FALSE(make_private_folders(std::filesystem::path(run) / "below"));
  ::umask(before);
}

TEST_CASE("doctor says what this machine is fit for, and what must be mended") {
  const atl_test::TemporaryFolder folder;
  const std::string state = (folder.path() / "state").string();
  const Called fresh = call({"doctor", "--state", state, "-o", "json"});
  INFO(fresh.out << fresh.err);
  CHECK(fresh.exit == 0);
  const json document = json::parse(fresh.out);
  CHECK(document["fit"] == true);
  std::set<std::string> looked_at;
  for (const json& finding : document["findings"]) {
    looked_at.insert(finding["what"]);
  }
  CHECK(looked_at == std::set<std::string>{"trainer", "device", "memory", "descriptors", "connections", "state"});
  CHECK(call({"doctor", "--state", state}).out.find("there is no built-in trainer") != std::string::npos);
  std::filesystem::create_directories(state);
  std::filesystem::permissions(state, std::filesystem::perms(0755));
  const Called open_to_all = call({"doctor", "--state", state});
  CHECK(open_to_all.exit == 1);
  CHECK(open_to_all.out.find("chmod 700 " + state) != std::string::npos);
  CHECK(open_to_all.out.find("checkpoints are written with ") != std::string::npos);
  std::filesystem::permissions(state, std::filesystem::perms(0700));
  const std::string run = atl_test::source_folder() + "/examples/diloco-text.toml";
  const Called with_run = call({"doctor", run, "--state", state});
  INFO(with_run.out << with_run.err);
  CHECK(with_run.exit == 0);
  CHECK(with_run.out.find("of which the run's model takes ") != std::string::npos);
  CHECK(call({"doctor", "/nowhere.toml", "--state", state}).exit == 2);
  folder.write("state/agent.toml", "data = [\"corpus=/nowhere\"]\n");
  const Called without_data = call({"doctor", "--state", state});
  CHECK(without_data.exit == 1);
  CHECK(without_data.out.find("data set corpus: ") != std::string::npos);
  folder.write("state/agent.toml", "dta = []\n");
  CHECK(call({"doctor", "--state", state}).out.find("agent.toml:1: unknown key") != std::string::npos);
}

}  // namespace of_commands_test
