// The control link's sockets against strangers: unknown and wrong keys, garbage, oversized frames, other versions, ports in use.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#include <atomic>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

#include "tests/catch.hpp"
#include "tests/message_samples.hpp"
#include "tests/skip.hpp"
#include "transport/base/address.hpp"
#include "transport/base/log.hpp"
#include "transport/zmq/control_client.hpp"
#include "transport/zmq/control_server.hpp"

namespace of_control_socket_test {

using namespace atl;
using namespace std::chrono_literals;

namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

class Coordinator {
 public:
  explicit Coordinator(bool insecure = false, const std::string& bind = "tcp://127.0.0.1:*") : insecure_(insecure) {
    auto made = ZmqControlServer::open(ControlServerSettings{bind, keys_, insecure});
    INFO((made ? "" : made.error().why));
    REQUIRE(made);
    server_ = *std::move(made);
  }
  ZmqControlServer& operator*() { return *server_; }
  ZmqControlServer* operator->() { return server_.get(); }
  [[nodiscard]] std::string address() const { return server_->bound_address(); }
  [[nodiscard]] std::uint16_t port() const { return parse_address(address()).value().port; }
  [[nodiscard]] const KeyPair& keys() const { return keys_; }
  [[nodiscard]] ControlClientSettings for_client() const {
    ControlClientSettings settings;
    settings.address = address();
    settings.coordinator_key = keys_.public_key;
    settings.keys = make_key_pair().value();
    settings.insecure = insecure_;
    settings.log_changes = false;
    settings.retry_first = 10ms;
    settings.retry_most = 100ms;
    return settings;
  }
  // What arrives next, within `patience`.
  std::optional<Received> next(Duration patience = 20s) {
    const TimePoint end = now() + patience;
    for (;;) {
      if (std::optional<Received> received = server_->receive()) {
        return received;
      }
      if (now() >= end) {
        return std::nullopt;
      }
      pollfd waiting{server_->fd(), POLLIN, 0};
      ::poll(&waiting, 1, 100);
    }
  }

 private:
  bool insecure_;
  KeyPair keys_ = make_key_pair().value();
  std::unique_ptr<ZmqControlServer> server_;
};

std::unique_ptr<ZmqControlClient> open(const ControlClientSettings& settings) {
  auto made = ZmqControlClient::open(settings);
  INFO((made ? "" : made.error().why));
  REQUIRE(made);
  return *std::move(made);
}

// The client's next event while the coordinator is served.
std::optional<LinkEvent> next_event(ZmqControlClient& client, Coordinator& coordinator, std::vector<Received>* received = nullptr) {
  const TimePoint end = now() + 20s;
  while (now() < end) {
    while (std::optional<Received> message = coordinator->receive()) {
      if (received != nullptr) {
        received->push_back(*std::move(message));
      }
    }
    if (std::optional<LinkEvent> event = client.receive()) {
      return event;
    }
    std::array<pollfd, 2> waiting{pollfd{coordinator->fd(), POLLIN, 0}, pollfd{client.fd(), POLLIN, 0}};
    ::poll(waiting.data(), waiting.size(), 100);
  }
  return std::nullopt;
}

// A peer that speaks ZeroMQ but none of our rules.
class RawPeer {
 public:
  explicit RawPeer(const Coordinator& coordinator, const std::string& routing_id = "") {
    const KeyPair keys = make_key_pair().value();
    const int linger = 0;
    zmq_setsockopt(socket_, ZMQ_LINGER, &linger, sizeof linger);
    zmq_setsockopt(socket_, ZMQ_CURVE_SERVERKEY, coordinator.keys().public_key.data(), 40);
    zmq_setsockopt(socket_, ZMQ_CURVE_PUBLICKEY, keys.public_key.data(), 40);
    zmq_setsockopt(socket_, ZMQ_CURVE_SECRETKEY, keys.secret_key.data(), 40);
    if (!routing_id.empty()) {
      zmq_setsockopt(socket_, ZMQ_ROUTING_ID, routing_id.data(), routing_id.size());
    }
    key_ = keys.public_key;
    REQUIRE(zmq_connect(socket_, coordinator.address().c_str()) == 0);
  }
  ~RawPeer() {
    zmq_close(socket_);
    zmq_ctx_term(context_);
  }
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;

