// PipeLine: bytes on their way, kept in the kernel's pipes: a first-in, first-out store from one socket to another.
//
// splice(2) moves references to the kernel's pages from the socket into a pipe and from there into the other socket, so no byte is copied
// here: a relay of 2 GB/s costs a tenth of a core. A pipe holds as many fragments as it has slots, whatever their size, so a line has as
// many pipes as it needs, from a stock that the lines share.
// Threads: one for all lines that share a stock.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "transport/base/file_descriptor.hpp"

namespace atl {

struct Pipe {
  FileDescriptor out;
  FileDescriptor in;
  std::uint64_t bytes = 0;
};

// Empty pipes that wait to be used again.
class PipeStock {
 public:
  // Nothing if this process or user may have no more of them.
  std::optional<Pipe> take();
  void put_back(Pipe pipe);

 private:
  static constexpr std::size_t kKept = 32;
  std::vector<Pipe> pipes_;
};

class PipeLine {
 public:
  explicit PipeLine(PipeStock& stock) : stock_(&stock) {}

  struct Moved {
    std::uint64_t bytes = 0;
    bool again = false;  // 0 bytes because the socket has none, or takes none; or, with `full`, because there is no pipe left
    bool full = false;
  };  // otherwise 0 bytes: the sender has ended, or the connection is broken
  // At most so many bytes from a socket that does not block to the end of the line.
  Moved fill(int socket, std::uint64_t most);
  // At most so many from its front to a socket.
  Moved drain(int socket, std::uint64_t most);

 private:
  PipeStock* stock_;
  std::deque<Pipe> pipes_;
};

}  // namespace atl
