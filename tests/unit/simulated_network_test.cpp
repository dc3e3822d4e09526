// The simulated network itself: one seed, one history; faults do what they say; the control links keep their contract.
#include "transport/simulated/simulated_network.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "tests/catch.hpp"

namespace of_simulated_network_test {

namespace {

using namespace atl;
using namespace std::chrono_literals;

struct Plane {
  explicit Plane(std::uint64_t seed, const PathConditions& conditions = {}) : network(seed) {
    network.set_conditions(conditions);
    server = network.control_server();
    client = network.control_client("a", "key-a");
  }
  // Virtual time passes; what arrives is collected.
  void run(Duration duration) {
    const TimePoint end = network.now() + duration;
    while (network.now() < end) {
      network.advance_to(std::min(end, network.next_event().value_or(end)));
      while (server) {
        const auto received = server->receive();
        if (!received) {
          break;
        }
        arrivals.push_back(std::to_string(unix_ms(network.now())) + " " + std::to_string(std::get<Heartbeat>(*received->message).boot));
        connection = received->connection;
      }
      while (const auto event = client->receive()) {
        ups += std::holds_alternative<LinkUp>(*event) ? 1 : 0;
        downs += std::holds_alternative<LinkDown>(*event) ? 1 : 0;
        messages += std::holds_alternative<Message>(*event) ? 1 : 0;
      }
    }
  }
  // Numbers 0… n-1, one every 10 ms.
  void send(std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
      sent += client->send(Heartbeat{i, {}}) ? 1 : 0;
      run(10ms);
    }
  }

  SimulatedNetwork network;
  std::unique_ptr<ControlServer> server;
  std::unique_ptr<ControlClient> client;
  std::vector<std::string> arrivals;
  ConnectionId connection;
  int ups = 0;
  int downs = 0;
  int messages = 0;
  int sent = 0;
};

PathConditions rough() {
  PathConditions conditions;
  conditions.jitter = 30ms;
  conditions.loss = 0.2;
  conditions.duplication = 0.2;
  conditions.reordering = 0.2;
  conditions.replay = 0.2;
  return conditions;
}

std::vector<std::string> history(std::uint64_t seed) {
  Plane plane(seed, rough());
  plane.run(1s);
  plane.send(200);
  plane.run(5s);
  return plane.arrivals;
}

}  // namespace

TEST_CASE("one seed is one history, another seed another") {
  CHECK(history(1) == history(1));
  CHECK(history(1) != history(2));
}

TEST_CASE("a quiet path delivers everything once, in order, after its latency") {
  Plane plane(1);
  CHECK(plane.client->send(Heartbeat{}).error().code == Code::unavailable);  // not connected yet
  plane.run(1s);
  CHECK(plane.ups == 1);
  plane.send(50);
  plane.run(1s);
  CHECK(plane.arrivals.size() == 50);
  CHECK(std::is_sorted(plane.arrivals.begin(), plane.arrivals.end()));
  REQUIRE(plane.server->send(plane.connection, Welcome{}));
  plane.run(19ms);
  CHECK(plane.messages == 0);
  plane.run(2ms);
  CHECK(plane.messages == 1);
}

TEST_CASE("each fault happens, and only where it was asked for") {
  for (const int fault : {0, 1, 2, 3}) {
    PathConditions conditions;
    (fault == 0 ? conditions.loss : fault == 1 ? conditions.duplication : fault == 2 ? conditions.reordering : conditions.replay) = 0.3;
    Plane plane(4, conditions);
    plane.run(1s);
    plane.send(200);
    plane.run(5s);
    CAPTURE(fault);
    CHECK((plane.arrivals.size() < 190) == (fault == 0));
    CHECK((plane.arrivals.size() > 210) == (fault == 1 || fault == 3));
    std::vector<std::uint64_t> numbers;
    for (const std::string& line : plane.arrivals) {
      numbers.push_back(std::stoull(line.substr(line.find(' '))));
    }
    CHECK(std::is_sorted(numbers.begin(), numbers.end()) == (fault == 0));
  }
}

TEST_CASE("a cut path loses what it carries one way, the client notices after a while and comes back after healing") {
  Plane plane(5);
  plane.run(1s);
  plane.send(1);
  plane.run(100ms);
  plane.network.cut(kCoordinatorHost, "a");
  plane.send(10);
  plane.run(100ms);
  CHECK(plane.arrivals.size() == 11);  // this way is whole
  REQUIRE(plane.server->send(plane.connection, Welcome{}));
  plane.run(1s);
  CHECK(plane.messages == 0);
  CHECK(plane.downs == 0);
  plane.run(SimulatedNetwork::kDetection);
  CHECK(plane.downs == 1);
  const ConnectionId before = plane.connection;
  CHECK(plane.server->send(before, Welcome{}).error().code == Code::unavailable);
  plane.network.heal_all();
  plane.run(2s);
  CHECK(plane.ups == 2);
  plane.send(1);
  plane.run(100ms);
  CHECK(plane.connection > before);
}

TEST_CASE("a server that restarts is another one, a dropped key is refused") {
  Plane plane(6);
  plane.run(1s);
  plane.server.reset();
  plane.run(1s);
  CHECK(plane.downs == 1);
  plane.server = plane.network.control_server();
  plane.run(2s);
  CHECK(plane.ups == 2);
  plane.server->drop("key-a", Error{Code::unauthorized, "revoked"});
  plane.send(1);
  plane.run(100ms);
  CHECK(plane.arrivals.empty());
  CHECK(plane.messages == 1);
  plane.server->readmit("key-a");
  plane.send(1);
  plane.run(100ms);
  CHECK(plane.arrivals.size() == 1);
}

TEST_CASE("what waits in the queue of a slow path leaves at the rate that the path has by then, in its order") {
  PathConditions slow;
  slow.bytes_per_second = 1;  // minutes each message
  Plane plane(1, slow);
  plane.run(1s);
  plane.send(5);
  plane.run(10s);
  REQUIRE(plane.arrivals.empty());
  plane.network.set_conditions({});
  plane.run(1s);
  REQUIRE(plane.arrivals.size() == 5);
  const std::vector<std::string> sorted = [&] {
    std::vector<std::string> copy = plane.arrivals;
    std::sort(copy.begin(), copy.end());
    return copy;
  }();
  CHECK(plane.arrivals == sorted);
  plane.run(600s);
  CHECK(plane.arrivals.size() == 5);  // each once
  // And a path that becomes slower keeps what waits.
  slow.bytes_per_second = 100'000;
  plane.network.set_conditions(slow);
  plane.send(1);
  CHECK(plane.arrivals.size() == 5);
  slow.bytes_per_second = 1'000;
  plane.network.set_conditions(slow);
  plane.run(10s);
  CHECK(plane.arrivals.size() == 6);
}

}  // namespace of_simulated_network_test
