// The control link: islands and operators talk to the coordinator, message by message, and never to each other.
//
// Two small interfaces, one for each end, that ZeroMQ (control_server.hpp, control_client.hpp) and the simulated network
// implement alike. Delivery is at most once and in order within one connection; a connection can break at any instant, and
// what was in flight is then lost. Nobody waits in here: `receive` and `send` return at once, `fd` tells when to come back.
// Threads: each object belongs to one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "transport/base/ids.hpp"
#include "transport/base/result.hpp"
#include "transport/control/message.hpp"

namespace atl {

// One connection as the coordinator sees it. A peer that reconnects gets a new one; none is used twice in a process.
using ConnectionId = Number<struct ConnectionTag, std::uint64_t>;

// What came in at the coordinator.
struct Received {
  ConnectionId connection;
  std::string public_key;   // of the peer, 40 characters Z85: proven by CURVE, only claimed on a plain (loopback) link
  Result<Message> message;  // corrupt: garbage, reported once a connection; conflict: another protocol version
  std::string host = {};    // the address that the connection comes from, as text; empty: not known
};

// The coordinator's end. Anybody may connect; whether a key is admitted is decided by the owner, message by message.
class ControlServer {
 public:
  virtual ~ControlServer() = default;

  // The next message, if there is one.
  virtual std::optional<Received> receive() = 0;
  // Queues a message. Errors: unavailable when the connection is gone or its queue is full (the message is lost: its
  // receiver will ask again); invalid_argument when it does not fit kMaxMessageBytes.
  virtual Status send(ConnectionId connection, const Message& message) = 0;
  // A revoked key: from now on every message of it is answered with Refused{why} and not received.
  virtual void drop(std::string_view public_key, Error why) = 0;
  // Takes `drop` back: the key was enrolled anew.
  virtual void readmit(std::string_view public_key) = 0;
  // Readable when `receive` may have something; before polling it, call `receive` until it has nothing. -1: virtual time.
  [[nodiscard]] virtual int fd() const = 0;
};

struct LinkUp {
  friend bool operator==(const LinkUp&, const LinkUp&) = default;
};
struct LinkDown {
  Error why;
  friend bool operator==(const LinkDown&, const LinkDown&) = default;
};
// What happens at an island: the link came up (say hello, also after every reconnect), it went down, a message, or bytes that are none.
using LinkEvent = std::variant<LinkUp, LinkDown, Message, Error>;

// The island's or operator's end. Connects by itself and again whenever the connection is lost.
class ControlClient {
 public:
  virtual ~ControlClient() = default;

  // The next event, if there is one. LinkUp and LinkDown alternate; LinkDown comes first if the first attempt to connect fails.
  virtual std::optional<LinkEvent> receive() = 0;
  // Queues a message. Errors: unavailable while the link is down (nothing is kept for later); invalid_argument when it does
  // not fit kMaxMessageBytes.
  virtual Status send(const Message& message) = 0;
  // As ControlServer::fd.
  [[nodiscard]] virtual int fd() const = 0;
};

}  // namespace atl
