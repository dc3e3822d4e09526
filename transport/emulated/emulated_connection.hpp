// EmulatedConnection: one connection through a LinkEmulator: two sockets, and a stream with its bytes in each direction.
// Threads: the emulator's.
#pragma once

#include <cstdint>
#include <optional>

#include "transport/base/file_descriptor.hpp"
#include "transport/emulated/emulated_stream.hpp"
#include "transport/emulated/pipe_line.hpp"

namespace atl {

class EmulatedConnection {
 public:
  // The ways of one island's access line; null for somebody without a line.
  struct Line {
    LineWay* out = nullptr;
    LineWay* in = nullptr;
  };
  struct Side {
    FileDescriptor socket;
    Line line;
  };
  // dialler: the connection that was accepted. The other end is dialled by `connect`, when a round trip is over.
  EmulatedConnection(const LinkTerms& terms, Side dialler, Line target, PipeStock& stock, std::uint64_t seed, TimePoint now);

  // When it is time to dial the other end; nothing once it was.
  [[nodiscard]] std::optional<TimePoint> dial_at() const { return dial_at_; }
  void dialled(FileDescriptor target);
  // What epoll said of one of the sockets.
  void readable(bool dialler) { (dialler ? dialler_ : target_).readable = true; }
  void writable(bool dialler) { (dialler ? dialler_ : target_).writable = true; }
  void broken() { broken_ = true; }

  // Moves at most a chunk in each direction; false if nothing moved.
  bool move(TimePoint now);
  // When `move` may have something to do that no socket tells.
  [[nodiscard]] std::optional<TimePoint> next_deadline() const;
  // It is over: an end broke, or both have ended and all that they sent was handed over.
  [[nodiscard]] bool over() const { return broken_ || (there_.closed && back_.closed); }

 private:
  struct End {
    FileDescriptor socket;
    bool readable = false;
    bool writable = false;
  };
  struct Direction {
    EmulatedStream stream;
    PipeLine bytes;
    bool ended = false;                   // the sender sends no more
    bool closed = false;                  // and the receiver was told
    std::optional<TimePoint> stuck = {};  // no pipe was left: to be tried again then
  };
  bool take(TimePoint now, End& from, Direction& direction);
  bool hand_over(TimePoint now, End& to, Direction& direction);

  End dialler_;
  End target_;
  Direction there_;
  Direction back_;
  std::optional<TimePoint> dial_at_;
  bool broken_ = false;
};

}  // namespace atl
