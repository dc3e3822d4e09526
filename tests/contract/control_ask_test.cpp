// One question, one answer: what a command sees of the coordinator.
#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <thread>

#include "tests/catch.hpp"
#include "transport/base/file_descriptor.hpp"
#include "transport/zmq/control_client.hpp"
#include "transport/zmq/control_server.hpp"

namespace of_control_ask_test {

using namespace atl;
using namespace std::chrono_literals;

namespace {

// A coordinator that answers every message with whatever `answer` says, in a thread of its own.
class Answering {
 public:
  using Answer = std::function<std::optional<Message>(const Received&)>;

  explicit Answering(Answer answer) : answer_(std::move(answer)) {
    settings_.address = "tcp://127.0.0.1:*";
    settings_.coordinator_key = keys_.public_key;
    settings_.keys = make_key_pair().value();
    settings_.log_changes = false;
    start();
  }
  ~Answering() { stop(); }
  // Its process ends, and another begins at the same address.
  void restart() {
    stop();
    start();
  }
  Answering(const Answering&) = delete;
  Answering& operator=(const Answering&) = delete;

  [[nodiscard]] std::unique_ptr<ZmqControlClient> client() const { return ZmqControlClient::open(settings_).value(); }

 private:
  void start() {
    auto made = ZmqControlServer::open(ControlServerSettings{settings_.address, keys_, false});
    REQUIRE(made);
    settings_.address = (*made)->bound_address();
    stop_ = false;
    thread_ = std::thread([this, server = *std::move(made)] { serve(*server); });
  }
  void stop() {
    stop_ = true;
    thread_.join();
  }
  void serve(ZmqControlServer& server) {
    while (!stop_) {
      while (const std::optional<Received> received = server.receive()) {
        if (const std::optional<Message> message = answer_(*received)) {
          (void)server.send(received->connection, *message);
        }
      }
      pollfd waiting{server.fd(), POLLIN, 0};
      ::poll(&waiting, 1, 10);
    }
  }

  Answer answer_;
  KeyPair keys_ = make_key_pair().value();
  ControlClientSettings settings_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

// A port on loopback that the kernel takes connections for.
class Listening {
 public:
  Listening() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    REQUIRE(::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(socket_.get(), 100) == 0);
    REQUIRE(::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0);
    settings_.address = "tcp://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    settings_.coordinator_key = make_key_pair().value().public_key;
    settings_.keys = make_key_pair().value();
    settings_.log_changes = false;
    settings_.connect_timeout = 300ms;
  }
  [[nodiscard]] int fd() const { return socket_.get(); }
  [[nodiscard]] std::unique_ptr<ZmqControlClient> client() const { return ZmqControlClient::open(settings_).value(); }
  [[nodiscard]] Error why_no_answer() const {
    const Result<Reply> reply = ZmqControlClient::open(settings_).value()->ask(Request{kProtocolVersion, 1, "runs", "{}"}, 10s);
    REQUIRE_FALSE(reply);
    return reply.error();
  }

