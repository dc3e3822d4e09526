// LinkEmulator: a path between islands of this machine that is as far, thin and lossy as LinkTerms say, for real TCP connections.
//
// Each island gets an access line, and others reach it through a door: a port on 127.0.0.1 behind which the emulator connects to the
// island's own. What goes through a door is delayed and paced in both directions as EmulatedStream says, on the lines of both islands. So
// it emulates the path, not the hosts: both ends keep their own TCP, which sees a near peer that reads as slowly as the path carries.
// A connection is made a round trip after it was asked for, as by TCP's handshake. The ends see packets of 1,448 bytes at most where the
// rate has a limit, so that their buffers grow as on a network.
//
// Cost: no byte is copied (pipe_line.hpp); what is on its way lies in the kernel's memory, up to EmulatedStream::kMostInFlight for each
// direction of a connection. Without a limit it carries about what one bare loopback connection does; docs/faults.md has figures.
// Threads: one of its own moves everything; the functions here may be called from any, at any time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "transport/base/result.hpp"
#include "transport/emulated/link_terms.hpp"

namespace atl {

class LinkEmulator {
 public:
  // From whose line this connection to 127.0.0.1 comes, by the ports at both ends; nothing: from somebody without a line, who passes the
  // other's line alone. It is called on the emulator's thread.
  using Dialler = std::function<std::optional<std::size_t>(std::uint16_t from, std::uint16_t door)>;

  // Errors: io.
  static Result<std::unique_ptr<LinkEmulator>> start(const LinkTerms& terms);
  virtual ~LinkEmulator() = default;

  // An access line; they are numbered from 0.
  virtual std::size_t add_line() = 0;
  // A door to the port of 127.0.0.1 at which the island with this line listens, or will. The value is the door's own port.
  // Errors: invalid_argument (no such line), io.
  virtual Result<std::uint16_t> add_door(std::size_t line, std::uint16_t port, Dialler dialler) = 0;
  // The same for connections that all come from one line.
  Result<std::uint16_t> add_door(std::size_t line, std::uint16_t port, std::size_t from) {
    return add_door(line, port, [from](std::uint16_t, std::uint16_t) { return std::optional(from); });
  }
};

}  // namespace atl
