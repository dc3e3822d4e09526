// An island's way to its relays: for each connection that ZeroMQ is to have over a relay a socket of this machine that ZeroMQ dials, and a
// pipe from there to the relay (transport/relay/relay_flow.hpp) once the peer has come to it, too.
//
// ZeroMQ can dial through SOCKS by itself, but ends the process where a socket is closed while such a connection waits to be tried again
// (libzmq 4.3: socks_connecter_t::error keeps the handle of a descriptor that it closed).
// A tunnel may lead past the relay, too: through a hole that both islands punch into their routers (hole_punch.hpp).
// The sockets are Unix ones without a file, and nobody but this process is served. Whatever fails closes ZeroMQ's connection a second
// later, and ZeroMQ dials again. Cost: one pass over the bytes by the kernel on this machine. Threads: any may call; one of its own pipes.
#pragma once

#include <memory>
#include <string>

#include "transport/base/result.hpp"
#include "transport/control/way.hpp"
#include "transport/relay/hole_punch.hpp"

namespace atl {

class RelayTunnels {
 public:
  RelayTunnels();
  // Ends all pipes. Tunnels that are still held lead nowhere then.
  ~RelayTunnels();
  RelayTunnels(const RelayTunnels&) = delete;
  RelayTunnels& operator=(const RelayTunnels&) = delete;

  // Ends its pipe when it goes.
  class Tunnel {
   public:
    virtual ~Tunnel() = default;
    [[nodiscard]] virtual const std::string& endpoint() const = 0;  // "ipc://@0001a"
    // What came of the newest attempt to punch; not_tried: it has not failed.
    [[nodiscard]] virtual NotPunched not_punched() const = 0;
  };
  enum class Leads { over_relay, through_holes };
  // Errors: unavailable when the process has no descriptors left.
  Result<std::unique_ptr<Tunnel>> open(const HolePunch::Whom& whom, Leads leads);

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace atl