  void send(ByteView frame, bool more = false) { REQUIRE(zmq_send(socket_, frame.data(), frame.size(), more ? ZMQ_SNDMORE : 0) >= 0); }
  // The next message, while the coordinator is served.
  std::optional<Message> receive(Coordinator& coordinator) {
    const TimePoint end = now() + 20s;
    Bytes buffer(65536);
    while (now() < end) {
      while (coordinator->receive()) {
      }
      const int size = zmq_recv(socket_, buffer.data(), buffer.size(), ZMQ_DONTWAIT);
      if (size >= 0) {
        const Result<Message> message = decode(ByteView(buffer).first(static_cast<std::size_t>(size)));
        REQUIRE(message);
        return *message;
      }
      zmq_pollitem_t item{socket_, 0, ZMQ_POLLIN, 0};
      zmq_poll(&item, 1, 20);
    }
    return std::nullopt;
  }
  [[nodiscard]] const std::string& key() const { return key_; }

 private:
  void* context_ = zmq_ctx_new();
  void* socket_ = zmq_socket(context_, ZMQ_DEALER);
  std::string key_;
};

// A TCP connection without any manners.
class RawTcp {
 public:
  explicit RawTcp(std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  }
  ~RawTcp() { ::close(fd_); }
  RawTcp(const RawTcp&) = delete;
  RawTcp& operator=(const RawTcp&) = delete;
  void send(ByteView bytes) const { (void)!::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }

 private:
  int fd_;
};

// The coordinator still serves a good peer.
void check_alive(Coordinator& coordinator) {
  const auto client = open(coordinator.for_client());
  std::optional<LinkEvent> event = next_event(*client, coordinator);
  REQUIRE(event);
  REQUIRE(std::holds_alternative<LinkUp>(*event));
  REQUIRE(client->send(Heartbeat{4711, {}}).ok());
  for (;;) {
    const std::optional<Received> received = coordinator.next();
    REQUIRE(received);
    if (received->message && *received->message == Message(Heartbeat{4711, {}})) {
      return;
    }
  }
}

}  // namespace

TEST_CASE("an unknown key may knock: the owner sees the key that was proven, and decides") {
  Coordinator coordinator;
  ControlClientSettings settings = coordinator.for_client();
  const auto client = open(settings);
  REQUIRE(std::holds_alternative<LinkUp>(*next_event(*client, coordinator)));
  REQUIRE(client->send(Hello{}).ok());
  const std::optional<Received> received = coordinator.next();
  REQUIRE(received);
  CHECK(received->public_key == settings.keys.public_key);
  REQUIRE(coordinator->send(received->connection, Refused{Error{Code::unauthorized, "who are you?"}}).ok());
  const std::optional<LinkEvent> event = next_event(*client, coordinator);
  REQUIRE(event);
  CHECK(std::get<Message>(*event) == Message(Refused{Error{Code::unauthorized, "who are you?"}}));
}

TEST_CASE("a coordinator with another key is not believed, and the person is told") {
  Coordinator coordinator;
  ControlClientSettings settings = coordinator.for_client();
  settings.coordinator_key = make_key_pair().value().public_key;
  const auto client = open(settings);
  std::vector<Received> received;
  const std::optional<LinkEvent> event = next_event(*client, coordinator, &received);
  REQUIRE(event);
  const Error why = std::get<LinkDown>(*event).why;
  CHECK(why.code == Code::unauthorized);
  CHECK(contains(why.why, settings.address));
  CHECK(contains(why.why, "join token"));
  CHECK(received.empty());
  check_alive(coordinator);
}

TEST_CASE("plain and encrypted ends do not meet, and say why") {
  for (const bool insecure : {false, true}) {
    INFO(insecure);
    Coordinator coordinator(insecure);
    ControlClientSettings settings = coordinator.for_client();
    settings.insecure = !insecure;
    const auto client = open(settings);
    std::vector<Received> received;
    const std::optional<LinkEvent> event = next_event(*client, coordinator, &received);
    REQUIRE(event);
    const Error why = std::get<LinkDown>(*event).why;
    CHECK(why.code == Code::unauthorized);
    CHECK(contains(why.why, "--insecure"));
    CHECK(received.empty());
    check_alive(coordinator);
  }
}

