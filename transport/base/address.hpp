// Addresses of links: "tcp://host:port", the host a name, an IPv4 address or an IPv6 address in brackets.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "transport/base/result.hpp"

namespace atl {

struct Address {
  std::string host;        // "*": every interface; IPv6 without its brackets
  std::uint16_t port = 0;  // 0: any free one, written "*"
  // True for localhost, 127.0.0.0/8 and ::1: nobody but this machine can reach it.
  [[nodiscard]] bool is_loopback() const;
  // True for an address that has a meaning in its own network only: of RFC 1918, of a provider's network behind NAT (100.64.0.0/10),
  // link-local, fc00::/7. Of a name nothing is known.
  [[nodiscard]] bool is_private() const;
  friend bool operator==(const Address&, const Address&) = default;
};

// "tcp://host:port".
std::string to_string(const Address& address);
// Reads "tcp://host:port" or "host:port". Errors: invalid_argument saying what is expected.
Result<Address> parse_address(std::string_view text);

}  // namespace atl
