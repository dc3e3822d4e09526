#include "transport/zmq/control_server.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <map>
#include <set>

#include "transport/base/address.hpp"
#include "transport/base/log.hpp"
#include "transport/base/plain_text.hpp"
#include "transport/base/time.hpp"
#include "transport/zmq/accept_gate.hpp"
#include "transport/zmq/poll_set.hpp"
#include "transport/zmq/zmq_socket.hpp"

namespace atl {
namespace {

constexpr const char* kZapEndpoint = "inproc://zeromq.zap.01";
constexpr std::size_t kRememberedConnections = 4096;
constexpr int kMessagesPerCall = 1000;  // looked at in one `receive` before the owner gets a turn
constexpr int kReportsPerWindow = 10;
constexpr Duration kReportWindow = std::chrono::seconds(10);

// The last few connections that something was said about; the oldest is forgotten first.
class ConnectionMemory {
 public:
  [[nodiscard]] bool has(ConnectionId connection) const { return members_.contains(connection); }
  // False if it was there.
  bool add(ConnectionId connection) {
    if (!members_.insert(connection).second) {
      return false;
    }
    order_.push_back(connection);
    if (order_.size() > kRememberedConnections) {
      members_.erase(order_.front());
      order_.pop_front();
    }
    return true;
  }

 private:
  std::set<ConnectionId> members_;
  std::deque<ConnectionId> order_;
};

// By which descriptor the last few connections came; the oldest is forgotten first.
class Sources {
 public:
  void remember(ConnectionId connection, int descriptor) {
    if (of_.insert_or_assign(connection, descriptor).second) {
      order_.push_back(connection);
    }
    if (order_.size() > kRememberedConnections) {
      of_.erase(order_.front());
      order_.pop_front();
    }
  }
  [[nodiscard]] std::optional<int> find(ConnectionId connection) const {
    const auto found = of_.find(connection);
    return found == of_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  std::map<ConnectionId, int> of_;
  std::deque<ConnectionId> order_;
};

// ROUTER makes up ids of a zero byte and a 32-bit number that counts up from a random start.
std::array<std::byte, 5> routing_id(ConnectionId connection) {
  std::array<std::byte, 5> id{};
  const auto number = static_cast<std::uint32_t>(connection.value);
  std::memcpy(id.data() + 1, &number, sizeof number);
  return id;
}
std::optional<ConnectionId> connection_of(ByteView id) {
  if (id.size() != 5 || id[0] != std::byte{0}) {
    return std::nullopt;
  }
  std::uint32_t number = 0;
  std::memcpy(&number, id.data() + 1, sizeof number);
  return ConnectionId(number);
}

Error bind_error(const Address& address, int code) {
  const std::string port = std::to_string(address.port);
  switch (code) {
    case EADDRINUSE:
      return Error{Code::conflict, "port " + port + " is in use on this machine: stop the program that has it (ss -ltnp 'sport = :" + port +
                                       "' shows which; another coordinator?), or choose another port"};
    case EACCES:
      return Error{Code::io, "this user may not listen on port " + port + ": choose one above 1023"};
    case EADDRNOTAVAIL:
    case ENODEV:
      return Error{Code::invalid_argument, "this machine has no address " + address.host + ": give one of its own, or * for all"};
    default:
      return Error{Code::io, "cannot listen on " + to_string(address) + ": " + zmq_strerror(code)};
  }
}

class RouterServer final : public ZmqControlServer {
 public:
  RouterServer(std::unique_ptr<ZmqContext> context, ZmqSocket router, AcceptGate gate, ZmqSocket zap, std::unique_ptr<PollSet> poll)
      : context_(std::move(context)), router_(std::move(router)), gate_(std::move(gate)), zap_(std::move(zap)), poll_(std::move(poll)) {}

  std::optional<Received> receive() override {
    poll_->clear();
    gate_.pump(now());
    if (const std::optional<TimePoint> deadline = gate_.next_deadline()) {
      poll_->set_alarm(*deadline - now());
    }
    for (int i = 0; i < kMessagesPerCall; ++i) {
      answer_key_proofs();
      const std::vector<ZmqFrame> frames = router_.receive();
      if (frames.empty()) {
        return std::nullopt;
      }
      if (std::optional<Received> received = take(frames)) {
        poll_->remind();
        return received;
      }
    }
    poll_->remind();
    return std::nullopt;
  }

  Status send(ConnectionId connection, const Message& message) override {
    ATOLL_ASSIGN(const Bytes frame, encode(message));
    if (std::holds_alternative<Refused>(message)) {
      refused_.add(connection);
      if (const auto source = sources_.find(connection)) {
        gate_.doubt(*source, now());
      }
    }
    const int problem = router_.send({routing_id(connection), frame});
    if ((router_.events() & ZMQ_POLLIN) != 0) {
      poll_->remind();  // sending took the notice of what came in
    }
    switch (problem) {
      case 0:
        return {};
      case EAGAIN:
        return Error{Code::unavailable, "the peer does not take what it is sent; its queue is full"};
      case EHOSTUNREACH:
        return Error{Code::unavailable, "the connection is gone"};
      default:
        return Error{Code::unavailable, std::string("cannot send: ") + zmq_strerror(problem)};
    }
  }

