// One direction of a joined pair: bytes from one socket to another, through a pipe of the kernel (splice), so that none of them is copied
// into this process.
//
// Bounded: at most kFlowBytes are held; while the reader takes nothing, nothing is read, and TCP slows the writer. What was read before
// the writer's end is delivered, then the reader is told the end, too (a half-close); the other direction goes on.
// Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "transport/base/file_descriptor.hpp"
#include "transport/base/result.hpp"

namespace atl {

inline constexpr std::size_t kFlowBytes = 256 * 1024;

class RelayFlow {
 public:
  // Errors: unavailable when the process has no descriptors left.
  static Result<RelayFlow> open(int from, int to);

  enum class State {
    waits,   // for either socket
    more,    // there is more to move at once: it is others' turn first
    ended,   // everything was delivered, and the end with it
    broken,  // a socket failed
  };
  // Moves what it can, at most about a mebibyte of it and `allowance` bytes; `moved` counts what was read.
  State pump(std::uint64_t allowance, std::uint64_t& moved);
  [[nodiscard]] bool ended() const { return told_end_; }

 private:
  RelayFlow(int from, int to, FileDescriptor out, FileDescriptor in)
      : from_(from), to_(to), pipe_out_(std::move(out)), pipe_in_(std::move(in)) {}

  int from_;
  int to_;
  FileDescriptor pipe_out_;
  FileDescriptor pipe_in_;
  std::size_t held_ = 0;
  bool end_ = false;  // of what `from` says
  bool told_end_ = false;
};

}  // namespace atl