 private:
  FileDescriptor socket_;
  ControlClientSettings settings_;
};

std::uint64_t id_of(const Received& received) { return std::get<Request>(*received.message).id; }
bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("ask brings the reply to this request, also the second time") {
  const Answering coordinator([](const Received& received) -> std::optional<Message> {
    const auto& request = std::get<Request>(*received.message);
    return Reply{request.id, {}, "{\"verb\": \"" + request.verb + "\"}"};
  });
  const auto client = coordinator.client();
  for (std::uint64_t id = 1; id < 4; ++id) {
    const Result<Reply> reply = client->ask(Request{kProtocolVersion, id, "runs", "{}"}, 20s);
    INFO((reply ? "" : reply.error().why));
    REQUIRE(reply);
    CHECK(reply->id == id);
    CHECK(reply->document == "{\"verb\": \"runs\"}");
  }
}

TEST_CASE("ask finds a connection gone that was lost while nobody asked, and makes another") {
  Answering coordinator([](const Received& received) -> std::optional<Message> { return Reply{id_of(received), {}, "{}"}; });
  const auto client = coordinator.client();
  for (std::uint64_t id = 1; id < 4; ++id) {
    const Result<Reply> reply = client->ask(Request{kProtocolVersion, id, "runs", "{}"}, 20s);
    INFO((reply ? "" : reply.error().why));
    REQUIRE(reply);
    coordinator.restart();
    std::this_thread::sleep_for(200ms);  // by now ZeroMQ has noticed, and the client has not looked
  }
}

TEST_CASE("ask returns the error of the reply or of a refusal") {
  const Answering coordinator([](const Received& received) -> std::optional<Message> {
    const auto& request = std::get<Request>(*received.message);
    if (request.verb == "refuse") {
      return Refused{Error{Code::unauthorized, "this key is not an operator's"}};
    }
    return Reply{request.id, Error{Code::not_found, "there is no run r-1"}, ""};
  });
  CHECK(coordinator.client()->ask(Request{kProtocolVersion, 1, "status", "{}"}, 20s).error() ==
        Error{Code::not_found, "there is no run r-1"});
  CHECK(coordinator.client()->ask(Request{kProtocolVersion, 1, "refuse", "{}"}, 20s).error().code == Code::unauthorized);
}

TEST_CASE("ask names both versions when the coordinator speaks another") {
  const Answering coordinator([](const Received&) -> std::optional<Message> { return std::nullopt; });
  const Result<Reply> reply = coordinator.client()->ask(Request{kProtocolVersion + 4, 9, "runs", "{}"}, 20s);
  REQUIRE_FALSE(reply);
  CHECK(reply.error().code == Code::conflict);
  CHECK(contains(reply.error().why, "version " + std::to_string(kProtocolVersion + 4)));
  CHECK(contains(reply.error().why, "version " + std::to_string(kProtocolVersion)));
}

TEST_CASE("ask ends when no answer comes, and skips answers to others") {
  const Answering coordinator([](const Received& received) -> std::optional<Message> {
    const bool ping = std::get<Request>(*received.message).verb == "ping";
    return Reply{id_of(received) + (ping ? 0 : 1), {}, "{}"};
  });
  const auto client = coordinator.client();
  REQUIRE(client->ask(Request{kProtocolVersion, 1, "ping", "{}"}, 20s));  // connected: the time below is for the answer alone
  const Result<Reply> reply = client->ask(Request{kProtocolVersion, 2, "runs", "{}"}, 200ms);
  REQUIRE_FALSE(reply);
  CHECK(reply.error().code == Code::timeout);
  CHECK(contains(reply.error().why, "200 ms"));
}

TEST_CASE("ask says that the request is too large before it is sent") {
  const Answering coordinator([](const Received&) -> std::optional<Message> { return std::nullopt; });
  const Result<Reply> reply = coordinator.client()->ask(Request{kProtocolVersion, 1, "submit", std::string(kMaxMessageBytes, ' ')}, 20s);
  REQUIRE_FALSE(reply);
  CHECK(reply.error().code == Code::invalid_argument);
}

TEST_CASE("a coordinator that is stopped is not there: nobody is told to enrol again") {
  const Listening stopped;  // the kernel takes the connections of a process that does not run
  const Error why = stopped.why_no_answer();
  INFO(why.why);
  CHECK(why.code == Code::unavailable);
  CHECK(contains(why.why, "takes connections but does not answer"));
}

TEST_CASE("who waits for a coordinator that does not answer sleeps") {
  const Listening stopped;
  const auto client = stopped.client();
  unsigned wakes = 0;
  for (const TimePoint end = now() + 2s; now() < end; ++wakes) {
    pollfd entry{client->fd(), POLLIN, 0};
    ::poll(&entry, 1, 1000);
    (void)client->receive();
  }
  CHECK(wakes < 200);
}

TEST_CASE("a coordinator that has no room for a connection is not there: nobody is told to enrol again") {
  const Listening full;
  std::atomic<bool> stop = false;
  std::thread closing([&] {
    while (!stop) {
      pollfd entry{full.fd(), POLLIN, 0};
      if (::poll(&entry, 1, 10) == 1) {
        ::close(::accept(full.fd(), nullptr, nullptr));
      }
    }
  });
  const Error why = full.why_no_answer();
  stop = true;
  closing.join();
  INFO(why.why);
  CHECK(why.code == Code::unavailable);
}

}  // namespace of_control_ask_test