  void drop(std::string_view public_key, Error why) override { dropped_.insert_or_assign(std::string(public_key), std::move(why)); }
  void readmit(std::string_view public_key) override {
    if (const auto found = dropped_.find(public_key); found != dropped_.end()) {
      dropped_.erase(found);
    }
  }
  [[nodiscard]] int fd() const override { return poll_->fd(); }
  [[nodiscard]] std::string bound_address() const override { return router_.last_endpoint(); }

 private:
  // ZAP (RFC 27): version, request id, domain, address, routing id, mechanism, credentials…
  void answer_key_proofs() {
    for (std::vector<ZmqFrame> request = zap_.receive(); !request.empty(); request = zap_.receive()) {
      if (request.size() < 2) {
        zap_.send({as_bytes("1.0"), as_bytes(""), as_bytes("400"), as_bytes("not a request"), {}, {}});
        continue;
      }
      const std::string key = claimed_key(request);
      const bool good = is_key(key);
      zap_.send({as_bytes("1.0"), request[1].bytes(), as_bytes(good ? "200" : "400"), as_bytes(good ? "OK" : "no key"), as_bytes(key), {}});
    }
  }
  static std::string claimed_key(const std::vector<ZmqFrame>& request) {
    if (request.size() == 7 && request[5].text() == "CURVE" && request[6].bytes().size() == 32) {
      std::array<char, 41> text{};
      zmq_z85_encode(text.data(), reinterpret_cast<const std::uint8_t*>(request[6].bytes().data()), 32);
      return text.data();
    }
    if (request.size() == 8 && request[5].text() == "PLAIN") {
      return std::string(request[6].text());
    }
    return {};
  }

  // What the owner should see of a message, if anything.
  std::optional<Received> take(const std::vector<ZmqFrame>& frames) {
    const std::string key = frames.size() > 1 ? frames[1].user_id() : frames[0].user_id();
    const std::optional<ConnectionId> connection = connection_of(frames[0].bytes());
    if (!connection) {
      return report(Received{ConnectionId(), key, Error{Code::corrupt, "the peer chose its own routing id"}});
    }
    if (garbled_.has(*connection)) {
      return std::nullopt;
    }
    if (!refused_.has(*connection)) {
      sources_.remember(*connection, frames[0].source());
      gate_.prove(frames[0].source(), now());  // it holds the coordinator's key, and was not refused so far
    }
    if (const auto found = dropped_.find(key); found != dropped_.end()) {
      (void)send(*connection, Refused{found->second});  // it may be gone: then it need not know
      return std::nullopt;
    }
    Result<Message> message =
        frames.size() == 2 && !key.empty()
            ? decode(frames[1].bytes())
            : Result<Message>(Error{Code::corrupt, "a message is one frame, this peer sent " + std::to_string(frames.size() - 1)});
    if (!message && message.error().code == Code::not_found) {
      log_debug(message.error().why + ": it is of a newer version, and ignored");
      return std::nullopt;
    }
    if (!message) {
      garbled_.add(*connection);
      (void)send(*connection, Refused{with_context(message.error(), "the coordinator cannot read this message")});
      return report(Received{*connection, key, std::move(message)});
    }
    if (std::optional<Error> mismatch = answer_other_version(*connection, *message)) {
      return foreign_.add(*connection) ? report(Received{*connection, key, *mismatch}) : std::nullopt;
    }
    return Received{*connection, key, std::move(message), frames[1].peer_host()};
  }

  // Hello, Enrol and Request are read whatever the version; the peer is told both and gets no further.
  std::optional<Error> answer_other_version(ConnectionId connection, const Message& message) {
    std::uint32_t protocol = kProtocolVersion;
    std::visit(
        [&](const auto& value) {
          if constexpr (requires { value.protocol; }) {
            protocol = value.protocol;
          }
        },
        message);
    if (protocol == kProtocolVersion) {
      return std::nullopt;
    }
    Error mismatch = with_context(protocol_mismatch(protocol, kProtocolVersion), "the coordinator cannot serve this peer");
    if (const auto* asked = std::get_if<Request>(&message)) {
      (void)send(connection, Reply{asked->id, mismatch, ""});
    } else {
      (void)send(connection, Refused{mismatch});
    }
    return mismatch;
  }