TEST_CASE("garbage on the port does no harm") {
  Coordinator coordinator;
  Rng rng(3);
  for (int i = 0; i < 30; ++i) {
    const RawTcp connection(coordinator.port());
    Bytes bytes(rng.below(5000));
    for (std::byte& byte : bytes) {
      byte = static_cast<std::byte>(rng.below(256));
    }
    if (i % 3 == 0) {  // a ZMTP greeting first
      const Bytes greeting = from_hex("ff00000000000000017f03004355525645000000000000000000000000000000").value();
      connection.send(greeting);
      connection.send(Bytes(32));
    }
    connection.send(bytes);
    while (coordinator->receive()) {
    }
  }
  const RawTcp http(coordinator.port());
  http.send(as_bytes("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  const RawTcp silent(coordinator.port());
  check_alive(coordinator);
}

TEST_CASE("frames that are no message are reported once, answered once, and their sender ignored") {
  Coordinator coordinator;
  RawPeer peer(coordinator);
  for (int i = 0; i < 5; ++i) {
    peer.send(as_bytes("this is not a message"));
  }
  peer.send(encode(Heartbeat{1, {}}).value());
  const std::optional<Received> received = coordinator.next();
  REQUIRE(received);
  CHECK(received->public_key == peer.key());
  CHECK(received->message.error().code == Code::corrupt);
  const std::optional<Message> answer = peer.receive(coordinator);
  REQUIRE(answer);
  CHECK(std::get<Refused>(*answer).error.code == Code::corrupt);
  check_alive(coordinator);
  CHECK_FALSE(coordinator.next(50ms).has_value());  // neither the other four nor the good one
}

TEST_CASE("a message of several frames, or of none, is garbage") {
  Coordinator coordinator;
  const Bytes good = encode(Heartbeat{1, {}}).value();
  RawPeer two(coordinator);
  two.send(good, true);
  two.send(good);
  CHECK(coordinator.next()->message.error().code == Code::corrupt);
  RawPeer empty(coordinator);
  empty.send({});
  CHECK(coordinator.next()->message.error().code == Code::corrupt);
}

TEST_CASE("a peer that brings its own routing id is not listened to") {
  Coordinator coordinator;
  RawPeer peer(coordinator, "me");
  peer.send(encode(Heartbeat{1, {}}).value());
  const std::optional<Received> received = coordinator.next();
  REQUIRE(received);
  CHECK(received->public_key == peer.key());
  CHECK(received->message.error().code == Code::corrupt);
}

TEST_CASE("an oversized frame ends its connection and reaches nobody") {
  Coordinator coordinator;
  RawPeer peer(coordinator);
  peer.send(encode(Heartbeat{1, {}}).value());
  const std::optional<Received> first = coordinator.next();
  REQUIRE(first);
  REQUIRE(first->message);
  peer.send(Bytes(kMaxMessageBytes * 2));
  const TimePoint end = now() + 20s;
  bool gone = false;
  while (!gone && now() < end) {
    while (const std::optional<Received> received = coordinator->receive()) {
      FAIL("an oversized frame was received");
    }
    gone = !coordinator->send(first->connection, Leave{"?"}).ok();
    pollfd waiting{coordinator->fd(), POLLIN, 0};
    ::poll(&waiting, 1, 10);
  }
  CHECK(gone);
  check_alive(coordinator);
}

TEST_CASE("a coordinator that is busy outlives a peer that says more than its queue holds, and is gone") {
  Coordinator coordinator;
  std::optional<Received> first;
  {
    RawPeer peer(coordinator);
    const Bytes beat = encode(Heartbeat{1, {}}).value();
    peer.send(beat);
    first = coordinator.next();
    REQUIRE(first);
    for (int i = 0; i < 900; ++i) {
      peer.send(beat);
    }
    std::this_thread::sleep_for(200ms);
  }
  std::this_thread::sleep_for(100ms);
  (void)coordinator->send(first->connection, Leave{"?"});  // to which a connection that is not there is reset
  std::this_thread::sleep_for(6s);                         // with heartbeats of ZeroMQ's own its process would end within five
  std::size_t heard = 0;
  while (coordinator->receive()) {
    ++heard;
  }
  CHECK(heard > 60);
  check_alive(coordinator);
}

TEST_CASE("a peer that says more than anybody needs to is closed") {
  Coordinator coordinator;
  std::atomic<bool> over = false;
  std::thread flood([&, address = coordinator.address(), server_key = coordinator.keys().public_key] {
    void* context = zmq_ctx_new();
    void* socket = zmq_socket(context, ZMQ_DEALER);
    const KeyPair keys = make_key_pair().value();
    const int few = 4;
    const int none = 0;
    zmq_setsockopt(socket, ZMQ_SNDHWM, &few, sizeof few);
    zmq_setsockopt(socket, ZMQ_LINGER, &none, sizeof none);
    zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, server_key.data(), 40);
    zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, keys.public_key.data(), 40);
    zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, keys.secret_key.data(), 40);
    zmq_connect(socket, address.c_str());
    const Bytes much(1 << 20);
    while (!over) {
      if (zmq_send(socket, much.data(), much.size(), ZMQ_DONTWAIT) < 0) {
        std::this_thread::sleep_for(1ms);
      }
    }
    zmq_close(socket);
    zmq_ctx_term(context);
  });
  std::mutex mutex;
  std::string said;
  set_log_sink([&](LogLevel, std::string_view line) {
    const std::lock_guard lock(mutex);
    said += line;
  });
  const auto closed = [&] {
    const std::lock_guard lock(mutex);
    return contains(said, "was closed that said more than 16");
  };
  const TimePoint end = now() + 20s;
  while (!closed() && now() < end) {
    (void)coordinator->receive();
    std::this_thread::sleep_for(20ms);  // slower than what comes
  }
  CHECK(closed());
  over = true;
  flood.join();
  set_log_sink({});
  check_alive(coordinator);
}

