#include "cli/line/interrupt.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <utility>

namespace atl {
namespace {

std::atomic<int> signalled_fd{-1};  // what the handler writes to

extern "C" void note_signal(int) {
  const int before = errno;
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(signalled_fd.load(), &one, sizeof one);
  errno = before;
}

void handle(int signal, void (*handler)(int), int flags) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  ::sigaction(signal, &action, nullptr);
}

}  // namespace

Result<Interrupt> Interrupt::open() {
  const int fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) {
    return Error{Code::io, "the process has no file descriptors left (ulimit -n)"};
  }
  signalled_fd = fd;
  handle(SIGINT, note_signal, static_cast<int>(SA_RESETHAND | SA_RESTART));
  handle(SIGTERM, note_signal, static_cast<int>(SA_RESETHAND | SA_RESTART));
  return Interrupt(fd);
}

Interrupt::Interrupt(Interrupt&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

Interrupt::~Interrupt() {
  if (fd_ >= 0) {
    handle(SIGINT, SIG_DFL, 0);
    handle(SIGTERM, SIG_DFL, 0);
    signalled_fd = -1;
    ::close(fd_);
  }
}

bool Interrupt::came(Duration at_most) const {
  pollfd entry{fd_, POLLIN, 0};
  const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(at_most).count();
  return ::poll(&entry, 1, static_cast<int>(std::clamp<std::int64_t>(milliseconds, 0, 60'000))) == 1;
}

}  // namespace atl
