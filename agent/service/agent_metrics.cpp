#include "agent/service/agent_metrics.hpp"

#include <array>

#include "transport/base/address.hpp"
#include "transport/base/log.hpp"
#include "transport/web/prometheus_text.hpp"

namespace atl::agent {
namespace {

struct Gauge {
  const char* name;
  const char* type;
  const char* help;
  double (*value)(const IslandReport&);
};
constexpr std::array kOfRun = {
    Gauge{"atoll_agent_step", "gauge", "Inner steps that the trainer has done.",
          [](const IslandReport& report) { return static_cast<double>(report.step.value); }},
    Gauge{"atoll_agent_tokens_total", "counter", "Tokens trained on.",
          [](const IslandReport& report) { return static_cast<double>(report.tokens); }},
    Gauge{"atoll_agent_tokens_per_second", "gauge", "Tokens a second.",
          [](const IslandReport& report) { return report.tokens_per_second; }},
    Gauge{"atoll_agent_training_loss", "gauge", "Loss of the newest steps.",
          [](const IslandReport& report) { return report.training_loss; }},
    Gauge{"atoll_agent_compute_seconds_total", "counter", "Time spent computing.",
          [](const IslandReport& report) { return report.compute_seconds; }},
    Gauge{"atoll_agent_wait_seconds_total", "counter", "Time that the trainer waited.",
          [](const IslandReport& report) { return report.wait_seconds; }},
    Gauge{"atoll_agent_sent_bytes_total", "counter", "Bytes sent to other islands.",
          [](const IslandReport& report) { return static_cast<double>(report.bytes_sent); }},
    Gauge{"atoll_agent_received_bytes_total", "counter", "Bytes received from other islands.",
          [](const IslandReport& report) { return static_cast<double>(report.bytes_received); }},
    Gauge{"atoll_agent_memory_bytes", "gauge", "Memory of the agent's process.",
          [](const IslandReport& report) { return static_cast<double>(report.agent_memory_bytes); }},
    Gauge{"atoll_agent_trainer_memory_bytes", "gauge", "Memory of the trainer's process.",
          [](const IslandReport& report) { return static_cast<double>(report.trainer_memory_bytes); }},
};

}  // namespace

Result<std::unique_ptr<AgentMetrics>> AgentMetrics::start(MetricsPlace place) {
  Result<Address> where = parse_address(place.address);
  if (!where) {
    return Error{Code::invalid_argument,
                 "metrics: '" + place.address.substr(0, 100) + "' is not an address: write HOST:PORT, such as 127.0.0.1:4481"};
  }
  std::unique_ptr<AgentMetrics> metrics(new AgentMetrics(std::move(place)));
  const auto answer = [raw = metrics.get()](const HttpRequest& request) {
    return request.path == "/metrics" ? HttpAnswer{200, prometheus::kType, raw->text(), {}}
                                      : HttpAnswer{404, "text/plain; charset=utf-8", "the metrics are at /metrics\n", {}};
  };
  ATOLL_ASSIGN(metrics->server_, HttpServer::start(*where, answer));
  log_info("island " + metrics->place_.island + ": metrics are at http://" + where->host + ":" + std::to_string(metrics->server_->port()) +
           "/metrics");
  return metrics;
}

void AgentMetrics::note(const Heartbeat& heartbeat) {
  const std::lock_guard lock(mutex_);
  newest_ = heartbeat;
}

void AgentMetrics::connected(bool connected) {
  const std::lock_guard lock(mutex_);
  connected_ = connected;
}

std::string AgentMetrics::text() const {
  using namespace prometheus;
  const std::lock_guard lock(mutex_);
  const std::string self = label("island", place_.island);
  std::string text = head("atoll_agent_build_info", "gauge", "Always 1; the label tells the agent's version.") +
                     line("atoll_agent_build_info", self + "," + label("version", place_.version), 1) +
                     head("atoll_agent_connected", "gauge", "1 while there is a link to the coordinator.") +
                     line("atoll_agent_connected", self, connected_ ? 1 : 0) + disk_lines(place_.state, self);
  for (const Gauge& gauge : kOfRun) {
    std::string lines;
    for (const IslandReport& report : newest_.reports) {
      lines += line(gauge.name, self + "," + label("run", report.run.text), gauge.value(report));
    }
    text += lines.empty() ? "" : head(gauge.name, gauge.type, gauge.help) + lines;
  }
  return text;
}

}  // namespace atl::agent
