// The control link's contract, over every implementation: ZeroMQ with CURVE, ZeroMQ plain, and the simulated network.
#include <poll.h>

#include <algorithm>
#include <functional>
#include <set>

#include "tests/catch.hpp"
#include "tests/message_samples.hpp"
#include "transport/base/log.hpp"
#include "transport/simulated/simulated_network.hpp"
#include "transport/zmq/control_client.hpp"
#include "transport/zmq/control_server.hpp"

namespace of_control_link_contract_test {

using namespace atl;
using namespace std::chrono_literals;

namespace {

// One coordinator and its peers; what arrives is collected.
class World {
 public:
  struct Peer {
    std::unique_ptr<ControlClient> client;
    std::string key;
    std::vector<Message> messages;
    std::vector<bool> changes;  // true: up
    [[nodiscard]] bool up() const { return !changes.empty() && changes.back(); }
  };

  virtual ~World() = default;
  virtual std::unique_ptr<ControlServer> make_server() = 0;
  virtual std::unique_ptr<ControlClient> make_client(const std::string& key) = 0;
  virtual std::string make_key() = 0;
  // Lets a little time pass, until something may have happened.
  virtual void wait() = 0;
  virtual bool patience_ends() = 0;

  void start() { server = make_server(); }
  void stop() { server.reset(); }
  Peer& join() { return join(make_key()); }
  Peer& join(const std::string& key) {
    peers.push_back(std::make_unique<Peer>());
    peers.back()->key = key;
    peers.back()->client = make_client(key);
    return *peers.back();
  }

  void collect() {
    while (server) {
      std::optional<Received> next = server->receive();
      if (!next) {
        break;
      }
      received.push_back(*std::move(next));
    }
    for (const auto& peer : peers) {
      while (peer->client) {
        std::optional<LinkEvent> event = peer->client->receive();
        if (!event) {
          break;
        }
        if (auto* message = std::get_if<Message>(&*event)) {
          peer->messages.push_back(std::move(*message));
        } else {
          peer->changes.push_back(std::holds_alternative<LinkUp>(*event));
        }
      }
    }
  }
  bool until(const std::function<bool()>& done) {
    for (;;) {
      collect();
      if (done()) {
        return true;
      }
      if (patience_ends()) {
        return false;
      }
      wait();
    }
  }
  // The peer's newest connection, known from a message of its own.
  ConnectionId meet(Peer& peer, std::uint64_t boot) {
    REQUIRE(until([&] { return peer.up(); }));
    REQUIRE(peer.client->send(Heartbeat{boot, {}}).ok());
    const Received* found = nullptr;
    REQUIRE(until([&] { return (found = find(boot)) != nullptr; }));
    CHECK(found->public_key == peer.key);
    return found->connection;
  }
  [[nodiscard]] const Received* find(std::uint64_t boot) const {
    const auto at = std::find_if(received.begin(), received.end(), [&](const Received& one) {
      return one.message && *one.message == Message(Heartbeat{boot, {}});
    });
    return at == received.end() ? nullptr : &*at;
  }

  std::unique_ptr<ControlServer> server;
  std::vector<std::unique_ptr<Peer>> peers;
  std::vector<Received> received;
};

class ZmqWorld : public World {
 public:
  explicit ZmqWorld(bool insecure) : insecure_(insecure) {}
  std::unique_ptr<ControlServer> make_server() override {
    auto made = ZmqControlServer::open(ControlServerSettings{address_, keys_, insecure_});
    INFO((made ? "" : made.error().why));
    REQUIRE(made);
    address_ = (*made)->bound_address();
    return *std::move(made);
  }
  std::unique_ptr<ControlClient> make_client(const std::string& key) override {
    ControlClientSettings settings;
    settings.address = address_;
    settings.coordinator_key = keys_.public_key;
    settings.keys = *std::find_if(made_.begin(), made_.end(), [&](const KeyPair& pair) { return pair.public_key == key; });
    settings.insecure = insecure_;
    settings.retry_first = 10ms;
    settings.retry_most = 100ms;
    auto made = ZmqControlClient::open(settings);
    INFO((made ? "" : made.error().why));
    REQUIRE(made);
    return *std::move(made);
  }
  std::string make_key() override {
    made_.push_back(make_key_pair().value());
    return made_.back().public_key;
  }
  void wait() override {
    std::vector<pollfd> waiting;
    if (server) {
      waiting.push_back(pollfd{server->fd(), POLLIN, 0});
    }
    for (const auto& peer : peers) {
      if (peer->client) {
        waiting.push_back(pollfd{peer->client->fd(), POLLIN, 0});
      }
    }
    ::poll(waiting.data(), waiting.size(), 1000);
  }
  bool patience_ends() override { return now() > end_; }

