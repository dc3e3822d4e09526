#include "agent/host/trainer_host.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <utility>

#include "agent/host/process_tree.hpp"
#include "transport/base/bytes.hpp"

extern char** environ;

namespace atl {
namespace {

constexpr std::size_t kKeptLines = 20;
constexpr std::size_t kLongestLine = 2000;
constexpr auto kKeeperPatience = std::chrono::milliseconds(6000);  // until a keeper has ended what it keeps
constexpr int kReadsAtOnce = 64;                                   // of 16 KiB
constexpr auto kCheckEvery = std::chrono::milliseconds(500);
constexpr auto kLookEvery = std::chrono::milliseconds(50);  // without a descriptor that tells of its end

// The kernel's count of out-of-memory kills on this machine; 0 where it does not say.
std::uint64_t out_of_memory_kills() {
  std::ifstream file("/proc/vmstat");
  std::string key;
  std::uint64_t value = 0;
  while (file >> key >> value) {
    if (key == "oom_kill") {
      return value;
    }
  }
  return 0;
}

std::vector<std::string> environment_of(const TrainerCommand& command) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('='));
    const std::string_view value = text.substr(std::min(name.size() + 1, text.size()));
    if (!command.environment.contains(std::string(name)) && !(command.withheld && command.withheld(name, value))) {
      all.emplace_back(text);
    }
  }
  for (const auto& [name, value] : command.environment) {
    all.push_back(name + "=" + value);
  }
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (std::string& text : texts) {
    result.push_back(text.data());
  }
  result.push_back(nullptr);
  return result;
}

// What the new process needs, made before the fork: afterwards only async-signal-safe calls are allowed.
struct Launch {
  const char* program;
  const char* folder;
  char** arguments;
  char** environment;
  int output;
  int failure;  // receives errno if the program cannot be started
  pid_t parent;
};

[[noreturn]] void become_trainer(const Launch& launch) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int nothing = ::open("/dev/null", O_RDONLY);
  const bool ready = ::getppid() == launch.parent && nothing >= 0 && ::dup2(nothing, STDIN_FILENO) >= 0 &&
                     ::dup2(launch.output, STDOUT_FILENO) >= 0 && ::dup2(launch.output, STDERR_FILENO) >= 0 && ::chdir(launch.folder) == 0;
  if (ready) {
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    for (const int signal : {SIGPIPE, SIGINT, SIGTERM, SIGHUP}) {
      ::signal(signal, SIG_DFL);
    }
    ::execve(launch.program, launch.arguments, launch.environment);
  }
  const int why = errno;
  [[maybe_unused]] const ssize_t written = ::write(launch.failure, &why, sizeof why);
  ::_exit(127);
}

}  // namespace

