// Addresses of links: "tcp://host:port", the host a name, an IPv4 address or an IPv6 address in brackets.
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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

// An island may be reached at several addresses. Where a text says where it is, it holds them all, separated by single spaces, the one that
// its owner named first, or was found first, in front; one address is a text of one. What comes from outside is bounded by these two.
inline constexpr std::size_t kMostAddresses = 8;
inline constexpr std::size_t kMostAddressBytes = 128;  // of each after the first

std::vector<std::string> addresses_in(std::string_view text);
// One text of those, each once, the first kMostAddresses of them.
std::string address_text(std::span<const std::string> addresses);
// For a person: "tcp://192.168.1.7:4401, tcp://203.0.113.7:4401".
std::string addresses_for_people(std::string_view text);
// The first of them; empty of none.
std::string first_address(std::string_view text);

}  // namespace atl
