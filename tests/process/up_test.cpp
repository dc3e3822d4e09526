// `atoll up` on one machine and `atoll join` on another, as people type them, with a program of one's own that needs no PyTorch.
#include <algorithm>
#include <regex>

#include "tests/places.hpp"
#include "tests/process/cluster.hpp"
#include "transport/base/free_port.hpp"

namespace of_up_test {

using atl_test::Cluster;
using atl_test::CommandResult;
using atl_test::Process;
using atl_test::text_of;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

const std::string kAtoll = atl_test::atoll_program();
constexpr const char* kRunFile =
    "[run]\nname = \"first\"\n[trainer]\nname = \"linear\"\nparameters = \"65\"\n[training]\nsteps = 200\n[strategy]\ninner_steps = 20\n"
    "[islands]\nmin = 2\nmax = 2\n";

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Two machines' worth of state in a folder, and what is typed there.
class Desk {
 public:
  Desk() : port_(std::to_string(atl::free_port().value())) {}

  Process up(const std::string& name, const std::string& state = "first") const {
    return start(name, {"up", "--state", path(state), "--bind", "tcp://127.0.0.1:" + port_, "--name", "lyon", "--trainer", trainer()});
  }
  Process join(const std::string& name, const std::string& line, const std::string& state = "second") const {
    std::vector<std::string> arguments = {"join", "--state", path(state), "--name", "paris", "--trainer", trainer()};
    if (!line.empty()) {
      arguments.insert(arguments.begin() + 1, line);
    }
    return start(name, arguments);
  }
  // A command that ends.
  CommandResult run(const std::vector<std::string>& arguments, std::chrono::seconds at_most = std::chrono::seconds(60)) const {
    const std::string name = "command-" + std::to_string(++commands_);
    Process process = start(name, arguments);
    CommandResult result;
    result.exit = process.wait(at_most);
    result.out = said(name + ".out");
    result.err = said(name + ".err");
    return result;
  }
  [[nodiscard]] std::string said(const std::string& name) const { return text_of(path(name)); }
  [[nodiscard]] std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  // What is to be typed behind "atoll join": the newest line that `up` has printed; "" before there is one.
  [[nodiscard]] std::string line(const std::string& name) const {
    const std::string out = said(name + ".out");
    std::string found;
    const std::regex pattern("atoll join (\\S+)\n");
    for (std::sregex_iterator at(out.begin(), out.end(), pattern); at != std::sregex_iterator(); ++at) {
      found = (*at)[1];
    }
    return found;
  }
  std::string await_line(const std::string& name, const std::string& other_than = "") const {
    Cluster::eventually([&] { return !line(name).empty() && line(name) != other_than; });
    INFO(said(name + ".err"));
    REQUIRE_FALSE(line(name).empty());
    return line(name);
  }
  [[nodiscard]] json ask(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--json", "--state", path("first")});
    return json::parse(run(arguments).out, nullptr, false);
  }
  [[nodiscard]] const std::string& port() const { return port_; }
  void write(const std::string& name, const std::string& text) const { folder_.write(name, text); }

 private:
  static std::string trainer() { return "linear=" + (fs::path(kAtoll).parent_path() / "tests/atoll_linear_trainer").string(); }
  [[nodiscard]] Process start(const std::string& name, const std::vector<std::string>& arguments) const {
    std::vector<std::string> words = {kAtoll};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return Process(words, {{"HOME", path("home")}}, path(name + ".out"), path(name + ".err"));
  }

  atl_test::TemporaryFolder folder_;
  std::string port_;
  mutable int commands_ = 0;
};

bool connected(const Desk& desk, std::size_t count) {
  const json document = desk.ask({"islands"});
  std::size_t found = 0;
  for (const json& island : document.is_object() ? document.value("islands", json::array()) : json::array()) {
    found += island.value("connected", false) ? 1 : 0;
  }
  return found == count;
}

}  // namespace