Result<TrainerHost> TrainerHost::start(TrainerCommand command, TimePoint now) {
  TrainerHost host;
  host.command_ = std::move(command);
  std::vector<std::string> arguments = host.command_.arguments;
  arguments.insert(arguments.begin(), host.command_.program);
  std::vector<std::string> environment = environment_of(host.command_);
  const std::vector<char*> argv = pointers(arguments);
  const std::vector<char*> envp = pointers(environment);
  const std::string folder = host.command_.folder.string();
  std::array<int, 2> output{};
  std::array<int, 2> failure{};
  if (::pipe2(output.data(), O_CLOEXEC) != 0) {
    return Error{Code::io, std::string("no pipe for the trainer's output: ") + std::strerror(errno)};
  }
  if (::pipe2(failure.data(), O_CLOEXEC) != 0) {
    ::close(output[0]);
    ::close(output[1]);
    return Error{Code::io, std::string("no pipe for the trainer's start: ") + std::strerror(errno)};
  }
  const Launch launch{host.command_.program.c_str(),
                      folder.c_str(),
                      const_cast<char**>(argv.data()),
                      const_cast<char**>(envp.data()),
                      output[1],
                      failure[1],
                      ::getpid()};
  host.pid_ = ::fork();
  if (host.pid_ == 0) {
    become_trainer(launch);
  }
  int why = host.pid_ < 0 ? errno : 0;
  ::close(output[1]);
  ::close(failure[1]);
  host.output_ = output[0];
  if (host.pid_ > 0) {
    ::setpgid(host.pid_, host.pid_);  // on both sides, so that neither has to wait for the other
    ssize_t got = 0;
    do {
      got = ::read(failure[0], &why, sizeof why);
    } while (got < 0 && errno == EINTR);
    why = got == sizeof why ? why : 0;
  }
  ::close(failure[0]);
  if (why != 0) {
    return Error{why == ENOENT ? Code::not_found : Code::io,
                 "the trainer '" + host.command_.program + "' cannot be started: " + std::strerror(why)};
  }
  ::fcntl(host.output_, F_SETFL, O_NONBLOCK);
  host.pidfd_ = static_cast<int>(::syscall(SYS_pidfd_open, host.pid_, 0));
  if (host.pidfd_ < 0 && errno != ENOSYS && errno != EPERM) {
    return Error{Code::io, std::string("the trainer cannot be watched (pidfd_open): ") + std::strerror(errno)};
  }
  host.started_ = host.progress_ = now;
  host.next_check_ = now + host.check_every();
  host.out_of_memory_kills_ = out_of_memory_kills();
  return host;
}

TrainerHost::TrainerHost(TrainerHost&& other) noexcept
    : command_(std::move(other.command_)),
      pid_(std::exchange(other.pid_, -1)),
      output_(std::exchange(other.output_, -1)),
      pidfd_(std::exchange(other.pidfd_, -1)),
      started_(other.started_),
      progress_(other.progress_),
      next_check_(other.next_check_),
      expected_(other.expected_),
      stopping_(other.stopping_),
      insisted_(other.insisted_),
      killed_because_(std::move(other.killed_because_)),
      out_of_memory_kills_(other.out_of_memory_kills_),
      partial_(std::move(other.partial_)),
      last_lines_(std::move(other.last_lines_)) {}

TrainerHost::~TrainerHost() {
  if (pid_ > 0) {
    end_now();
    if (command_.kept && !ends_within(kKeeperPatience)) {
      signal_group(SIGKILL);
    }
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
  }
  for (const int fd : {output_, pidfd_}) {
    if (fd >= 0) {
      ::close(fd);
    }
  }
}

// It is this process's child and not waited for yet, so its number is nobody else's.
bool TrainerHost::ends_within(std::chrono::milliseconds patience) const {
  const TimePoint until = now() + patience;
  siginfo_t facts{};
  while (now() < until) {
    pollfd end{pidfd_, POLLIN, 0};
    const auto wait = pidfd_ >= 0 ? std::chrono::ceil<std::chrono::milliseconds>(until - now()) : kLookEvery;
    ::poll(&end, 1, static_cast<int>(wait.count()));
    if (::waitid(P_PID, static_cast<id_t>(pid_), &facts, WEXITED | WNOHANG | WNOWAIT) == 0 && facts.si_pid == pid_) {
      return true;
    }
  }
  return false;
}

Duration TrainerHost::check_every() const { return pidfd_ >= 0 ? kCheckEvery : kLookEvery; }

std::optional<TrainerExit> TrainerHost::pump(TimePoint now) {
  read_output();
  if (pid_ < 0) {
    return std::nullopt;
  }
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) == pid_) {
    ::kill(-pid_, SIGKILL);  // whatever it started and left behind
    read_output();
    if (!partial_.empty()) {
      take_line(std::exchange(partial_, {}));
    }
    pid_ = -1;
    return describe(status, now);
  }
  next_check_ = now + check_every();
  if (stopping_ && !insisted_ && now >= *stopping_ + command_.stop_grace) {
    insisted_ = true;
    end_now();
  }
  if (!stopping_ && expected_ && now - progress_ >= command_.hang_after) {
    kill("made no progress for " + human_duration(now - progress_));
  }
  if (command_.memory_limit_bytes > 0) {
    const std::uint64_t resident = resident_bytes();
    if (resident > command_.memory_limit_bytes) {
      kill("used " + human_bytes(resident) + " of memory, its limit is " + human_bytes(command_.memory_limit_bytes));
    }
  }
  return std::nullopt;
}

