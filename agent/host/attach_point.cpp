#include "agent/host/attach_point.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>

#include "agent/host/process_tree.hpp"

namespace atl {
namespace {

Error io_error(const std::string& socket, const char* what) { return {Code::io, socket + ": " + what + ": " + std::strerror(errno)}; }

Result<int> listen_at(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  ATOLL_TRY(check_attach_socket(path));
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  ::unlink(path.c_str());
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const mode_t before = ::umask(0177);  // from the first instant only this user can open it
  const bool bound = fd >= 0 && ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 && ::listen(fd, 4) == 0;
  ::umask(before);
  return bound ? Result<int>(fd) : Result<int>(io_error(path, "cannot be bound"));
}

constexpr int kLookForItEvery = 200;  // milliseconds, without a descriptor that tells of the program's end

struct Joined {
  int connection = -1;
  int program =
      -1;  // readable when the program has ended; -1 where the system has no such descriptors: then its start tells it from others
  pid_t pid = -1;
  std::optional<std::uint64_t> started = {};
  [[nodiscard]] bool has_ended() const { return program < 0 && start_of(pid) != started; }
};

// The next connection of a program of this user.
bool accept_program(int listening, Joined& joined) {
  joined.connection = ::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC);
  ucred peer{};
  socklen_t size = sizeof peer;
  bool ours =
      joined.connection >= 0 && ::getsockopt(joined.connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == ::getuid();
  if (ours) {
    joined.pid = peer.pid;
    joined.program = static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0));
    const bool unknown_here = joined.program < 0 && (errno == ENOSYS || errno == EPERM);
    joined.started = unknown_here ? start_of(peer.pid) : std::nullopt;
    ours = joined.program >= 0 || joined.started;
  }
  if (!ours && joined.connection >= 0) {
    ::close(joined.connection);
  }
  return ours;
}

}  // namespace

std::filesystem::path attach_socket(const std::filesystem::path& state, const std::string& name) { return state / "trainers" / name; }

Status check_attach_socket(const std::string& socket) {
  constexpr std::size_t kMost = sizeof(sockaddr_un::sun_path) - 1;
  return socket.size() <= kMost ? Status()
                                : Status(Error{Code::invalid_argument, "the socket at which a trainer attaches has a path of " +
                                                                           std::to_string(socket.size()) + " bytes, and the system takes " +
                                                                           std::to_string(kMost) + ": " + socket +
                                                                           "; choose a shorter state directory (agent --state)"});
}

Result<int> stand_in(const std::string& socket, const std::string& link) {
  ATOLL_ASSIGN(const int listening, listen_at(socket));
  std::printf("waits for a program to join at %s\n", socket.c_str());
  std::fflush(stdout);
  Joined joined;
  while (!accept_program(listening, joined)) {
    if (joined.connection < 0 && errno != EINTR && errno != ECONNABORTED) {
      return io_error(socket, "nobody can join");
    }
  }
  ::unlink(socket.c_str());
  const std::string line = link + "\n";
  if (::send(joined.connection, line.data(), line.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(line.size())) {
    return io_error(socket, "the program that joined cannot be told where the agent is");
  }
  std::array<pollfd, 2> ends{pollfd{joined.program, POLLIN, 0}, pollfd{joined.connection, POLLIN, 0}};
  int ready = 0;
  do {
    ready = ::poll(ends.data(), ends.size(), joined.program < 0 ? kLookForItEvery : -1);
  } while ((ready < 0 && errno == EINTR) || (ready == 0 && !joined.has_ended()));
  std::printf("the program that had joined has ended or left\n");
  std::fflush(stdout);
  return 1;
}

}  // namespace atl