TEST_CASE("an agent that is busy outlives a coordinator that says thousands of things, and is gone") {
  std::unique_ptr<ZmqControlClient> client;
  {
    Coordinator coordinator(true);
    ControlClientSettings settings = coordinator.for_client();
    settings.dead_after = 300ms;
    client = open(settings);
    REQUIRE(next_event(*client, coordinator));
    REQUIRE(client->send(Heartbeat{1, {}}).ok());
    const std::optional<Received> first = coordinator.next();
    REQUIRE(first);
    const TimePoint end = now() + 20s;
    for (int sent = 0; sent < 3000 && now() < end;) {
      if (coordinator->send(first->connection, Leave{"?"}).ok()) {
        ++sent;
      } else {
        std::this_thread::sleep_for(1ms);
      }
    }
    std::this_thread::sleep_for(100ms);
  }
  std::this_thread::sleep_for(1s);
  bool down = false;
  const TimePoint end = now() + 20s;
  while (!down && now() < end) {
    const std::optional<LinkEvent> event = client->receive();
    down = event && std::holds_alternative<LinkDown>(*event);
  }
  CHECK(down);
}

TEST_CASE("many garbling peers make few reports") {
  Coordinator coordinator;
  int reports = 0;
  for (int i = 0; i < 30; ++i) {
    RawPeer peer(coordinator);
    peer.send(as_bytes("garbage"));
    const TimePoint end = now() + 20s;
    while (now() < end) {
      while (coordinator->receive()) {
        ++reports;
      }
      pollfd waiting{coordinator->fd(), POLLIN, 0};
      if (::poll(&waiting, 1, 20) == 0 && reports > 0) {  // the first is always reported; of the others nothing may come
        break;
      }
    }
  }
  CHECK(reports >= 1);
  CHECK(reports <= 20);  // ten in ten seconds
  check_alive(coordinator);
}

TEST_CASE("a peer of another protocol version is told both versions") {
  Coordinator coordinator;
  const auto client = open(coordinator.for_client());
  REQUIRE(std::holds_alternative<LinkUp>(*next_event(*client, coordinator)));
  Hello hello;
  hello.protocol = 77;
  REQUIRE(client->send(hello).ok());
  std::vector<Received> received;
  const std::optional<LinkEvent> event = next_event(*client, coordinator, &received);
  REQUIRE(event);
  const Error why = std::get<Refused>(std::get<Message>(*event)).error;
  CHECK(why.code == Code::conflict);
  CHECK(contains(why.why, "version 77"));
  CHECK(contains(why.why, "version " + std::to_string(kProtocolVersion)));
  REQUIRE(received.size() == 1);
  CHECK(received[0].message.error().code == Code::conflict);
}

