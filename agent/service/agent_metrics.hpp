// AgentMetrics: an agent's own figures for Prometheus, served at an address that its owner chose. docs/metrics.md has the names.
//
// They are what the agent tells the coordinator in its heartbeats, and the room on its disk, so they are there while the coordinator is
// away, too. Whoever reaches the address reads them; nothing can be changed there.
// Threads: note() and connected() the agent's; answers are made on the server's.
#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <string>

#include "transport/base/result.hpp"
#include "transport/control/message.hpp"
#include "transport/web/http.hpp"

namespace atl::agent {

struct MetricsPlace {
  std::string address;          // HOST:PORT
  std::string island;           // its name
  std::string version;          // of Atoll
  std::filesystem::path state;  // whose disk is told of
};

class AgentMetrics {
 public:
  // Errors: invalid_argument for what is no address; those of HttpServer::start.
  static Result<std::unique_ptr<AgentMetrics>> start(MetricsPlace place);

  // What the newest heartbeat said.
  void note(const Heartbeat& heartbeat);
  // Whether there is a link to the coordinator.
  void connected(bool connected);

  [[nodiscard]] std::string text() const;

 private:
  explicit AgentMetrics(MetricsPlace place) : place_(std::move(place)) {}

  const MetricsPlace place_;
  mutable std::mutex mutex_;
  Heartbeat newest_;
  bool connected_ = false;
  std::unique_ptr<HttpServer> server_;  // goes first
};

}  // namespace atl::agent
