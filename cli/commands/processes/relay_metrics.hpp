// A relay's figures for Prometheus, at /metrics. The names are in docs/metrics.md.
// Threads: any.
#pragma once

#include <memory>
#include <string>

#include "transport/base/result.hpp"
#include "transport/relay/relay_server.hpp"
#include "transport/web/http.hpp"

namespace atl {

std::string relay_metrics_text(const RelayFigures& figures, const std::string& name, const std::string& version);
// `relay` outlives what is returned. Errors: invalid_argument for what is no HOST:PORT; conflict if the port is in use; io.
Result<std::unique_ptr<HttpServer>> serve_relay_metrics(const std::string& address, const RelayServer& relay, const std::string& name,
                                                        const std::string& version);

}  // namespace atl
