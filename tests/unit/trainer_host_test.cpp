// The trainer's process: its output, its end, its silence, its memory.
#include "agent/host/trainer_host.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <thread>

#include "agent/host/trainer_command.hpp"
#include "agent/host/trainer_session.hpp"
#include "tests/catch.hpp"
#include "tests/shell_trainer.hpp"
#include "tests/temporary_folder.hpp"
#include "transport/base/own_disk.hpp"

namespace of_trainer_host_test {

using namespace atl;
using namespace std::chrono_literals;

namespace {

// Until the trainer has printed a line, which its on_line stores in `said`.
void wait_for_line(TrainerHost& host, TimePoint at, const std::string& said) {
  while (said.empty()) {
    pollfd fd{host.watch_fds()[0], POLLIN, 0};
    REQUIRE(::poll(&fd, 1, 20000) == 1);
    REQUIRE_FALSE(host.pump(at).has_value());
  }
}

bool alive(pid_t pid) { return ::kill(pid, 0) == 0; }

}  // namespace

TEST_CASE("trainer host: a clean end, its lines and its environment") {
  std::vector<std::string> lines;
  TrainerCommand command = shell("echo one; echo $ATOLL_TEST_WORD >&2; printf 'no newline'");
  command.environment = {{"ATOLL_TEST_WORD", "two"}};
  command.on_line = [&](const std::string& line) { lines.push_back(line); };
  TrainerHost host = TrainerHost::start(command, now()).value();
  const auto exit = wait_for_exit(host);
  REQUIRE(exit.has_value());
  CHECK(exit->clean);
  CHECK(lines == std::vector<std::string>{"one", "two", "no newline"});
  CHECK_FALSE(host.pump(now()).has_value());
}

TEST_CASE("trainer host: a status, a signal and the last lines are told") {
  TrainerHost failing = TrainerHost::start(shell("echo the reason; exit 3"), now()).value();
  auto exit = wait_for_exit(failing);
  REQUIRE(exit.has_value());
  CHECK_FALSE(exit->clean);
  CHECK(exit->status == 3);
  CHECK(exit->why.find("ended with status 3") != std::string::npos);
  CHECK(exit->why.find("the reason") != std::string::npos);

  TrainerHost crashing = TrainerHost::start(shell("kill -SEGV $$"), now()).value();
  exit = wait_for_exit(crashing);
  REQUIRE(exit.has_value());
  CHECK(exit->signal == SIGSEGV);
  CHECK(exit->why.find("signal 11") != std::string::npos);
}

TEST_CASE("trainer host: what cannot be started says so") {
  TrainerCommand command = shell("true");
  command.program = "/nonexistent/trainer";
  CHECK(TrainerHost::start(command, now()).error().code == Code::not_found);
  command.program = "/etc/passwd";
  CHECK(TrainerHost::start(command, now()).error().code == Code::io);
}

TEST_CASE("trainer host: one that makes no progress is killed and says so, one that waits is not") {
  const TimePoint start = now();
  TrainerCommand command = shell("exec sleep 1000");
  command.hang_after = 60s;
  TrainerHost host = TrainerHost::start(command, start).value();
  CHECK_FALSE(host.pump(start + 500s).has_value());  // nothing is expected of it
  host.expect_progress(true, start + 500s);
  CHECK_FALSE(host.pump(start + 559s).has_value());
  host.note_progress(start + 550s);
  CHECK_FALSE(host.pump(start + 600s).has_value());
  CHECK(alive(host.pid()));
  CHECK_FALSE(host.pump(start + 611s).has_value());  // killed now, reaped at the next call
  const auto exit = wait_for_exit(host);
  REQUIRE(exit.has_value());
  CHECK_FALSE(exit->clean);
  CHECK(exit->why.find("made no progress") != std::string::npos);
}

TEST_CASE("trainer host: one over its memory limit is killed and says so") {
  TrainerCommand command = shell("exec sleep 1000");
  command.memory_limit_bytes = 4096;
  TrainerHost host = TrainerHost::start(command, now()).value();
  const auto exit = wait_for_exit(host);
  REQUIRE(exit.has_value());
  CHECK(exit->why.find("memory, its limit is") != std::string::npos);
}

TEST_CASE("trainer host: stop asks first and insists later") {
  const TimePoint start = now();
  TrainerHost polite = TrainerHost::start(shell("trap 'exit 0' TERM; while :; do sleep 0.01; done"), start).value();
  polite.stop(start);
  auto exit = wait_for_exit(polite);
  REQUIRE(exit.has_value());
  CHECK(exit->clean);

  std::string said;
  TrainerCommand command = shell("trap '' TERM; echo deaf; while :; do sleep 0.01; done");
  command.stop_grace = 10s;
  command.on_line = [&](const std::string& line) { said = line; };
  TrainerHost deaf = TrainerHost::start(command, start).value();
  wait_for_line(deaf, start, said);
  deaf.stop(start);
  CHECK_FALSE(deaf.pump(start + 9s).has_value());
  CHECK(alive(deaf.pid()));
  CHECK_FALSE(deaf.pump(start + 11s).has_value());
  exit = wait_for_exit(deaf);
  REQUIRE(exit.has_value());
  CHECK(exit->signal == SIGKILL);
}

TEST_CASE("trainer host: what the trainer started goes with it, and so does it with its host") {
  pid_t trainer = 0;
  pid_t grandchild = 0;
  {
    std::string said;
    TrainerCommand command = shell("sleep 1000 & echo $!; wait");
    command.on_line = [&](const std::string& line) { said = line; };
    TrainerHost host = TrainerHost::start(command, now()).value();
    wait_for_line(host, now(), said);
    trainer = host.pid();
    grandchild = static_cast<pid_t>(std::stoi(said));
  }
  CHECK_FALSE(alive(trainer));
  const TimePoint until = now() + 20s;
  const auto gone = [&] {  // killed; a zombie until whoever adopted it reaps it
    std::ifstream stat("/proc/" + std::to_string(grandchild) + "/stat");
    std::string pid, name, state;
    return !(stat >> pid >> name >> state) || state == "Z";
  };
  while (!gone() && now() < until) {
    std::this_thread::yield();
  }
  CHECK(gone());
}

TEST_CASE("trainer host: a trainer dies with a host that was killed") {
  std::array<int, 2> pipe{};
  REQUIRE(::pipe(pipe.data()) == 0);
  const pid_t host = ::fork();
  if (host == 0) {
    // The program itself, not a shell around it: only the trainer is told that its host is gone, not what it started.
    Result<TrainerHost> trainer = TrainerHost::start(shell("exec sleep 1000"), now());
    const pid_t pid = trainer ? trainer->pid() : 0;
    [[maybe_unused]] const ssize_t written = ::write(pipe[1], &pid, sizeof pid);
    ::raise(SIGKILL);
  }
  pid_t trainer = 0;
  REQUIRE(::read(pipe[0], &trainer, sizeof trainer) == sizeof trainer);
  ::waitpid(host, nullptr, 0);
  ::close(pipe[0]);
  ::close(pipe[1]);
  REQUIRE(trainer > 0);
  const TimePoint until = now() + 20s;
  const auto gone = [&] {
    std::ifstream stat("/proc/" + std::to_string(trainer) + "/stat");
    std::string pid, name, state;
    return !(stat >> pid >> name >> state) || state == "Z";
  };
  while (!gone() && now() < until) {
    std::this_thread::yield();
  }
  CHECK(gone());
}

TEST_CASE("a trainer is told how many threads its run gives it") {
  agent::SessionSettings settings;
  settings.program = "/bin/true";
  RunSpec spec;
  spec.training.threads = 3;
  const TrainerCommand command = agent::trainer_command(settings, RunId("r-1"), spec, "/tmp/link").value();
  for (const char* name : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"}) {
    CHECK(command.environment.at(name) == "3");
  }
}

TEST_CASE("a trainer of one's own is the command, variables and folder that the island's owner gave its name, below a keeper") {
  const atl_test::TemporaryFolder folder;
  agent::SessionSettings settings;
  settings.program = "/opt/atoll";
  settings.trainers =
      agent::trainer_programs({{"gpt=sh -c 'exit 3'"}, {"gpt=SIZE=4"}, {"gpt=" + folder.path().string()}}, "/nowhere:/bin").value();
  RunSpec spec;
  spec.trainer.name = "gpt";
  const TrainerCommand command = agent::trainer_command(settings, RunId("r-1"), spec, "/tmp/link").value();
  CHECK(command.program == "/opt/atoll");
  CHECK(command.arguments == std::vector<std::string>{"trainer", "--", "/bin/sh", "-c", "exit 3"});
  CHECK(command.environment.at("SIZE") == "4");
  CHECK(command.environment.at("ATOLL_ISLAND_LINK") == "/tmp/link");
  CHECK(command.folder == folder.path());
  spec.trainer.name = "bert";
  const Result<TrainerCommand> unknown = agent::trainer_command(settings, RunId("r-1"), spec, "/tmp/link");
  REQUIRE_FALSE(unknown);
  CHECK(unknown.error().code == Code::unauthorized);
  CHECK(unknown.error().why.find("--trainer bert='COMMAND'") != std::string::npos);
}

TEST_CASE("a trainer inherits neither its agent's secrets nor the agent's place in a group of processes") {
  const std::map<std::string, std::string> had = {{"AWS_SECRET_ACCESS_KEY", "s"},
                                                  {"AWS_ACCESS_KEY_ID", "k"},
                                                  {"AWS_SESSION_TOKEN", "t"},
                                                  {"ATOLL_STORE_TOKEN", "t"},
                                                  {"ATOLL_JOIN_TOKEN", "t"},
                                                  {"WORLD_SIZE", "2"},
                                                  {"RANK", "0"},
                                                  {"MASTER_ADDR", "10.0.0.1"},
                                                  {"SLURM_PROCID", "0"},
                                                  {"SLURM_NTASKS", "4"},
                                                  {"OMPI_COMM_WORLD_SIZE", "2"},
                                                  {"TORCHELASTIC_RUN_ID", "x"},
                                                  {"SLURM_JOB_ID", "17"},
                                                  {"ATOLL_TEST_WORD", "kept"},
                                                  {"ALL_PROXY", "socks5://ada:secret@proxy.example:1080"},
                                                  {"https_proxy", "http://ada:secret@proxy.example:3128"},
                                                  {"HTTP_PROXY", "http://proxy.example:3128"},
                                                  {"AWS_REGION", "eu"}};
  for (const auto& [name, value] : had) {
    ::setenv(name.c_str(), value.c_str(), 1);
  }
  agent::SessionSettings settings;
  const auto variables_of = [&](const std::string& trainer, const std::vector<std::string>& given) {
    RunSpec spec;
    if (!trainer.empty()) {
      settings.trainers = agent::trainer_programs({{"gpt=" + trainer}, given, {}}, "/bin:/usr/bin").value();
      spec.trainer.name = "gpt";
    }
    TrainerCommand command = agent::trainer_command(settings, RunId("r-1"), spec, "/tmp/link").value();
    command.program = "/usr/bin/env";  // in the keeper's place
    command.arguments = {};
    command.folder = "/";
    command.kept = false;
    std::map<std::string, std::string> variables;
    command.on_line = [&](const std::string& line) { variables[line.substr(0, line.find('='))] = line.substr(line.find('=') + 1); };
    TrainerHost host = TrainerHost::start(command, now()).value();
    REQUIRE(wait_for_exit(host));
    return variables;
  };
  for (const char* trainer : {"", "true"}) {  // the built-in one, and one's own
    const std::map<std::string, std::string> alone = variables_of(trainer, {});
    for (const auto& [name, value] : had) {
      INFO(trainer << " " << name);
      CHECK(alone.contains(name) == (name == "SLURM_JOB_ID" || name == "ATOLL_TEST_WORD" || name == "AWS_REGION" || name == "HTTP_PROXY"));
    }
  }
  const auto given = variables_of("true", {"gpt=WORLD_SIZE=1", "gpt=AWS_ACCESS_KEY_ID=its own"});
  CHECK(given.at("WORLD_SIZE") == "1");
  CHECK(given.at("AWS_ACCESS_KEY_ID") == "its own");
  CHECK_FALSE(given.contains("RANK"));
  const atl_test::TemporaryFolder folder;
  const std::string launcher = folder.write("torchrun", "#!/bin/sh\n").string();
  std::filesystem::permissions(launcher, std::filesystem::perms::owner_all);
  const auto launched = variables_of(launcher + " train.py", {});
  CHECK(launched.at("MASTER_ADDR") == "10.0.0.1");
  CHECK(launched.at("SLURM_PROCID") == "0");
  CHECK_FALSE(launched.contains("AWS_SECRET_ACCESS_KEY"));
  for (const auto& [name, value] : had) {
    ::unsetenv(name.c_str());
  }
}

TEST_CASE("what the dynamic linker is told for a trainer is not for its keeper") {
  agent::SessionSettings settings;
  settings.trainers = agent::trainer_programs({{"gpt=true"}, {"gpt=LD_LIBRARY_PATH=/of/torch", "gpt=SIZE=4"}, {}}, "/bin").value();
  RunSpec spec;
  spec.trainer.name = "gpt";
  const TrainerCommand command = agent::trainer_command(settings, RunId("r-1"), spec, "/tmp/link").value();
  CHECK_FALSE(command.environment.contains("LD_LIBRARY_PATH"));
  CHECK(command.environment.at("ATOLL_COMMAND_LD_LIBRARY_PATH") == "/of/torch");
  CHECK(command.environment.at("SIZE") == "4");
}

TEST_CASE("a socket for trainers that attach whose path is too long for the system is refused before a trainer starts") {
  agent::SessionSettings settings;
  settings.trainers = agent::trainer_programs({{"gpt=attach"}, {}, {}}, "/bin").value();
  RunSpec spec;
  spec.trainer.name = "gpt";
  const atl_test::TemporaryFolder folder;
  const auto command_in = [&](const std::filesystem::path& state) {
    settings.runs = on_this_machine(state / "runs");
    return agent::trainer_command(settings, RunId("r-1"), spec, "/tmp/link");
  };
  CHECK(command_in(folder.path() / "short"));
  const Result<TrainerCommand> refused = command_in(folder.path() / std::string(100, 'x'));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == Code::invalid_argument);
  CHECK(refused.error().why.find("the system takes 107") != std::string::npos);
  CHECK(refused.error().why.find("agent --state") != std::string::npos);
}

