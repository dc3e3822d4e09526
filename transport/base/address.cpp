#include "transport/base/address.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

namespace atl {
namespace {

constexpr std::string_view kScheme = "tcp://";

bool is_host(std::string_view host) {
  return !host.empty() && host.size() <= 253 && std::all_of(host.begin(), host.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_';
  });
}

bool is_ipv6(std::string_view host) {
  return host.size() >= 2 && host.size() <= 64 && host.find(':') != std::string_view::npos &&
         std::all_of(host.begin(), host.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == ':' || c == '%';
         });
}

// True for an IPv4 address in 127.0.0.0/8; a name that merely begins like one ("127.evil.example") is not.
bool is_loopback_ipv4(std::string_view host) {
  return host.starts_with("127.") && std::count(host.begin(), host.end(), '.') == 3 &&
         std::all_of(host.begin(), host.end(), [](char c) { return (c >= '0' && c <= '9') || c == '.'; });
}

// The four bytes of an IPv4 address; nothing: it is none.
std::optional<std::array<unsigned, 4>> ipv4_of(std::string_view host) {
  std::array<unsigned, 4> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const char* end = host.data() + host.size();
    const auto [next, error] = std::from_chars(host.data(), end, bytes[i]);
    const bool last = i + 1 == bytes.size();
    if (error != std::errc() || bytes[i] > 255 || (last ? next != end : next == end || *next != '.')) {
      return std::nullopt;
    }
    host.remove_prefix(static_cast<std::size_t>(next - host.data()) + (last ? 0U : 1U));
  }
  return bytes;
}

}  // namespace

bool Address::is_private() const {
  if (const auto bytes = ipv4_of(host)) {
    const auto [a, b, c, d] = *bytes;
    return a == 10 || (a == 172 && b >= 16 && b < 32) || (a == 192 && b == 168) || (a == 169 && b == 254) ||
           (a == 100 && b >= 64 && b < 128);
  }
  const auto begins = [&](std::string_view with) {
    return std::ranges::equal(host.substr(0, with.size()), with, {}, [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
  };
  return host.find(':') != std::string::npos &&
         (begins("fc") || begins("fd") || begins("fe8") || begins("fe9") || begins("fea") || begins("feb"));
}

bool Address::is_loopback() const { return host == "localhost" || host == "::1" || is_loopback_ipv4(host); }

std::string to_string(const Address& address) {
  const bool brackets = address.host.find(':') != std::string::npos;
  return std::string(kScheme) + (brackets ? "[" + address.host + "]" : address.host) + ":" +
         (address.port == 0 ? "*" : std::to_string(address.port));
}

Result<Address> parse_address(std::string_view text) {
  const Error error{Code::invalid_argument,
                    "'" + std::string(text.substr(0, 100)) + "' is not an address: write host:port or tcp://host:port"};
  if (text.starts_with(kScheme)) {
    text.remove_prefix(kScheme.size());
  }
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) {
    return error;
  }
  std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  Address address;
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
    if (!is_ipv6(host)) {
      return error;
    }
  } else if (host != "*" && !is_host(host)) {
    return error;
  }
  address.host = host;
  if (port == "*" || port == "0") {
    return address;
  }
  const auto [end, problem] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (problem != std::errc() || end != port.data() + port.size()) {
    return error;
  }
  return address;
}

std::vector<std::string> addresses_in(std::string_view text) {
  std::vector<std::string> addresses;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    if (end > 0) {
      addresses.emplace_back(text.substr(0, end));
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return addresses;
}

std::string address_text(std::span<const std::string> addresses) {
  std::vector<std::string> kept;
  std::string text;
  for (const std::string& address : addresses) {
    if (kept.size() < kMostAddresses && !address.empty() && std::ranges::find(kept, address) == kept.end()) {
      text += (kept.empty() ? "" : " ") + address;
      kept.push_back(address);
    }
  }
  return text;
}

std::string addresses_for_people(std::string_view text) {
  std::string list;
  for (const std::string& address : addresses_in(text)) {
    list += (list.empty() ? "" : ", ") + address;
  }
  return list;
}

std::string first_address(std::string_view text) { return std::string(text.substr(0, text.find(' '))); }

}  // namespace atl
