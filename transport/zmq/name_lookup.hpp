// The addresses of a name, looked up on a thread of its own: a resolver may take half a minute, and its caller has heartbeats to send.
// Threads: the owner's. The lookup's own thread outlives the owner where the resolver does.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/base/address.hpp"
#include "transport/base/result.hpp"
#include "transport/base/time.hpp"

namespace atl {

// The host's addresses as numbers, IPv4 and IPv6, in the order in which they are to be tried. Blocks.
// Errors: unavailable with the resolver's words.
using Resolver = std::function<Result<std::vector<Address>>(const Address&)>;

// The system's (getaddrinfo): the order is RFC 6724's, at most eight. A number is its own address; "localhost" is 127.0.0.1, where a
// coordinator listens, and then ::1.
Result<std::vector<Address>> resolve(const Address& address);

class NameLookup {
 public:
  // Begins.
  NameLookup(const Address& address, Resolver resolver);
  // What was found, once it is there; waits so long for it.
  [[nodiscard]] std::optional<Result<std::vector<Address>>> result(Duration at_most) const;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace atl
