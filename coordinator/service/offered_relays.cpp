#include "coordinator/service/offered_relays.hpp"

#include <algorithm>
#include <utility>

#include "transport/base/address.hpp"
#include "transport/base/log.hpp"

namespace atl::coordinator {

namespace {

// Islands reach it where they reach the coordinator, at another port.
Result<RelayTicket> own_ticket(const CoordinatorSettings& settings, const RelaySettings& relay) {
  ATOLL_ASSIGN(Address address, parse_address(settings.advertise));
  ATOLL_ASSIGN(const Address bind, parse_address(relay.bind));
  address.port = bind.port;
  return RelayTicket{"coordinator", to_string(address), relay.secret, relay.carries};
}

}  // namespace

Result<std::unique_ptr<OfferedRelays>> OfferedRelays::open(const ServiceOptions& options, const std::string& secret_key) {
  std::unique_ptr<OfferedRelays> relays(new OfferedRelays);
  if (options.own_relay) {
    RelaySettings settings = *options.own_relay;
    settings.secret = relay_secret(secret_key);
    ATOLL_ASSIGN(RelayTicket ticket, own_ticket(options.settings, settings));
    ATOLL_ASSIGN(relays->own_, RelayThread::start(std::move(settings), "the coordinator's"));
    relays->tickets_.push_back(std::move(ticket));
  }
  for (const RelayTicket& ticket : options.relays) {
    if (std::ranges::find(relays->tickets_, ticket.name, &RelayTicket::name) != relays->tickets_.end()) {
      return Error{Code::conflict, "two relays are called " + ticket.name + ": start one with another --name, and copy its ticket anew"};
    }
    relays->tickets_.push_back(ticket);
  }
  for (const RelayTicket& ticket : relays->tickets_) {
    log_info("islands that cannot dial each other " +
             (ticket.carries ? "meet at relay " + ticket.name + ", " + ticket.address
                             : "learn at " + ticket.address + " how to dial each other through their routers"));
  }
  return relays;
}

std::vector<std::string> OfferedRelays::names() const {
  std::vector<std::string> names;
  for (const RelayTicket& ticket : tickets_) {
    if (ticket.carries) {
      names.push_back(ticket.name);
    }
  }
  return names;
}

}  // namespace atl::coordinator
