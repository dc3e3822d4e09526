#include "cli/commands/processes/relay_metrics.hpp"

#include <array>

#include "transport/base/address.hpp"
#include "transport/web/prometheus_text.hpp"

namespace atl {
namespace {

struct Figure {
  const char* name;
  const char* type;
  const char* help;
  double (*value)(const RelayFigures&);
};
constexpr std::array kFigures = {
    Figure{"atoll_relay_islands", "gauge", "Islands that have a connection, or had one within half a minute.",
           [](const RelayFigures& figures) { return static_cast<double>(figures.islands); }},
    Figure{"atoll_relay_pairs", "gauge", "Pairs of connections that are joined.",
           [](const RelayFigures& figures) { return static_cast<double>(figures.pairs); }},
    Figure{"atoll_relay_waiting_connections", "gauge", "Connections that wait for the other island's.",
           [](const RelayFigures& figures) { return static_cast<double>(figures.waiting); }},
    Figure{"atoll_relay_strangers", "gauge", "Connections that have shown no pass yet.",
           [](const RelayFigures& figures) { return static_cast<double>(figures.strangers); }},
    Figure{"atoll_relay_joined_total", "counter", "Pairs of connections that were joined.",
           [](const RelayFigures& figures) { return static_cast<double>(figures.joined); }},
    Figure{"atoll_relay_introduced_total", "counter", "Pairs of islands' connections that were told each other's address, to punch a hole.",
           [](const RelayFigures& figures) { return static_cast<double>(figures.introduced); }},
    Figure{"atoll_relay_refused_total", "counter", "Connections that were refused or closed for what they did.",
           [](const RelayFigures& figures) { return static_cast<double>(figures.refused); }},
    Figure{"atoll_relay_bytes_total", "counter", "Bytes moved.",
           [](const RelayFigures& figures) { return static_cast<double>(figures.bytes); }},
};

}  // namespace

std::string relay_metrics_text(const RelayFigures& figures, const std::string& name, const std::string& version) {
  using prometheus::head;
  using prometheus::label;
  using prometheus::line;
  std::string text = head("atoll_relay_info", "gauge", "Always 1; the label tells the relay's version.") +
                     line("atoll_relay_info", label("relay", name) + "," + label("version", version), 1);
  for (const Figure& figure : kFigures) {
    text += head(figure.name, figure.type, figure.help) + line(figure.name, label("relay", name), figure.value(figures));
  }
  text += head("atoll_relay_island_sent_bytes_total", "counter",
               "Bytes that an island, named by its id, sent through the relay since it came.");
  for (const auto& [island, bytes] : figures.sent) {
    text +=
        line("atoll_relay_island_sent_bytes_total", label("relay", name) + "," + label("island", island.text), static_cast<double>(bytes));
  }
  return text;
}

Result<std::unique_ptr<HttpServer>> serve_relay_metrics(const std::string& address, const RelayServer& relay, const std::string& name,
                                                        const std::string& version) {
  const Result<Address> where = parse_address(address);
  if (!where) {
    return Error{Code::invalid_argument,
                 "metrics: '" + address.substr(0, 100) + "' is not an address: write HOST:PORT, such as 127.0.0.1:4483"};
  }
  return HttpServer::start(*where, [&relay, name, version](const HttpRequest& request) {
    return request.path == "/metrics" ? HttpAnswer{200, prometheus::kType, relay_metrics_text(relay.figures(), name, version), {}}
                                      : HttpAnswer{404, "text/plain; charset=utf-8", "the metrics are at /metrics\n", {}};
  });
}

}  // namespace atl
