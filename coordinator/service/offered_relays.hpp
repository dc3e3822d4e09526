// The relays that a coordinator offers its islands: those whose tickets it has, and before them its own, in this process.
// Threads: one; the own relay has another.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "coordinator/service/service.hpp"
#include "transport/base/result.hpp"
#include "transport/relay/relay_thread.hpp"
#include "transport/relay/relay_ticket.hpp"

namespace atl::coordinator {

class OfferedRelays {
 public:
  // Starts the own one, if there is to be one. Errors: conflict if its port is in use, or two relays have one name; io.
  static Result<std::unique_ptr<OfferedRelays>> open(const ServiceOptions& options, const std::string& secret_key);

  // In the order in which islands try them.
  [[nodiscard]] const std::vector<RelayTicket>& tickets() const { return tickets_; }
  // Of those that carry data.
  [[nodiscard]] std::vector<std::string> names() const;

 private:
  OfferedRelays() = default;

  std::vector<RelayTicket> tickets_;
  std::unique_ptr<RelayThread> own_;  // empty: there is none
};

}  // namespace atl::coordinator
