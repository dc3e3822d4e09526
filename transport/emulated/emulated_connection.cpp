#include "transport/emulated/emulated_connection.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <tuple>
#include <utility>

namespace atl {
namespace {

constexpr Duration kPipePatience = std::chrono::milliseconds(10);

std::optional<TimePoint> earlier(std::optional<TimePoint> one, std::optional<TimePoint> other) {
  if (!one || !other) {
    return one ? one : other;
  }
  return std::min(*one, *other);
}

}  // namespace

EmulatedConnection::EmulatedConnection(const LinkTerms& terms, Side dialler, Line target, PipeStock& stock, std::uint64_t seed,
                                       TimePoint now)
    : dialler_{std::move(dialler.socket)},
      there_{{terms, dialler.line.out, target.in, Rng(seed, 0)}, PipeLine(stock)},
      back_{{terms, target.out, dialler.line.in, Rng(seed, 1)}, PipeLine(stock)},
      dial_at_(now + terms.round_trip) {}

void EmulatedConnection::dialled(FileDescriptor target) {
  target_.socket = std::move(target);
  dial_at_.reset();
}

bool EmulatedConnection::move(TimePoint now) {
  if (dial_at_ || broken_) {
    return false;
  }
  bool moved = take(now, dialler_, there_);
  moved = take(now, target_, back_) || moved;
  moved = hand_over(now, target_, there_) || moved;
  return hand_over(now, dialler_, back_) || moved;
}

bool EmulatedConnection::take(TimePoint now, End& from, Direction& direction) {
  if (!from.readable || direction.ended || (direction.stuck && *direction.stuck > now)) {
    return false;
  }
  direction.stuck.reset();
  const std::uint64_t most = direction.stream.may_leave(now);
  if (most == 0) {
    return false;
  }
  const PipeLine::Moved moved = direction.bytes.fill(from.socket.get(), most);
  if (moved.bytes > 0) {
    direction.stream.left(now, moved.bytes);
    return true;
  }
  direction.stream.nothing_waits();
  if (moved.full) {
    direction.stuck = now + kPipePatience;
  } else if (moved.again) {
    from.readable = false;
  } else {
    direction.ended = true;
  }
  return false;
}

bool EmulatedConnection::hand_over(TimePoint now, End& to, Direction& direction) {
  const std::uint64_t arrived = direction.stream.arrived(now);
  if (arrived == 0) {
    if (direction.ended && !direction.closed && direction.stream.in_flight() == 0) {
      ::shutdown(to.socket.get(), SHUT_WR);
      direction.closed = true;
    }
    return false;
  }
  if (!to.writable) {
    return false;
  }
  const PipeLine::Moved moved = direction.bytes.drain(to.socket.get(), arrived);
  direction.stream.handed_over(moved.bytes);
  to.writable = moved.bytes == arrived;
  broken_ = broken_ || (moved.bytes == 0 && !moved.again);
  return moved.bytes > 0;
}

std::optional<TimePoint> EmulatedConnection::next_deadline() const {
  if (dial_at_) {
    return dial_at_;
  }
  std::optional<TimePoint> next;
  for (const auto& [direction, from, to] : {std::tuple(&there_, &dialler_, &target_), std::tuple(&back_, &target_, &dialler_)}) {
    next = earlier(next, direction->stream.next_arrival());
    if (from->readable && !direction->ended) {
      next = earlier(next, direction->stuck ? direction->stuck : direction->stream.next_leave());
    }
  }
  return next;
}

}  // namespace atl
