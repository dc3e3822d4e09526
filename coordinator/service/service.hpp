// The coordinator as a service: everything opened from its state directory, then run until it is told to stop.
// Threads: the caller's, until it returns.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/core/core.hpp"
#include "coordinator/service/init.hpp"
#include "coordinator/service/notifier.hpp"
#include "coordinator/web/web.hpp"
#include "transport/base/result.hpp"
#include "transport/relay/relay_server.hpp"
#include "transport/relay/relay_ticket.hpp"

namespace atl::coordinator {

struct ServiceOptions {
  std::filesystem::path state;
  CoordinatorSettings settings;
  Settings core;                           // version is taken from below
  std::string version;                     // of Atoll
  WebSettings web;                         // the page
  NotifySettings notify;                   // web hooks
  std::vector<RelayTicket> relays = {};    // where islands meet that cannot dial each other, in the order in which they try it
  std::optional<RelaySettings> own_relay;  // one in this process, tried first; its secret is made at the start
  bool insecure = false;                   // no encryption, and keys are believed: on loopback only
};

// Runs in the foreground until `stop_fd` is readable. `ready` is called once, with the address it listens on and where its page is ("" if
// nowhere), when commands, islands and browsers can reach it.
// Errors: not_found (no coordinator there: says how to make one), conflict (another one runs; a port is in use), corrupt, io.
Status run_service(const ServiceOptions& options, int stop_fd,
                   const std::function<void(const std::string& address, const std::string& page)>& ready);

}  // namespace atl::coordinator
