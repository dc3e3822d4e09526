// An island's way to its relays: for each connection that ZeroMQ is to have over a relay a socket of this machine that ZeroMQ dials, and a
// pipe from there to the relay (transport/relay/relay_flow.hpp) once the peer has come to it, too. What is reached through a proxy
// (transport/proxy/proxy_rules.hpp) has such a pipe as well: a relay, another island, the coordinator.
//
// ZeroMQ can dial through SOCKS by itself, but ends the process where a socket is closed while such a connection waits to be tried again
// (libzmq 4.3: socks_connecter_t::error keeps the handle of a descriptor that it closed); of HTTP's CONNECT it knows nothing.
// A tunnel may lead past the relay, too: through a hole that both islands punch into their routers (hole_punch.hpp).
// The sockets are Unix ones without a file, and nobody but this process is served. Whatever fails closes ZeroMQ's connection a second
// later, and ZeroMQ dials again. Cost: one pass over the bytes by the kernel on this machine. Threads: any may call; one of its own pipes.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "transport/base/result.hpp"
#include "transport/base/time.hpp"
#include "transport/control/way.hpp"
#include "transport/proxy/proxy_rules.hpp"
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
    // How far the newest connection has come.
    enum class Reached : std::uint8_t {
      nobody,  // the far end is dialled, or that failed: see `failure`
      opened,  // bytes may pass
      heard,   // some came from the far end
    };
    [[nodiscard]] virtual Reached reached() const = 0;
    // Why the newest connection did not come about, for people; empty: it has not failed.
    [[nodiscard]] virtual std::string failure() const = 0;
  };
  enum class Leads { over_relay, through_holes };
  // `proxy`: over which the relay is reached; no hole is punched through one. Errors: unavailable when the process has no descriptors left.
  Result<std::unique_ptr<Tunnel>> open(const HolePunch::Whom& whom, Leads leads, const Proxy* proxy = nullptr);
  // To "tcp://host:port" through a proxy, which has `patience` to open the way; `pause` is what passes before ZeroMQ learns of a failure.
  // Errors: those of open, and of parse_address.
  Result<std::unique_ptr<Tunnel>> open_through(const Proxy& proxy, const std::string& address, Duration patience, Duration pause);

 private:
  struct Shared;
  struct Door;
  Result<std::unique_ptr<Tunnel>> open(Door door);
  std::shared_ptr<Shared> shared_;
};

}  // namespace atl