void TrainerHost::expect_progress(bool expected, TimePoint now) {
  if (expected && !expected_) {
    progress_ = now;
  }
  expected_ = expected;
}

void TrainerHost::stop(TimePoint now) {
  if (pid_ > 0 && !stopping_) {
    stopping_ = now;
    signal_group(SIGTERM);
  }
}

void TrainerHost::kill(std::string reason) {
  if (pid_ > 0 && killed_because_.empty()) {
    killed_because_ = std::move(reason);
    end_now();
  }
}

std::uint64_t TrainerHost::resident_bytes() const {
  if (pid_ < 0) {
    return 0;
  }
  return resident_bytes_of_tree(pid_);
}

void TrainerHost::read_output() {
  std::array<char, 16384> buffer{};
  // One that prints without end must not keep the agent from its other duties.
  for (int reads = 0; output_ >= 0 && reads < kReadsAtOnce; ++reads) {
    const ssize_t got = ::read(output_, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      return;  // EAGAIN: nothing more at the moment
    }
    if (got == 0) {
      ::close(output_);
      output_ = -1;
      return;
    }
    for (const char c : std::span(buffer.data(), static_cast<std::size_t>(got))) {
      if (c == '\n' || c == '\r' || partial_.size() >= kLongestLine) {
        if (!partial_.empty()) {
          take_line(std::exchange(partial_, {}));
        }
      } else {
        partial_.push_back(static_cast<unsigned char>(c) < 0x20 ? ' ' : c);
      }
    }
  }
}

void TrainerHost::take_line(std::string line) {
  if (command_.on_line) {
    command_.on_line(line);
  }
  last_lines_.push_back(std::move(line));
  if (last_lines_.size() > kKeptLines) {
    last_lines_.pop_front();
  }
}

// A keeper ends what it keeps, also what has left the group; without one the group is all there is.
void TrainerHost::end_now() const {
  if (!command_.kept || ::kill(pid_, SIGHUP) != 0) {
    signal_group(SIGKILL);
  }
}

void TrainerHost::signal_group(int signal) const {
  if (::kill(-pid_, signal) != 0) {
    ::kill(pid_, signal);
  }
}

TrainerExit TrainerHost::describe(int wait_status, TimePoint now) const {
  TrainerExit exit;
  if (WIFEXITED(wait_status)) {
    exit.status = WEXITSTATUS(wait_status);
    exit.why = "ended with status " + std::to_string(exit.status);
  } else {
    exit.signal = WTERMSIG(wait_status);
    exit.why = "was killed by signal " + std::to_string(exit.signal) + " (" + ::strsignal(exit.signal) + ")";
    if (exit.signal == SIGKILL && killed_because_.empty() && !stopping_ && out_of_memory_kills() > out_of_memory_kills_) {
      exit.why += " by the kernel, which was out of memory";
    }
  }
  if (!killed_because_.empty()) {
    exit.why = "was killed by its agent because it " + killed_because_;
  }
  exit.clean = killed_because_.empty() && ((exit.status == 0 && exit.signal == 0) || stopping_.has_value());
  exit.why += " after " + human_duration(now - started_);
  if (!exit.clean && !last_lines_.empty()) {
    exit.why += "; its last lines:";
    const std::size_t from = last_lines_.size() > 3 ? last_lines_.size() - 3 : 0;
    for (std::size_t i = from; i < last_lines_.size(); ++i) {
      const std::string line = last_lines_[i].substr(0, 300);
      exit.why += (i == from ? " " : " | ") + line;
      exit.last_lines += line + "\n";
    }
  }
  return exit;
}

}  // namespace atl
