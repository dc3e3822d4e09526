// Bench: how long a command takes from start to exit, as processes against a coordinator on this machine.
//   bench_start [repetitions=41]
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "tests/temporary_folder.hpp"

namespace {

using Clock = std::chrono::steady_clock;

const std::string kAtoll = ATOLL_BENCH_PROGRAM;

double ms_since(Clock::time_point start) { return std::chrono::duration<double, std::milli>(Clock::now() - start).count(); }

pid_t start(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), kAtoll);
  std::vector<char*> argv;
  for (std::string& argument : arguments) {
    argv.push_back(argument.data());
  }
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (const int fd : {1, 2}) {
    posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_WRONLY, 0);
  }
  pid_t pid = -1;
  if (::posix_spawn(&pid, kAtoll.c_str(), &actions, nullptr, argv.data(), environ) != 0) {
    std::perror(kAtoll.c_str());
    std::exit(1);
  }
  posix_spawn_file_actions_destroy(&actions);
  return pid;
}

int run(const std::vector<std::string>& arguments) {
  int status = 0;
  const pid_t pid = start(arguments);
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

}  // namespace

int main(int argc, char** argv) {
  const auto repetitions = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 41;
  if (repetitions == 0 || repetitions > 10'000) {
    std::fprintf(stderr, "usage: bench_start [repetitions 1-10000]\n");
    return 2;
  }
  const atl_test::TemporaryFolder folder;
  const std::string state = (folder.path() / "state").string();
  const std::string address = "tcp://127.0.0.1:" + std::to_string(20'000 + ::getpid() % 20'000);
  if (run({"coordinator", "init", "--state", state, "--bind", address, "--advertise", address}) != 0) {
    std::fprintf(stderr, "bench_start: no coordinator can be made in %s\n", state.c_str());
    return 1;
  }
  const std::string run_file =
      folder.write("run.toml", "[run]\nname = \"bench\"\n[data]\nset = \"text\"\n[training]\nsteps = 1000\n").string();
  const pid_t coordinator = start({"coordinator", "--state", state});
  const Clock::time_point begun = Clock::now();
  while (run({"runs", "--state", state}) != 0) {
    if (ms_since(begun) > 20'000) {
      std::fprintf(stderr, "bench_start: the coordinator at %s does not answer\n", address.c_str());
      ::kill(coordinator, SIGKILL);
      return 1;
    }
  }
  if (run({"submit", run_file, "--state", state}) != 0) {
    std::fprintf(stderr, "bench_start: the run was not taken\n");
  }
  std::printf("start to exit, %lu times each, %u cores; ms\n", repetitions, std::thread::hardware_concurrency());
  for (const char* command : {"version", "status", "runs", "islands"}) {
    std::vector<std::string> arguments = {command};
    if (std::string(command) != "version") {
      arguments.insert(arguments.end(), {"--state", state});
    }
    std::vector<double> times;
    for (unsigned long i = 0; i < repetitions; ++i) {
      const Clock::time_point start_of_one = Clock::now();
      if (run(arguments) != 0) {
        std::fprintf(stderr, "bench_start: %s failed\n", command);
      }
      times.push_back(ms_since(start_of_one));
    }
    std::sort(times.begin(), times.end());
    std::printf("%-8s least %6.1f   median %6.1f   most %6.1f\n", command, times.front(), times[times.size() / 2], times.back());
  }
  ::kill(coordinator, SIGTERM);
  ::waitpid(coordinator, nullptr, 0);
  return 0;
}
