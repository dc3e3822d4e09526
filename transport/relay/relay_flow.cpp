#include "transport/relay/relay_flow.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

namespace atl {
namespace {

constexpr std::uint64_t kTurn = 1ULL << 20U;

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

Result<RelayFlow> RelayFlow::open(int from, int to) {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_NONBLOCK | O_CLOEXEC) != 0) {
    return Error{Code::unavailable, std::string("no pipe for a pair of connections: ") + std::strerror(errno)};
  }
  (void)::fcntl(ends[1], F_SETPIPE_SZ, static_cast<int>(kFlowBytes));  // refused where this user has many: then it is a smaller one
  return RelayFlow(from, to, FileDescriptor(ends[0]), FileDescriptor(ends[1]));
}

RelayFlow::State RelayFlow::pump(std::uint64_t allowance, std::uint64_t& moved) {
  if (told_end_) {
    return State::ended;
  }
  const std::uint64_t most = std::min(allowance, kTurn);
  std::uint64_t taken = 0;
  for (bool progress = true; progress && (taken < most || held_ > 0);) {
    progress = false;
    const std::size_t room = static_cast<std::size_t>(std::min<std::uint64_t>(kFlowBytes - held_, most - taken));
    if (!end_ && room > 0) {
      const ssize_t got = ::splice(from_, nullptr, pipe_in_.get(), nullptr, room, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
      if (got < 0 && !would_block()) {
        return State::broken;
      }
      end_ = got == 0;
      held_ += got > 0 ? static_cast<std::size_t>(got) : 0;
      taken += got > 0 ? static_cast<std::uint64_t>(got) : 0;
      progress = got > 0;
    }
    if (held_ > 0) {
      const ssize_t put = ::splice(pipe_out_.get(), nullptr, to_, nullptr, held_, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
      if (put < 0 && !would_block()) {
        return State::broken;
      }
      held_ -= put > 0 ? static_cast<std::size_t>(put) : 0;
      progress = progress || put > 0;
    }
  }
  moved += taken;
  if (end_ && held_ == 0) {
    told_end_ = true;
    return ::shutdown(to_, SHUT_WR) == 0 ? State::ended : State::broken;
  }
  return taken >= most && most > 0 ? State::more : State::waits;
}

}  // namespace atl