  // Lets a report through unless there were many lately.
  std::optional<Received> report(Received received) {
    const TimePoint time = now();
    if (time - window_begin_ >= kReportWindow) {
      window_begin_ = time;
      reports_ = 0;
    }
    return ++reports_ <= kReportsPerWindow ? std::optional<Received>(std::move(received)) : std::nullopt;
  }

  std::unique_ptr<ZmqContext> context_;  // first in, last out
  ZmqSocket router_;
  AcceptGate gate_;
  ZmqSocket zap_;
  std::unique_ptr<PollSet> poll_;
  std::map<std::string, Error, std::less<>> dropped_;
  ConnectionMemory garbled_;
  ConnectionMemory foreign_;
  ConnectionMemory refused_;
  Sources sources_;
  TimePoint window_begin_;
  int reports_ = 0;
};

void set_options(ZmqSocket& router, const ControlServerSettings& settings, const Address& address) {
  router.set(ZMQ_LINGER, 500);
  router.set(ZMQ_ROUTER_MANDATORY, 1);
  router.set(ZMQ_MAXMSGSIZE, static_cast<std::int64_t>(kMaxMessageBytes + kCurveOverheadBytes));
  router.set(ZMQ_SNDHWM, 256);
  // No limit of ZeroMQ's: a connection that ends while what came over it waits for room aborts the process once there is room again and a
  // ping was among it (libzmq 4.3, out_event after an I/O error; issue 4364). A peer can bring that about. The gate closes who says too
  // much.
  router.set(ZMQ_RCVHWM, 0);
  router.set(ZMQ_BACKLOG, 256);  // what is accepted at once, before the gate looks
  const bool both_families = address.host == "*" || address.host.find(':') != std::string::npos;
  router.set(ZMQ_IPV6, both_families ? 1 : 0);
  router.set(ZMQ_HANDSHAKE_IVL, 10'000);
  // The kernel clears away what a vanished host left; ZeroMQ's own heartbeats abort in the same way as a ping.
  router.set(ZMQ_TCP_KEEPALIVE, 1);
  router.set(ZMQ_TCP_KEEPALIVE_IDLE, 5);
  router.set(ZMQ_TCP_KEEPALIVE_INTVL, 5);
  router.set(ZMQ_TCP_KEEPALIVE_CNT, 2);
  router.set(ZMQ_TCP_MAXRT, 15'000);
  router.set(ZMQ_ZAP_DOMAIN, std::string("atoll"));
  if (settings.insecure) {
    router.set(ZMQ_PLAIN_SERVER, 1);
  } else {
    router.set(ZMQ_CURVE_SERVER, 1);
    router.set(ZMQ_CURVE_SECRETKEY, settings.keys.secret_key);
  }
}

}  // namespace

Result<std::unique_ptr<ZmqControlServer>> ZmqControlServer::open(const ControlServerSettings& settings) {
  ATOLL_ASSIGN(const Address address, parse_address(settings.bind));
  if (settings.insecure && !address.is_loopback()) {
    return Error{Code::invalid_argument, "without encryption (--insecure) the coordinator listens on a loopback address only, not on " +
                                             to_string(address) + ": bind to 127.0.0.1, or leave --insecure out"};
  }
  if (!settings.insecure && !is_key(settings.keys.secret_key)) {
    return Error{Code::invalid_argument, "the coordinator has no key: run `atoll coordinator init`"};
  }
  auto context = std::make_unique<ZmqContext>();
  ATOLL_ASSIGN(std::unique_ptr<PollSet> poll, PollSet::open());
  ATOLL_ASSIGN(ZmqSocket zap, ZmqSocket::open(*context, ZMQ_REP));
  zap.set(ZMQ_LINGER, 0);
  if (zmq_bind(zap.get(), kZapEndpoint) != 0) {
    return Error{Code::io, std::string("cannot check keys: ") + zmq_strerror(zmq_errno())};
  }
  ATOLL_ASSIGN(ZmqSocket router, ZmqSocket::open(*context, ZMQ_ROUTER));
  set_options(router, settings, address);
  ATOLL_ASSIGN(AcceptGate gate, AcceptGate::open(context->get(), router.get(), "the coordinator's port"));
  gate.set_most_said(4 * kMaxMessageBytes);
  // ZeroMQ would resolve "localhost" as an interface's name first; the number is meant.
  Address bound = address;
  bound.host = address.host == "localhost" ? "127.0.0.1" : address.host;
  if (zmq_bind(router.get(), to_string(bound).c_str()) != 0) {
    return bind_error(address, zmq_errno());
  }
  ATOLL_TRY(poll->add(zap.fd()));
  ATOLL_TRY(poll->add(router.fd()));
  ATOLL_TRY(poll->add(gate.fd()));
  return std::unique_ptr<ZmqControlServer>(
      std::make_unique<RouterServer>(std::move(context), std::move(router), std::move(gate), std::move(zap), std::move(poll)));
}

}  // namespace atl