TEST_CASE("a trainer of one's own is told where its library is: beside the agent's program, or below the same prefix") {
  namespace fs = std::filesystem;
  const char* key = "ATOLL_TRAINER_LIBRARY";
  const atl_test::TemporaryFolder folder;
  agent::SessionSettings settings;
  settings.program = (folder.path() / "bin" / "atoll").string();
  settings.trainers = agent::trainer_programs({{"gpt=true"}, {}, {}}, "/bin").value();
  RunSpec spec;
  spec.trainer.name = "gpt";
  const auto told = [&] {
    const TrainerCommand command = agent::trainer_command(settings, RunId("r-1"), spec, "/tmp/link").value();
    return command.environment.contains(key) ? command.environment.at(key) : std::string();
  };
  CHECK(told().empty());
  fs::create_directories(folder.path() / "bin");
  fs::create_directories(folder.path() / "lib");
  const fs::path below = folder.path() / "lib" / "libatoll_trainer.so.1";
  const fs::path beside = folder.path() / "bin" / "libatoll_trainer.so";
  std::ofstream(below) << "x";
  CHECK(told() == below);
  std::ofstream(beside) << "x";
  CHECK(told() == beside);
  settings.trainers = agent::trainer_programs({{"gpt=true"}, {std::string("gpt=") + key + "=/mine.so"}, {}}, "/bin").value();
  CHECK(told() == "/mine.so");  // what the owner says
}

