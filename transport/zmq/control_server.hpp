// The coordinator's end of the control link on ZeroMQ: one ROUTER that proves every peer's key.
//
// With CURVE a handler of ZeroMQ's authentication protocol (ZAP, RFC 27) lets every key in and tags each message of a
// connection with it; whether a key is admitted is the owner's decision. With `insecure`, on loopback only, the PLAIN
// mechanism carries the key as a name: claimed, not proven. Connections are told apart by ids that this end makes up; a peer that
// brings an id of its own, sends several frames or sends what is no message is reported once and ignored from then on. Reports
// of garbage are at most ten in ten seconds, whoever makes it. A peer of another protocol version is told both versions.
// Peers that go silent are disconnected after 15 s.
// Threads: the owner's, and ZeroMQ's own. Everything happens inside `receive` and `send`, key proofs too: call `receive` whenever `fd` says
// so.
#pragma once

#include <memory>
#include <string>

#include "transport/control/control_link.hpp"
#include "transport/identity/identity.hpp"

namespace atl {

struct ControlServerSettings {
  std::string bind = "tcp://*:4400";
  KeyPair keys;
  bool insecure = false;
};

class ZmqControlServer : public ControlServer {
 public:
  // Errors: invalid_argument (an address that is none; a key that is none; insecure and not loopback), conflict (the port is in use),
  // io (the system refuses).
  static Result<std::unique_ptr<ZmqControlServer>> open(const ControlServerSettings& settings);
  // Where it listens, with the real port: "tcp://0.0.0.0:4400".
  [[nodiscard]] virtual std::string bound_address() const = 0;
};

}  // namespace atl