 private:
  bool insecure_;
  KeyPair keys_ = make_key_pair().value();
  std::string address_ = "tcp://127.0.0.1:*";
  std::vector<KeyPair> made_;
  TimePoint end_ = now() + 60s;
};

class SimulatedWorld : public World {
 public:
  ~SimulatedWorld() override {
    peers.clear();
    server.reset();
  }
  std::unique_ptr<ControlServer> make_server() override { return network_.control_server(); }
  std::unique_ptr<ControlClient> make_client(const std::string& key) override {
    return network_.control_client("host-" + std::to_string(++hosts_), key);
  }
  std::string make_key() override { return "key-" + std::to_string(++keys_); }
  void wait() override { network_.advance_to(network_.next_event().value_or(network_.now() + 1s)); }
  bool patience_ends() override { return network_.now() > from_unix_ms(1'700'000'000'000) + 5min; }

 private:
  SimulatedNetwork network_{7};
  int hosts_ = 0;
  int keys_ = 0;
};

struct NamedWorld {
  const char* name;
  std::function<std::unique_ptr<World>()> make;
};

const std::vector<NamedWorld>& worlds() {
  static const std::vector<NamedWorld> kWorlds = {{"zeromq, curve", [] { return std::make_unique<ZmqWorld>(false); }},
                                                  {"zeromq, plain", [] { return std::make_unique<ZmqWorld>(true); }},
                                                  {"simulated", [] { return std::make_unique<SimulatedWorld>(); }}};
  return kWorlds;
}

// Runs the case once over each implementation.
void over_every_link(const std::function<void(World&)>& run) {
  set_log_sink([](LogLevel, std::string_view) {});
  for (const NamedWorld& named : worlds()) {
    INFO(named.name);
    const std::unique_ptr<World> world = named.make();
    run(*world);
  }
  set_log_sink({});
}

}  // namespace

TEST_CASE("control link: a message arrives with the key that sent it, and the answer comes back") {
  over_every_link([](World& world) {
    world.start();
    World::Peer& peer = world.join();
    const ConnectionId connection = world.meet(peer, 1);
    CHECK(peer.changes == std::vector<bool>{true});
    REQUIRE(world.server->send(connection, Welcome{"1.0", IslandId("i-1"), 1000, 5000}).ok());
    REQUIRE(world.until([&] { return !peer.messages.empty(); }));
    CHECK(peer.messages[0] == Message(Welcome{"1.0", IslandId("i-1"), 1000, 5000}));
  });
}

TEST_CASE("control link: every kind of message crosses both ways, in order") {
  over_every_link([](World& world) {
    world.start();
    World::Peer& peer = world.join();
    const ConnectionId connection = world.meet(peer, 1);
    const std::vector<Message> samples = test::MessageSampler(1).all();
    world.received.clear();
    for (const Message& message : samples) {
      REQUIRE(peer.client->send(message).ok());
      REQUIRE(world.server->send(connection, message).ok());
    }
    REQUIRE(world.until([&] { return world.received.size() == samples.size() && peer.messages.size() == samples.size(); }));
    for (std::size_t i = 0; i < samples.size(); ++i) {
      INFO(kind_of(samples[i]));
      CHECK(world.received[i].message.value() == samples[i]);
      CHECK(peer.messages[i] == samples[i]);
    }
  });
}

TEST_CASE("control link: an answer goes to the peer it is for, and to no other") {
  over_every_link([](World& world) {
    world.start();
    World::Peer& a = world.join();
    World::Peer& b = world.join();
    const ConnectionId to_a = world.meet(a, 1);
    const ConnectionId to_b = world.meet(b, 2);
    CHECK(to_a != to_b);
    REQUIRE(world.server->send(to_b, Leave{"b"}).ok());
    REQUIRE(world.server->send(to_a, Leave{"a"}).ok());
    REQUIRE(world.until([&] { return !a.messages.empty() && !b.messages.empty(); }));
    CHECK(a.messages == std::vector<Message>{Leave{"a"}});
    CHECK(b.messages == std::vector<Message>{Leave{"b"}});
  });
}

TEST_CASE("control link: two peers with one key are two connections") {
  over_every_link([](World& world) {
    world.start();
    World::Peer& a = world.join();
    World::Peer& b = world.join(a.key);
    const ConnectionId first = world.meet(a, 1);
    const ConnectionId second = world.meet(b, 2);
    CHECK(first != second);
    REQUIRE(world.server->send(first, Leave{"first"}).ok());
    REQUIRE(world.until([&] { return !a.messages.empty(); }));
    CHECK(b.messages.empty());
  });
}

TEST_CASE("control link: a restarted coordinator is found again, by a new connection") {
  over_every_link([](World& world) {
    world.start();
    World::Peer& peer = world.join();
    const ConnectionId before = world.meet(peer, 1);
    world.stop();
    REQUIRE(world.until([&] { return !peer.up(); }));
    CHECK(peer.client->send(Heartbeat{2, {}}).error().code == Code::unavailable);
    world.start();
    const ConnectionId after = world.meet(peer, 3);
    CHECK(after != before);
    CHECK(peer.changes == std::vector<bool>{true, false, true});
    CHECK(world.find(2) == nullptr);  // nothing is kept for later
    REQUIRE(world.server->send(after, Leave{"hello again"}).ok());
    REQUIRE(world.until([&] { return !peer.messages.empty(); }));
  });
}

TEST_CASE("control link: a peer may be there before its coordinator") {
  over_every_link([](World& world) {
    world.start();
    world.stop();  // its address is known now
    World::Peer& peer = world.join();
    world.collect();
    CHECK(peer.client->send(Heartbeat{1, {}}).error().code == Code::unavailable);
    world.start();
    world.meet(peer, 2);
    CHECK(world.find(1) == nullptr);
  });
}

TEST_CASE("control link: sending to a connection that is gone becomes an error") {
  over_every_link([](World& world) {
    world.start();
    World::Peer& peer = world.join();
    const ConnectionId connection = world.meet(peer, 1);
    peer.client.reset();
    Status sent;
    REQUIRE(world.until([&] { return !(sent = world.server->send(connection, Leave{"?"})); }));
    CHECK(sent.error().code == Code::unavailable);
    CHECK(world.server->send(ConnectionId(connection.value + 1), Leave{"?"}).error().code == Code::unavailable);
  });
}

TEST_CASE("control link: a dropped key is refused with the reason until it is readmitted, others are not touched") {
  over_every_link([](World& world) {
    world.start();
    World::Peer& good = world.join();
    World::Peer& bad = world.join();
    world.meet(good, 1);
    world.meet(bad, 2);
    const Error why{Code::unauthorized, "the key was revoked"};
    world.server->drop(bad.key, why);
    REQUIRE(bad.client->send(Heartbeat{3, {}}).ok());
    REQUIRE(world.until([&] { return !bad.messages.empty(); }));
    CHECK(bad.messages[0] == Message(Refused{why}));
    CHECK(world.find(3) == nullptr);
    world.meet(good, 4);
    world.server->readmit(bad.key);
    world.meet(bad, 5);
  });
}

TEST_CASE("control link: a message that is too large is not sent") {
  over_every_link([](World& world) {
    world.start();
    World::Peer& peer = world.join();
    const ConnectionId connection = world.meet(peer, 1);
    const Reply large{1, {}, std::string(kMaxMessageBytes, ' ')};
    CHECK(world.server->send(connection, large).error().code == Code::invalid_argument);
    CHECK(peer.client->send(large).error().code == Code::invalid_argument);
    const Reply fits{1, {}, std::string(kMaxMessageBytes - 1000, ' ')};
    REQUIRE(world.server->send(connection, fits).ok());
    REQUIRE(world.until([&] { return !peer.messages.empty(); }));
    CHECK(peer.messages[0] == Message(fits));
  });
}

TEST_CASE("control link: a hundred peers talk to one coordinator") {
  over_every_link([](World& world) {
    world.start();
    for (int i = 0; i < 100; ++i) {
      world.join();
    }
    const auto all = [&](bool (*holds)(const World::Peer&)) {
      return std::all_of(world.peers.begin(), world.peers.end(), [&](const auto& peer) { return holds(*peer); });
    };
    REQUIRE(world.until([&] { return all([](const World::Peer& peer) { return peer.up(); }); }));
    for (std::size_t i = 0; i < 100; ++i) {
      REQUIRE(world.peers[i]->client->send(Heartbeat{i, {}}).ok());
    }
    REQUIRE(world.until([&] { return world.received.size() == 100; }));
    std::set<ConnectionId> connections;
    for (const Received& received : world.received) {
      REQUIRE(received.message);
      connections.insert(received.connection);
      const std::size_t sender = std::get<Heartbeat>(*received.message).boot;
      CHECK(received.public_key == world.peers[sender]->key);
      REQUIRE(world.server->send(received.connection, Leave{std::to_string(sender)}).ok());
    }
    CHECK(connections.size() == 100);
    REQUIRE(world.until([&] { return all([](const World::Peer& peer) { return !peer.messages.empty(); }); }));
    for (std::size_t i = 0; i < 100; ++i) {
      CHECK(world.peers[i]->messages == std::vector<Message>{Leave{std::to_string(i)}});
    }
  });
}

}  // namespace of_control_link_contract_test