TEST_CASE("process: up on one machine and join by its line on another train, end in order, and go on the second time without a token") {
  Desk desk;
  desk.write("run.toml", kRunFile);
  Process up = desk.up("up-1");
  const std::string line = desk.await_line("up-1");
  CHECK(line.ends_with("@127.0.0.1:" + desk.port()));
  CHECK(contains(desk.said("up-1.err"), "only this machine reaches 127.0.0.1"));
  CHECK(contains(desk.said("up-1.err"), "http://127.0.0.1:"));
  CHECK(contains(desk.said("up-1.err"), "none: runs that read files leave this island out"));
  Process join = desk.join("join-1", line);
  const std::string next = desk.await_line("up-1", line);  // the next machine's, once this one has been used
  CHECK(next != line);
  CHECK(contains(desk.said("up-1.err"), "island paris has joined"));
  CHECK(Cluster::eventually([&] { return connected(desk, 2); }));
  const CommandResult run = desk.run({"submit", desk.path("run.toml"), "--follow", "--state", desk.path("first")});
  INFO(run.out << run.err << desk.said("up-1.err") << desk.said("join-1.err"));
  CHECK(run.exit == 0);

  // The token is spent, and these two places are taken.
  const CommandResult spent = desk.run({"join", line, "--state", desk.path("third")});
  CHECK(spent.exit == 7);
  CHECK(std::count(spent.err.begin(), spent.err.end(), '\n') == 1);
  const CommandResult again = desk.run({"up", "--state", desk.path("first"), "--bind", "tcp://127.0.0.1:" + desk.port()});
  INFO(again.err);
  CHECK(again.exit == 8);
  CHECK(std::count(again.err.begin(), again.err.end(), '\n') == 1);
  const CommandResult port = desk.run({"up", "--state", desk.path("fourth"), "--bind", "tcp://127.0.0.1:" + desk.port()});
  INFO(port.err);
  CHECK(port.exit == 8);
  CHECK(contains(port.err, "port " + desk.port() + " is in use on this machine"));
  CHECK(std::count(port.err.begin(), port.err.end(), '\n') == 1);

  join.signal(SIGINT);
  CHECK(join.wait() == 0);
  up.signal(SIGINT);
  CHECK(up.wait() == 0);
  const std::string talk = desk.said("up-1.err");
  CHECK(talk.find("agent: island lyon: has left") != std::string::npos);
  CHECK(talk.ends_with("stopped; `atoll up` goes on\n"));

  // The second time, and the first island by the agent's own command.
  Process second = desk.up("up-2");
  desk.await_line("up-2");
  Process rejoin = desk.join("join-2", "");
  CHECK(Cluster::eventually([&] { return connected(desk, 2); }));
  CHECK(desk.ask({"runs", "--all"})["runs"].size() == 1);
  rejoin.signal(SIGINT);
  CHECK(rejoin.wait() == 0);
  CHECK(Cluster::eventually([&] { return connected(desk, 1); }));  // so that two are there only once it is back
  Process same = desk.join("join-3", line);                        // the line that is spent, typed again by who used it
  CHECK(Cluster::eventually([&] { return connected(desk, 2); }));
  same.signal(SIGINT);
  CHECK(same.wait() == 0);
  second.signal(SIGTERM);
  CHECK(second.wait() == 0);
}

TEST_CASE("process: the coordinator and the agent that up has made run by their own commands") {
  Desk desk;
  Process up = desk.up("up");
  desk.await_line("up");
  CHECK(Cluster::eventually([&] { return connected(desk, 1); }));
  up.signal(SIGINT);
  CHECK(up.wait() == 0);
  Process coordinator({kAtoll, "coordinator", "--state", desk.path("first")}, {}, desk.path("c.out"), desk.path("c.err"));
  Process agent({kAtoll, "agent", "--state", desk.path("first")}, {}, desk.path("a.out"), desk.path("a.err"));
  CHECK(Cluster::eventually([&] { return connected(desk, 1); }));
  CHECK(desk.ask({"islands"})["islands"].size() == 1);
  agent.signal(SIGTERM);
  CHECK(agent.wait() == 0);
  coordinator.signal(SIGTERM);
  CHECK(coordinator.wait() == 0);
}

TEST_CASE("process: up ends with the reason when one of its two processes dies, and takes the other with it") {
  for (const std::string victim : {"agent", "coordinator"}) {
    Desk desk;
    Process up = desk.up("up");
    desk.await_line("up");
    CHECK(Cluster::eventually([&] { return connected(desk, 1); }));
    const std::vector<pid_t> children = atl_test::children_of(up.pid());
    REQUIRE(children.size() == 2);
    for (const pid_t child : children) {
      if (contains(text_of("/proc/" + std::to_string(child) + "/cmdline"), std::string(1, 0) + victim + std::string(1, 0))) {
        ::kill(child, SIGKILL);
      }
    }
    CHECK(up.wait() == 70);
    const std::string talk = desk.said("up.err");
    INFO(talk);
    CHECK(contains(talk, "atoll: the process of the " + victim + " was killed by signal 9"));
    for (const pid_t child : children) {
      CHECK(::kill(child, 0) != 0);
    }
  }
}

}  // namespace of_up_test