TEST_CASE("a port in use is named, with what to do") {
  Coordinator coordinator;
  const auto second = ZmqControlServer::open(ControlServerSettings{coordinator.address(), make_key_pair().value(), false});
  REQUIRE_FALSE(second);
  CHECK(second.error().code == Code::conflict);
  CHECK(contains(second.error().why, "port " + std::to_string(coordinator.port())));
  CHECK(contains(second.error().why, "ss -ltnp"));
  CHECK(ZmqControlServer::open({"tcp://192.0.2.1:4400", make_key_pair().value(), false}).error().code == Code::invalid_argument);
  CHECK(ZmqControlServer::open({"nonsense", make_key_pair().value(), false}).error().code == Code::invalid_argument);
  CHECK(contains(ZmqControlServer::open({"tcp://127.0.0.1:*", KeyPair{}, false}).error().why, "coordinator init"));
}

TEST_CASE("without encryption only loopback addresses are used") {
  const KeyPair keys = make_key_pair().value();
  for (const char* address : {"tcp://0.0.0.0:4400", "tcp://*:4400", "tcp://10.1.2.3:4400", "tcp://example.org:4400"}) {
    INFO(address);
    const auto server = ZmqControlServer::open({address, keys, true});
    REQUIRE_FALSE(server);
    CHECK(server.error().code == Code::invalid_argument);
    CHECK(contains(server.error().why, "--insecure"));
    ControlClientSettings settings;
    settings.address = address;
    settings.keys = keys;
    settings.insecure = true;
    CHECK(ZmqControlClient::open(settings).error().code == Code::invalid_argument);
  }
}

TEST_CASE("nobody at the address: a command is told soon, with the address and what to check") {
  ControlClientSettings settings;
  {
    const Coordinator gone;
    settings = gone.for_client();
  }
  settings.retry_first = 100ms;
  const TimePoint begin = now();
  const Result<Reply> reply = open(settings)->ask(Request{kProtocolVersion, 1, "runs", "{}"}, 30s);
  REQUIRE_FALSE(reply);
  CHECK(reply.error().code == Code::unavailable);
  CHECK(contains(reply.error().why, settings.address));
  CHECK(contains(reply.error().why, "firewall"));
  CHECK(now() - begin < 10s);  // not the whole time-out

  settings.address = "tcp://no-such-host.invalid:4400";
  const Result<Reply> unresolved = open(settings)->ask(Request{}, 30s);
  REQUIRE_FALSE(unresolved);
  CHECK(unresolved.error().code == Code::unavailable);
  CHECK(contains(unresolved.error().why, "no-such-host.invalid"));
}

TEST_CASE("every address of a name is tried, the one that was good last first") {
  Coordinator coordinator;
  ControlClientSettings settings = coordinator.for_client();
  settings.address = "tcp://two-homes.test:" + std::to_string(coordinator.port());
  std::atomic<int> lookups = 0;
  settings.resolver = [&](const Address& name) -> Result<std::vector<Address>> {
    CHECK(name.host == "two-homes.test");
    ++lookups;
    return std::vector<Address>{{"127.0.0.9", name.port}, {"::1", name.port}, {"127.0.0.1", name.port}};
  };
  const auto client = open(settings);
  const std::optional<LinkEvent> event = next_event(*client, coordinator);
  REQUIRE(event);
  CHECK(std::holds_alternative<LinkUp>(*event));  // and no LinkDown before
  CHECK(lookups == 1);
}