TEST_CASE("no run names a program or an environment for an agent, whatever a hostile coordinator writes into it") {
  agent::SessionSettings settings;
  settings.program = "/opt/atoll";
  settings.trainers = agent::trainer_programs({{"gpt=sh"}, {}, {}}, "/bin").value();
  RunSpec honest;
  honest.name = "x";
  honest.training.steps = 10;
  honest.data.set = "corpus";
  honest.trainer.name = "gpt";
  const std::string json = to_json(honest);
  REQUIRE(run_spec_from_json(json));
  // Keys that name a program, a folder or variables do not exist: the agent ends such a run (Core::State::on_invite).
  for (const std::string key : {"command", "environment", "env", "folder", "program"}) {
    std::string hostile = json;
    const std::size_t at = hostile.find("\"trainer\":{");
    REQUIRE(at != std::string::npos);
    hostile.insert(at + 11, "\"" + key + "\":\"/bin/sh -c evil\",");
    INFO(hostile);
    CHECK_FALSE(run_spec_from_json(hostile));
  }
  // A name is looked up in the owner's list and nowhere else.
  for (const std::string name : {"/bin/sh", "../gpt", "gpt2", "sh -c evil", "GPT"}) {
    RunSpec hostile = honest;
    hostile.trainer.name = name;
    CHECK_FALSE(agent::trainer_command(settings, RunId("r-1"), hostile, "/tmp/link"));
  }
  // Settings are the trainer's to read: no variable and no word of its command comes from them.
  RunSpec hostile = honest;
  hostile.trainer.settings = R"({"command":"evil","LD_PRELOAD":"/tmp/evil.so","PYTHONPATH":"/tmp","env":{"LD_PRELOAD":"/tmp/evil.so"}})";
  hostile.name = "LD_PRELOAD=/tmp/evil.so";
  hostile.data.files = {"--evil"};
  const TrainerCommand usual = agent::trainer_command(settings, RunId("r-1"), honest, "/tmp/link").value();
  const TrainerCommand given = agent::trainer_command(settings, RunId("r-1"), hostile, "/tmp/link").value();
  CHECK(given.program == usual.program);
  CHECK(given.arguments == usual.arguments);
  CHECK(given.environment == usual.environment);
  CHECK(given.folder == usual.folder);
}

}  // namespace of_trainer_host_test
