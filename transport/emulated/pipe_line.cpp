#include "transport/emulated/pipe_line.hpp"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace atl {
namespace {

constexpr int kPipeBytes = 1 << 20;

ssize_t move(int from, int to, std::uint64_t most) {
  ssize_t moved = 0;
  do {
    moved = ::splice(from, nullptr, to, nullptr, static_cast<std::size_t>(most), SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
  } while (moved < 0 && errno == EINTR);
  return moved;
}

}  // namespace

std::optional<Pipe> PipeStock::take() {
  if (!pipes_.empty()) {
    Pipe pipe = std::move(pipes_.back());
    pipes_.pop_back();
    return pipe;
  }
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
    return std::nullopt;
  }
  ::fcntl(ends[1], F_SETPIPE_SZ, kPipeBytes);  // where this user may have so many pages; else a smaller one does
  return Pipe{FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

void PipeStock::put_back(Pipe pipe) {
  if (pipes_.size() < kKept && pipe.bytes == 0) {
    pipes_.push_back(std::move(pipe));
  }
}

// That a pipe takes nothing may be because it is full: whether the socket has something is seen with an empty one.
PipeLine::Moved PipeLine::fill(int socket, std::uint64_t most) {
  if (!pipes_.empty()) {
    const ssize_t moved = move(socket, pipes_.back().in.get(), most);
    if (moved >= 0 || errno != EAGAIN) {
      pipes_.back().bytes += static_cast<std::uint64_t>(std::max<ssize_t>(moved, 0));
      return {static_cast<std::uint64_t>(std::max<ssize_t>(moved, 0))};
    }
  }
  std::optional<Pipe> fresh = stock_->take();
  if (!fresh) {
    return {0, true, true};
  }
  const ssize_t moved = move(socket, fresh->in.get(), most);
  if (moved > 0) {
    fresh->bytes = static_cast<std::uint64_t>(moved);
    pipes_.push_back(std::move(*fresh));
    return {static_cast<std::uint64_t>(moved)};
  }
  const bool again = moved < 0 && errno == EAGAIN;
  stock_->put_back(std::move(*fresh));
  return {0, again};
}

PipeLine::Moved PipeLine::drain(int socket, std::uint64_t most) {
  std::uint64_t all = 0;
  while (all < most && !pipes_.empty()) {
    Pipe& front = pipes_.front();
    const ssize_t moved = move(front.out.get(), socket, std::min(most - all, front.bytes));
    if (moved <= 0) {
      return {all, all > 0 || (moved < 0 && errno == EAGAIN)};
    }
    all += static_cast<std::uint64_t>(moved);
    front.bytes -= static_cast<std::uint64_t>(moved);
    if (front.bytes == 0) {
      stock_->put_back(std::move(front));
      pipes_.pop_front();
    }
  }
  return {all, true};
}

}  // namespace atl