TEST_CASE("a name with an IPv6 address, and a coordinator on every interface") {
  if (!atl::ZmqControlServer::open({"tcp://[::1]:*", make_key_pair().value(), false})) {
    ATL_SKIP("this machine has no IPv6");
  }
  for (const auto& [bind, hosts] :
       std::vector<std::pair<std::string, std::vector<std::string>>>{{"tcp://[::1]:*", {"::1"}}, {"tcp://*:*", {"::1", "127.0.0.1"}}}) {
    for (const std::string& host : hosts) {
      INFO(bind << " " << host);
      Coordinator coordinator(false, bind);
      ControlClientSettings settings = coordinator.for_client();
      settings.address = "tcp://named.test:" + std::to_string(coordinator.port());
      settings.resolver = [&](const Address& name) { return Result<std::vector<Address>>(std::vector<Address>{{host, name.port}}); };
      const auto client = open(settings);
      const std::optional<LinkEvent> event = next_event(*client, coordinator);
      REQUIRE(event);
      CHECK(std::holds_alternative<LinkUp>(*event));
    }
  }
  CHECK(resolve({"localhost", 1}).value() == std::vector<Address>{{"127.0.0.1", 1}, {"::1", 1}});
  CHECK(resolve({"::1", 4400}).value() == std::vector<Address>{{"::1", 4400}});
  CHECK(resolve({"10.1.2.3", 4400}).value() == std::vector<Address>{{"10.1.2.3", 4400}});
}

TEST_CASE("an unknown name is called so and not a firewall, and one that nobody answers for holds up nobody") {
  Coordinator coordinator;
  ControlClientSettings settings = coordinator.for_client();
  settings.address = "tcp://no-such-host.invalid:4400";
  const auto unknown = open(settings);  // as an agent has it
  const std::optional<LinkEvent> event = next_event(*unknown, coordinator);
  REQUIRE(event);
  REQUIRE(std::holds_alternative<LinkDown>(*event));
  const std::string why = std::get<LinkDown>(*event).why.why;
  INFO(why);
  CHECK(contains(why, "the name no-such-host.invalid cannot be resolved"));
  CHECK_FALSE(contains(why, "firewall"));

  const auto end = std::make_shared<std::promise<void>>();
  settings.connect_timeout = 500ms;
  settings.resolver = [ended = end->get_future().share()](const Address&) -> Result<std::vector<Address>> {
    ended.wait();
    return Error{Code::unavailable, "too late"};
  };
  const TimePoint begin = now();
  const auto slow = open(settings);
  while (now() - begin < 400ms) {
    CHECK_FALSE(slow->receive());
    pollfd waiting{slow->fd(), POLLIN, 0};
    ::poll(&waiting, 1, 50);
  }
  const std::optional<LinkEvent> down = next_event(*slow, coordinator);
  REQUIRE(down);
  REQUIRE(std::holds_alternative<LinkDown>(*down));
  CHECK(contains(std::get<LinkDown>(*down).why.why, "looking up its name takes longer than 500 ms"));
  end->set_value();
}

TEST_CASE("the log has one line when the coordinator is lost and one when it is back") {
  std::vector<std::string> lines;
  std::mutex mutex;
  set_log_sink([&](LogLevel, std::string_view line) {
    const std::scoped_lock lock(mutex);
    lines.emplace_back(line);
  });
  {
    auto coordinator = std::make_unique<Coordinator>();
    ControlClientSettings settings = coordinator->for_client();
    settings.log_changes = true;
    const auto client = open(settings);
    REQUIRE(std::holds_alternative<LinkUp>(*next_event(*client, *coordinator)));
    CHECK(lines.empty());
    const KeyPair keys = coordinator->keys();
    coordinator.reset();
    std::size_t attempts = 0;
    const TimePoint end = now() + 20s;
    while (attempts < 20 && now() < end) {  // each wake-up of a link that is down is a step of its back-off
      (void)client->receive();
      pollfd waiting{client->fd(), POLLIN, 0};
      attempts += ::poll(&waiting, 1, 100) == 1 ? 1 : 0;
    }
    CHECK(lines.size() == 1);
    auto again = ZmqControlServer::open(ControlServerSettings{settings.address, keys, false});
    INFO((again ? "" : again.error().why));
    REQUIRE(again);
    while (lines.size() < 2 && now() < end) {
      (void)(*again)->receive();
      (void)client->receive();
      std::array<pollfd, 2> waiting{pollfd{(*again)->fd(), POLLIN, 0}, pollfd{client->fd(), POLLIN, 0}};
      ::poll(waiting.data(), waiting.size(), 100);
    }
  }
  set_log_sink({});
  REQUIRE(lines.size() == 2);
  CHECK(contains(lines[0], "lost the connection"));
  CHECK(contains(lines[1], "there again"));
}

}  // namespace of_control_socket_test
