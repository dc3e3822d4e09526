#include <deque>
#include <map>
#include <utility>

#include "transport/base/check.hpp"
#include "transport/control/control_link.hpp"
#include "transport/simulated/simulated_paths.hpp"

namespace atl {
namespace {

constexpr std::uint64_t kMessageBytes = 256;  // what a message weighs on a path: control traffic is small

}  // namespace

class SimulatedControlServer final : public ControlServer {
 public:
  explicit SimulatedControlServer(SimulatedNetwork::State& network) : network_(network), serial_(network.next_serial++) {
    ATOLL_CHECK(network_.server == nullptr, "one control server");
    network_.server = this;
    network_.reconsider();
  }
  ~SimulatedControlServer() override {
    network_.server = nullptr;
    network_.reconsider();
  }
  SimulatedControlServer(const SimulatedControlServer&) = delete;
  SimulatedControlServer& operator=(const SimulatedControlServer&) = delete;

  std::optional<Received> receive() override {
    if (inbox_.empty()) {
      return std::nullopt;
    }
    Received received = std::move(inbox_.front());
    inbox_.pop_front();
    return received;
  }
  Status send(ConnectionId connection, const Message& message) override;
  void drop(std::string_view public_key, Error why) override { dropped_.insert_or_assign(std::string(public_key), std::move(why)); }
  void readmit(std::string_view public_key) override { dropped_.erase(std::string(public_key)); }
  [[nodiscard]] int fd() const override { return -1; }

  [[nodiscard]] std::uint64_t serial() const { return serial_; }
  void deliver(std::uint64_t client, ConnectionId connection, const std::string& public_key, const Message& message) {
    clients_[connection] = client;
    if (const auto found = dropped_.find(public_key); found != dropped_.end()) {
      (void)send(connection, Refused{found->second});  // a lost refusal is given again to the next message
      return;
    }
    inbox_.push_back(Received{connection, public_key, message});
  }

 private:
  SimulatedNetwork::State& network_;
  std::uint64_t serial_;
  std::map<ConnectionId, std::uint64_t> clients_;  // serial of the client behind each connection heard of
  std::map<std::string, Error> dropped_;
  std::deque<Received> inbox_;
};

class SimulatedControlClient final : public ControlClient {
 public:
  SimulatedControlClient(SimulatedNetwork::State& network, std::string host, std::string public_key)
      : network_(network), serial_(network.next_serial++), host_(std::move(host)), public_key_(std::move(public_key)) {
    network_.clients.emplace(serial_, this);
    dial();
  }
  ~SimulatedControlClient() override { network_.clients.erase(serial_); }
  SimulatedControlClient(const SimulatedControlClient&) = delete;
  SimulatedControlClient& operator=(const SimulatedControlClient&) = delete;

  std::optional<LinkEvent> receive() override {
    if (inbox_.empty()) {
      return std::nullopt;
    }
    LinkEvent event = std::move(inbox_.front());
    inbox_.pop_front();
    return event;
  }

  Status send(const Message& message) override {
    if (!up_) {
      return Error{Code::unavailable, "the coordinator is not connected"};
    }
    if (const Result<Bytes> frame = encode(message); !frame) {
      return frame.error();  // the real link would not send it either
    }
    auto& network = network_;
    const std::uint64_t serial = serial_;
    network_.transmit({host_, kCoordinatorHost}, kMessageBytes, true, [&network, serial, message] {
      // Under the present connection, whenever it was sent: that is what makes it a replay.
      const auto client = network.clients.find(serial);
      if (network.server != nullptr && client != network.clients.end() && client->second->reaches(*network.server)) {
        network.server->deliver(serial, client->second->connection_, client->second->public_key_, message);
      }
    });
    return {};
  }
  [[nodiscard]] int fd() const override { return -1; }

  [[nodiscard]] const std::string& host() const { return host_; }
  [[nodiscard]] bool serves(ConnectionId connection) const { return up_ && connection_ == connection; }
  void deliver(const Message& message) {
    if (up_) {
      inbox_.push_back(message);
    }
  }
  void reconsider() {
    if (up_ && !works() && !breaking_) {
      breaking_ = true;
      const bool reset = network_.server == nullptr || network_.server->serial() != server_;
      later(reset ? network_.path({kCoordinatorHost, host_}).latency : SimulatedNetwork::kDetection,
            &SimulatedControlClient::break_if_broken);
    }
  }

 private:
  [[nodiscard]] bool reaches(const SimulatedControlServer& server) const { return up_ && server.serial() == server_; }
  [[nodiscard]] bool works() const {
    return network_.server != nullptr && network_.server->serial() == server_ && network_.open(host_, kCoordinatorHost);
  }

  void later(Duration wait, void (SimulatedControlClient::*call)()) {
    auto& network = network_;
    const std::uint64_t serial = serial_;
    network_.at(network_.now + wait, [&network, serial, call] {
      const auto client = network.clients.find(serial);
      if (client != network.clients.end()) {
        (client->second->*call)();
      }
    });
  }
  void dial() { later(network_.path({host_, kCoordinatorHost}).latency * 2, &SimulatedControlClient::connect); }
  void connect() {
    if (network_.server == nullptr || !network_.open(host_, kCoordinatorHost)) {
      later(SimulatedNetwork::kRedial, &SimulatedControlClient::connect);
      return;
    }
    server_ = network_.server->serial();
    connection_ = ConnectionId(network_.next_serial++);
    up_ = true;
    inbox_.emplace_back(LinkUp{});
  }
  void break_if_broken() {
    breaking_ = false;
    if (works()) {
      return;  // a short cut: TCP carried on
    }
    up_ = false;
    inbox_.emplace_back(LinkDown{Error{Code::unavailable, "the connection to the coordinator was lost"}});
    later(SimulatedNetwork::kRedial, &SimulatedControlClient::connect);
  }

  SimulatedNetwork::State& network_;
  std::uint64_t serial_;
  std::string host_;
  std::string public_key_;
  bool up_ = false;
  bool breaking_ = false;
  std::uint64_t server_ = 0;  // serial of the server connected to
  ConnectionId connection_;
  std::deque<LinkEvent> inbox_;
};

Status SimulatedControlServer::send(ConnectionId connection, const Message& message) {
  const auto known = clients_.find(connection);
  const auto client = known == clients_.end() ? network_.clients.end() : network_.clients.find(known->second);
  if (client == network_.clients.end() || !client->second->serves(connection)) {
    clients_.erase(connection);
    return Error{Code::unavailable, "the connection is gone"};
  }
  if (const Result<Bytes> frame = encode(message); !frame) {
    return frame.error();  // the real link would not send it either
  }
  auto& network = network_;
  const std::uint64_t serial = client->first;
  network_.transmit({kCoordinatorHost, client->second->host()}, kMessageBytes, true, [&network, serial, message] {
    const auto target = network.clients.find(serial);
    if (target != network.clients.end()) {
      target->second->deliver(message);
    }
  });
  return {};
}

std::unique_ptr<ControlServer> make_simulated_control_server(SimulatedNetwork::State& network) {
  return std::make_unique<SimulatedControlServer>(network);
}

std::unique_ptr<ControlClient> make_simulated_control_client(SimulatedNetwork::State& network, const std::string& host,
                                                             const std::string& public_key) {
  return std::make_unique<SimulatedControlClient>(network, host, public_key);
}

void reconsider_control_links(SimulatedNetwork::State& network) {
  for (const auto& [serial, client] : network.clients) {
    client->reconsider();
  }
}

}  // namespace atl
