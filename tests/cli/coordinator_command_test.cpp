// `atoll coordinator`: init, and the service as a process of its own: refused twice, killed, started again, stopped.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/catch.hpp"
#include "tests/cli/command_call.hpp"
#include "tests/temporary_folder.hpp"
#include "transport/base/free_port.hpp"

namespace of_coordinator_command_test {

using namespace atl;
using nlohmann::json;

namespace {

std::string free_address() { return "tcp://127.0.0.1:" + std::to_string(free_port().value()); }

// `atoll coordinator` in a child process, from its ready line on.
class Service {
 public:
  explicit Service(const std::string& state, const std::vector<std::string>& options = {}) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(ends[0]);
      std::ofstream out("/dev/fd/" + std::to_string(ends[1]));
      ::close(ends[1]);
      std::ofstream err("/dev/null");
      std::istringstream in;
      std::vector<std::string> arguments = {"coordinator", "--state", state};
      arguments.insert(arguments.end(), options.begin(), options.end());
      const int exit = run_command_line(arguments, Streams{in, out, err}, [](const std::string&) { return std::nullopt; });
      out.close();
      ::_exit(exit);
    }
    ::close(ends[1]);
    char byte = 0;
    while (byte != '\n' && ::read(ends[0], &byte, 1) == 1) {
      ready_ += byte;
    }
    ::close(ends[0]);
  }
  ~Service() {
    if (pid_ > 0) {
      end(SIGKILL);
    }
  }
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // Its exit code, or minus the signal that ended it.
  int end(int signal) {
    int status = 0;
    ::kill(pid_, signal);
    ::waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  [[nodiscard]] const std::string& ready() const { return ready_; }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
  std::string ready_;
};

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// What a web server on loopback answers, with its headers.
std::string get(const std::string& host, const std::string& path) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(host.substr(host.find(':') + 1))));
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  REQUIRE(::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  const std::string request = "GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n";
  REQUIRE(::send(socket, request.data(), request.size(), 0) == static_cast<ssize_t>(request.size()));
  std::string answer;
  char buffer[4096];
  for (ssize_t size = 0; (size = ::recv(socket, buffer, sizeof buffer, 0)) > 0;) {
    answer.append(buffer, static_cast<std::size_t>(size));
  }
  ::close(socket);
  return answer;
}

}  // namespace

TEST_CASE("coordinator init makes a state directory once and says what to do next") {
  const atl_test::TemporaryFolder folder;
  const std::string state = folder.path() / "state";
  const Called none = call({"coordinator", "--state", state});
  CHECK(none.exit == 4);
  CHECK(has(none.err, "atoll coordinator init --state " + state));
  const Called bad = call({"coordinator", "init", "--state", state, "--bind", "nonsense"});
  CHECK(bad.exit == 2);
  CHECK(has(bad.err, "bind"));
  const Called made = call({"coordinator", "init", "--state", state, "--bind", "tcp://127.0.0.1:4400", "--name", "lab \"one\"", "--json"});
  REQUIRE(made.exit == 0);
  CHECK(json::parse(made.out)["advertise"] == "tcp://127.0.0.1:4400");
  CHECK(json::parse(made.out)["name"] == "lab \"one\"");
  const Called again = call({"coordinator", "init", "--state", state});
  CHECK(again.exit == 8);
  CHECK(has(again.err, state));
  const std::string other = folder.path() / "other";
  const Called talk = call({"coordinator", "init"}, {{"ATOLL_STATE", other}});
  CHECK(talk.exit == 0);
  CHECK(has(talk.err, "next: atoll coordinator"));
  std::ofstream(folder.path() / "state" / "coordinator.toml") << "bind = \"tcp://";
  const Called broken = call({"coordinator", "--state", state});
  CHECK(broken.exit == 2);
  CHECK(has(broken.err, "coordinator.toml:1"));
  std::ofstream(folder.path() / "state" / "coordinator.toml") << "bind = \"tcp://127.0.0.1:4400\"\nnetwrok = \"wan\"\n";
  const Called misspelt = call({"coordinator", "--state", state});
  CHECK(misspelt.exit == 2);
  CHECK(has(misspelt.err, "coordinator.toml:2: unknown key \"netwrok\"; nearest is network"));
  std::ofstream(folder.path() / "state" / "coordinator.toml") << "bind = \"tcp://127.0.0.1:4400\"\nnetwork = 3\n";
  CHECK(call({"coordinator", "--state", state}).exit == 2);
  std::ofstream(folder.path() / "state" / "coordinator.toml") << std::string(
      "\xff\xfe"
      "b\0i\0n\0d\0=\0",
      12);
  CHECK(has(call({"coordinator", "--state", state}).err, "coordinator.toml is UTF-16 text"));
  // Without its key it is another coordinator to its islands: it is not called none, and none is to be made in its place.
  std::filesystem::remove(folder.path() / "other" / "keys" / "coordinator");
  const Called lost = call({"coordinator", "--state", other});
  CHECK(lost.exit == 4);
  CHECK(has(lost.err, other + "/keys/coordinator is gone, the key by which islands know this coordinator"));
}

