// The coordinator as a service: everything opened from its state directory, then run until it is told to stop.
// Threads: the caller's, until it returns.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "coordinator/core/core.hpp"
#include "coordinator/service/init.hpp"
#include "coordinator/service/notifier.hpp"
#include "coordinator/web/web.hpp"
#include "transport/base/result.hpp"

namespace atl::coordinator {

struct ServiceOptions {
  std::filesystem::path state;
  CoordinatorSettings settings;
  Settings core;          // version is taken from below
  std::string version;    // of Atoll
  WebSettings web;        // the page
  NotifySettings notify;  // web hooks
  bool insecure = false;  // no encryption, and keys are believed: on loopback only
};

// Runs in the foreground until `stop_fd` is readable. `ready` is called once, with the address it listens on and where its page is ("" if
// nowhere), when commands, islands and browsers can reach it.
// Errors: not_found (no coordinator there: says how to make one), conflict (another one runs; a port is in use), corrupt, io.
Status run_service(const ServiceOptions& options, int stop_fd,
                   const std::function<void(const std::string& address, const std::string& page)>& ready);

}  // namespace atl::coordinator
