// The island's and operator's end of the control link on ZeroMQ: one DEALER to one coordinator.
//
// Connects, proves its key (CURVE; with `insecure`, on loopback only, it merely claims it) and connects again whenever the
// connection is lost or silent: after a delay that doubles from `retry_first` to `retry_most`, each drawn from half to one and a half of
// that, so that a restarted coordinator is not met by all islands at once. A name is resolved anew for every attempt, and
// each of its addresses is tried, the one that was good last first. What is reached through a proxy (transport/proxy/proxy_rules.hpp) is
// left to the proxy as it was given, name or address, and what the proxy says is part of the reason. The log gets one line when the
// coordinator cannot be reached or is lost, and one when it is there again. Threads: the owner's, and ZeroMQ's own. Everything happens
// inside `receive`, `send` and `ask`: call `receive` whenever `fd` says so.
#pragma once

#include <memory>
#include <string>

#include "transport/base/time.hpp"
#include "transport/control/control_link.hpp"
#include "transport/identity/identity.hpp"
#include "transport/proxy/proxy_rules.hpp"
#include "transport/zmq/name_lookup.hpp"

namespace atl {

struct ControlClientSettings {
  std::string address;          // the coordinator's, "tcp://host:port"
  std::string coordinator_key;  // Z85; not used if insecure
  KeyPair keys;
  bool insecure = false;
  bool log_changes = true;
  Duration retry_first = std::chrono::milliseconds(100);
  Duration retry_most = std::chrono::seconds(10);
  Duration connect_timeout = std::chrono::seconds(5);  // of one attempt, its handshake included
  Duration dead_after = std::chrono::seconds(10);      // of silence
  Resolver resolver = resolve;
  ProxyRules proxy = own_proxy();
};

class ZmqControlClient : public ControlClient {
 public:
  // Starts connecting. Errors: invalid_argument (an address or key that is none; insecure and not loopback), io.
  static Result<std::unique_ptr<ZmqControlClient>> open(const ControlClientSettings& settings);

  // Sends a request and waits for its reply: for commands, which do one thing after the other. Messages that are no reply to it are
  // dropped. Errors: those of the reply; unavailable, naming the address and what to check, if nobody is there after two attempts or the
  // connection breaks; unauthorized if the keys do not fit; conflict naming both protocol versions; timeout.
  virtual Result<Reply> ask(const Request& request, Duration timeout) = 0;
};

}  // namespace atl
