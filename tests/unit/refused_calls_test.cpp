// Trainers are watched where the system has no descriptors of processes: an old kernel (ENOSYS), or a container's filter (EPERM).
#include "tests/refused_calls.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "agent/host/attach_point.hpp"
#include "agent/host/process_tree.hpp"
#include "agent/host/trainer_host.hpp"
#include "tests/catch.hpp"
#include "tests/shell_trainer.hpp"
#include "tests/skip.hpp"
#include "tests/temporary_folder.hpp"

namespace of_refused_calls_test {

using namespace atl;
using namespace std::chrono_literals;

namespace {

int connect_to(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  while (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    ::poll(nullptr, 0, 5);
  }
  return fd;
}

}  // namespace

TEST_CASE("refused calls: a trainer's end is noticed without pidfd_open, and what it leaves behind ends with its host") {
  for (const int number : {ENOSYS, EPERM}) {
    INFO(std::strerror(number));
    const int code = atl_test::exit_code_without({SYS_pidfd_open}, number, [] {
      auto host = TrainerHost::start(shell("exit 3"), now());
      const std::optional<TrainerExit> exit = host ? wait_for_exit(*host) : std::nullopt;
      pid_t left = 0;
      {
        TrainerCommand command = shell("exec sleep 100");
        command.kept = true;
        auto other = TrainerHost::start(std::move(command), now());
        left = other ? other->pid() : 0;
      }
      return !host || !exit ? 1 : exit->status != 3 ? 2 : left == 0 || ::kill(left, 0) == 0 ? 3 : 0;
    });
    if (code == atl_test::kNoFilters) {
      ATL_SKIP("this system has no seccomp filters");
    }
    CHECK(code == 0);
  }
}

TEST_CASE("refused calls: a stand-in ends with the program that joined, whose connection a process of its own keeps open") {
  const atl_test::TemporaryFolder folder;
  const std::string socket = (folder.path() / "s").string();
  const pid_t joining = ::fork();
  if (joining == 0) {
    const int connection = connect_to(socket);
    char line[64];
    const bool told = ::read(connection, line, sizeof line) > 0;
    if (told && ::fork() == 0) {  // until the stand-in has ended
      pollfd hangs_up{connection, 0, 0};
      ::poll(&hangs_up, 1, 20000);
    }
    ::_exit(0);
  }
  const int code = atl_test::exit_code_without({SYS_pidfd_open}, ENOSYS, [&] {
    ::alarm(20);
    const Result<int> ended = stand_in(socket, "ipc:///tmp/link");
    return ended ? *ended : 2;
  });
  ::waitpid(joining, nullptr, 0);
  if (code == atl_test::kNoFilters) {
    ATL_SKIP("this system has no seccomp filters");
  }
  CHECK(code == 1);
}

TEST_CASE("refused calls: a process is told from another one by its start") {
  const std::optional<std::uint64_t> mine = start_of(::getpid());
  REQUIRE(mine);
  CHECK(start_of(::getpid()) == mine);
  CHECK(*start_of(1) < *mine);
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(0);
  }
  siginfo_t facts{};
  REQUIRE(::waitid(P_PID, static_cast<id_t>(child), &facts, WEXITED | WNOWAIT) == 0);
  CHECK_FALSE(start_of(child));  // ended, and not waited for yet
  ::waitpid(child, nullptr, 0);
  CHECK_FALSE(start_of(child));
}

}  // namespace of_refused_calls_test
