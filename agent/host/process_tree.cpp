#include "agent/host/process_tree.hpp"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <system_error>

#include "agent/host/inherited_environment.hpp"

namespace atl {
namespace {

constexpr int kEndingRounds = 250;  // of 20 ms: a process that the kernel does not end in that time is left to it

void add_children(pid_t process, std::vector<pid_t>& all) {
  std::error_code failure;
  const std::filesystem::path tasks = "/proc/" + std::to_string(process) + "/task";
  for (const auto& task : std::filesystem::directory_iterator(tasks, failure)) {
    std::ifstream file(task.path() / "children");
    for (pid_t child = 0; file >> child;) {
      all.push_back(child);
    }
  }
}

// Signals everything below this process.
void signal_descendants(int signal) {
  for (const pid_t process : descendants_of(::getpid())) {
    ::kill(process, signal);
  }
}

// Takes in children that have ended; the status of `main` if it is among them. False when there is no child left.
bool reap(pid_t main, std::optional<int>& main_status) {
  int status = 0;
  pid_t ended = 0;
  while ((ended = ::waitpid(-1, &status, WNOHANG)) > 0) {
    if (ended == main) {
      main_status = status;
    }
  }
  return ended == 0;
}

// Ends everything below this process. What starts others meanwhile is caught in the next turn.
void end_all(pid_t main, std::optional<int>& main_status) {
  for (int turn = 0; turn < kEndingRounds && reap(main, main_status); ++turn) {
    signal_descendants(SIGKILL);
    const timespec moment{0, 20'000'000};
    ::nanosleep(&moment, nullptr);
  }
}

// Variables that are meant for the command and would have been in this keeper's way.
void take_own_variables() {
  std::vector<std::string> meant;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::string_view(*entry).starts_with(agent::kForCommandOnly)) {
      meant.emplace_back(*entry);
    }
  }
  for (const std::string& text : meant) {
    const std::size_t equals = text.find('=');
    const std::string name = text.substr(0, equals);
    ::setenv(name.c_str() + agent::kForCommandOnly.size(), text.c_str() + equals + 1, 1);
    ::unsetenv(name.c_str());
  }
}

[[noreturn]] void become(const std::vector<std::string>& command, const sigset_t& mask) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  for (const std::string& word : command) {
    arguments.push_back(const_cast<char*>(word.c_str()));
  }
  arguments.push_back(nullptr);
  take_own_variables();
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  ::execvp(arguments.front(), arguments.data());
  const std::string why = "atoll: " + command.front() + " cannot be started: " + std::strerror(errno) + "\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, why.data(), why.size());
  ::_exit(errno == ENOENT ? 127 : 126);
}

// Ends this process by a signal, so that whoever started it sees what ended the command. Without a core: that is the command's affair.
void end_by(int signal) {
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  ::signal(signal, SIG_DFL);
  sigset_t mask;
  sigemptyset(&mask);
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  ::raise(signal);
}

}  // namespace

std::vector<pid_t> descendants_of(pid_t process) {
  std::vector<pid_t> all;
  add_children(process, all);
  for (std::size_t i = 0; i < all.size(); ++i) {
    add_children(all[i], all);
  }
  return all;
}

std::optional<std::uint64_t> start_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(file, text, '\0');
  const std::size_t name_ends = text.rfind(')');  // a program's name may hold anything
  if (name_ends == std::string::npos) {
    return std::nullopt;
  }
  constexpr int kFieldsBefore = 19;  // between the name, which is the second, and the start, which is the twenty-second
  std::istringstream fields(text.substr(name_ends + 1));
  std::string field;
  char state = 0;
  fields >> state;
  for (int i = 1; i < kFieldsBefore; ++i) {
    fields >> field;
  }
  std::uint64_t start = 0;
  return state != 'Z' && fields >> start ? std::optional(start) : std::nullopt;
}

std::uint64_t resident_bytes_of_tree(pid_t process) {
  std::vector<pid_t> all = descendants_of(process);
  all.push_back(process);
  std::uint64_t sum = 0;
  for (const pid_t each : all) {
    std::ifstream file("/proc/" + std::to_string(each) + "/statm");
    std::uint64_t total = 0;
    std::uint64_t resident = 0;
    file >> total >> resident;
    sum += resident;
  }
  return sum * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

Result<int> keep(const std::vector<std::string>& command) {
  if (command.empty()) {
    return Error{Code::invalid_argument, "no command is given"};
  }
  const pid_t parent = ::getppid();
  sigset_t watched;
  sigemptyset(&watched);
  for (const int signal : {SIGCHLD, SIGTERM, SIGHUP, SIGINT}) {
    sigaddset(&watched, signal);
  }
  sigset_t before;
  ::sigprocmask(SIG_BLOCK, &watched, &before);
  // Whoever started this had its death end us by SIGKILL: from here on it is told to us instead.
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0 || ::prctl(PR_SET_PDEATHSIG, SIGHUP) != 0) {
    return Error{Code::io, std::string("the kernel cannot keep a trainer's processes together: ") + std::strerror(errno)};
  }
  const pid_t main = ::fork();
  if (main < 0) {
    return Error{Code::io, std::string("no process for the trainer: ") + std::strerror(errno)};
  }
  if (main == 0) {
    become(command, before);
  }
  std::optional<int> status;
  while (!status) {
    const int signal = ::sigwaitinfo(&watched, nullptr);
    if (signal == SIGHUP || ::getppid() != parent) {
      end_all(main, status);
      return 128 + SIGHUP;
    }
    if (signal == SIGTERM) {
      signal_descendants(SIGTERM);
    }
    reap(main, status);
  }
  const int ended = *status;
  end_all(main, status);
  if (WIFSIGNALED(ended)) {
    end_by(WTERMSIG(ended));
  }
  return WEXITSTATUS(ended);
}

}  // namespace atl
