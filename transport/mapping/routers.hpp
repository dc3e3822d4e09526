// The two ways to ask a router for a port. Each asks once, and waits for an answer for two seconds at most, UPnP for some seconds more
// where a router answers slowly. Threads: one at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "transport/base/result.hpp"

namespace atl {

inline constexpr std::chrono::seconds kMappingLease = std::chrono::minutes(20);

// A port that a router passes on.
class RouterMapping {
 public:
  RouterMapping() = default;
  virtual ~RouterMapping() = default;
  RouterMapping(const RouterMapping&) = delete;
  RouterMapping& operator=(const RouterMapping&) = delete;
  // For as long again, and what the router's address is now. Errors: unavailable with the router's word.
  virtual Status renew() = 0;
  // The router passes nothing on any more.
  virtual void remove() = 0;

  std::string host;        // the router's public address
  std::uint16_t port = 0;  // there
  std::string way;         // "NAT-PMP", "UPnP"
};

// Errors: unavailable, saying what the router answered, or that none did. `stop`: a descriptor that ends the wait once it is readable.
Result<std::unique_ptr<RouterMapping>> map_by_nat_pmp(std::uint16_t port, int stop);
Result<std::unique_ptr<RouterMapping>> map_by_upnp(std::uint16_t port);

}  // namespace atl