TEST_CASE("what is no backup makes no coordinator and leaves nothing") {
  const atl_test::TemporaryFolder folder;
  const std::string state = folder.path() / "state";
  REQUIRE(call({"coordinator", "init", "--state", folder.path() / "other", "--bind", "tcp://127.0.0.1:4400"}).exit == 0);
  for (const std::string& content : {std::string(), std::string("no database"), std::string(100'000, 'x')}) {
    const std::string file = folder.write("file", content);
    const Called made = call({"coordinator", "init", "--from", file, "--state", state});
    CHECK(made.exit == 2);
    CHECK(has(made.err, file + " is no backup of a coordinator"));
    CHECK_FALSE(std::filesystem::exists(state));
  }
}

TEST_CASE("a coordinator serves commands, keeps others off its state and port, survives kill -9 and stops on SIGTERM") {
  const atl_test::TemporaryFolder folder;
  const std::string state = folder.path() / "state";
  const std::string address = free_address();
  REQUIRE(call({"coordinator", "init", "--state", state, "--bind", address}).exit == 0);
  const std::string run_file = folder.write("run.toml",
                                            "[run]\nname = \"t\"\n[data]\nset = \"corpus\"\n[training]\nsteps = 200\nwarmup_steps = 10\n"
                                            "[islands]\nmin = 2\nmax = 2\n");
  std::string run;
  {
    Service service(state);
    INFO(service.ready());
    REQUIRE(has(service.ready(), address));
    CHECK(has(service.ready(), "atoll token create --state " + state));
    const Called submitted = call({"submit", run_file, "--state", state, "-q"});
    REQUIRE(submitted.exit == 0);
    run = submitted.out.substr(0, submitted.out.find('\n'));

    const Called second = call({"coordinator", "--state", state});
    CHECK(second.exit == 8);
    CHECK(has(second.err, "pid " + std::to_string(service.pid()) + ")"));
    const std::string other = folder.path() / "other";
    REQUIRE(call({"coordinator", "init", "--state", other, "--bind", address}).exit == 0);
    const Called taken = call({"coordinator", "--state", other});
    CHECK(taken.exit == 8);
    CHECK(has(taken.err, "in use"));
    // Another coordinator's operator is not ours.
    CHECK(call({"runs", "--state", state, "--key", folder.path() / "other" / "keys" / "operator"}).exit == 7);
    CHECK(service.end(SIGKILL) == -SIGKILL);
  }
  CHECK(call({"runs", "--state", state}).exit == 3);
  {
    Service service(state);
    REQUIRE(has(service.ready(), address));
    const Called status = call({"status", run, "--state", state, "--json"});
    REQUIRE(status.exit == 0);
    CHECK(json::parse(status.out)["run"]["state"] == "queued");
    CHECK(service.end(SIGTERM) == 0);
  }
  {
    Service service(state);
    REQUIRE(has(service.ready(), address));
    CHECK(service.end(SIGINT) == 0);
  }
}

TEST_CASE("a coordinator shows what it knows to browsers and Prometheus, on this machine") {
  const atl_test::TemporaryFolder folder;
  const std::string state = folder.path() / "state";
  REQUIRE(call({"coordinator", "init", "--state", state, "--bind", free_address()}).exit == 0);
  const std::string web = free_address().substr(6);
  const std::string run_file = folder.write(
      "run.toml",
      "[run]\nname = \"t\"\n[data]\nset = \"corpus\"\n[training]\nsteps = 200\nwarmup_steps = 10\n[islands]\nmin = 2\nmax = 2\n");
  {
    Service service(state, {"--web", web});
    CHECK(has(service.ready(), "page at http://" + web + "/"));
    REQUIRE(call({"submit", run_file, "--state", state, "-q"}).exit == 0);
    CHECK(has(get(web, "/"), "<!doctype html>"));
    CHECK(has(get(web, "/api/runs/t"), "\"state\":\"queued\""));
    CHECK(has(get(web, "/api/runs/t/metrics"), "\"metrics\":[]"));
    CHECK(has(get(web, "/metrics"), "atoll_runs{state=\"queued\"} 1"));
    CHECK(has(get(web, "/api/islands"), "\"islands\":[]"));
    CHECK(has(get(web, "/api/runs/nobody"), "404"));

    const std::string other = folder.path() / "other";
    REQUIRE(call({"coordinator", "init", "--state", other, "--bind", free_address()}).exit == 0);
    const Called taken = call({"coordinator", "--state", other, "--web", web});
    CHECK(taken.exit == 8);
    CHECK(has(taken.err, "the page cannot be served at " + web + ": the port is in use"));
    const Called open = call({"coordinator", "--state", other, "--web", "0.0.0.0:4480"});
    CHECK(open.exit == 2);
    CHECK(has(open.err, "ssh -L 4480:127.0.0.1:4480"));
    CHECK(service.end(SIGTERM) == 0);
  }
  std::ofstream(folder.path() / "state" / "coordinator.toml", std::ios::app) << "web = \"" << web << "\"\n";
  Service service(state);
  CHECK(has(service.ready(), "page at http://" + web + "/"));
  CHECK(has(get(web, "/api/runs/t"), "\"state\":\"queued\""));
  CHECK(service.end(SIGTERM) == 0);
}

}  // namespace of_coordinator_command_test
