#include "transport/bulk/interface_addresses.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>

#include "transport/base/file_descriptor.hpp"

namespace atl {
namespace {

// An address as its bytes in the order of the wire: 4 or 16 of them.
struct HostBytes {
  std::array<unsigned char, 16> bytes{};
  std::size_t count = 0;
};

std::optional<HostBytes> bytes_of(const std::string& host) {
  HostBytes found;
  if (::inet_pton(AF_INET, host.c_str(), found.bytes.data()) == 1) {
    found.count = 4;
    return found;
  }
  if (::inet_pton(AF_INET6, host.c_str(), found.bytes.data()) == 1) {
    found.count = 16;
    return found;
  }
  return std::nullopt;
}

// An IPv4 address that a socket of both families has is written as one.
std::optional<HostBytes> bytes_of(const sockaddr* address) {
  static constexpr std::array<unsigned char, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  HostBytes found;
  if (address != nullptr && address->sa_family == AF_INET) {
    sockaddr_in four{};
    std::memcpy(&four, address, sizeof four);
    std::memcpy(found.bytes.data(), &four.sin_addr, 4);
    found.count = 4;
    return found;
  }
  if (address != nullptr && address->sa_family == AF_INET6) {
    sockaddr_in6 six{};
    std::memcpy(&six, address, sizeof six);
    std::memcpy(found.bytes.data(), &six.sin6_addr, 16);
    found.count = 16;
    if (std::equal(kMapped.begin(), kMapped.end(), found.bytes.begin())) {
      std::copy(found.bytes.begin() + 12, found.bytes.end(), found.bytes.begin());
      found.count = 4;
    }
    return found;
  }
  return std::nullopt;
}

std::string text_of(const HostBytes& host) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const int family = host.count == 4 ? AF_INET : AF_INET6;
  return ::inet_ntop(family, host.bytes.data(), text.data(), text.size()) == nullptr ? std::string() : std::string(text.data());
}

unsigned prefix_of(const sockaddr* mask, std::size_t count) {
  HostBytes bits;
  if (mask != nullptr && count == 4) {
    sockaddr_in four{};
    std::memcpy(&four, mask, sizeof four);
    std::memcpy(bits.bytes.data(), &four.sin_addr, 4);
  } else if (mask != nullptr) {
    sockaddr_in6 six{};
    std::memcpy(&six, mask, sizeof six);
    std::memcpy(bits.bytes.data(), &six.sin6_addr, 16);
  }
  unsigned prefix = 0;
  for (std::size_t i = 0; i < count; ++i) {
    prefix += static_cast<unsigned>(std::popcount(bits.bytes[i]));
  }
  return prefix;
}

bool is_link_local(const HostBytes& host) {
  return host.count == 4 ? host.bytes[0] == 169 && host.bytes[1] == 254 : host.bytes[0] == 0xfe && (host.bytes[1] & 0xc0U) == 0x80;
}

std::string interface_with(const std::string& host, std::span<const InterfaceAddress> own) {
  const auto found = std::ranges::find(own, host, &InterfaceAddress::host);
  return found == own.end() ? "" : found->interface;
}

}  // namespace

std::vector<InterfaceAddress> interface_addresses() {
  std::vector<InterfaceAddress> found;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) {
    return found;
  }
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  for (const ifaddrs* item = list; item != nullptr; item = item->ifa_next) {
    const std::optional<HostBytes> host = bytes_of(item->ifa_addr);
    if (!host || (item->ifa_flags & IFF_UP) == 0 || is_link_local(*host)) {
      continue;
    }
    found.push_back({item->ifa_name, text_of(*host), prefix_of(item->ifa_netmask, host->count), (item->ifa_flags & IFF_LOOPBACK) != 0,
                     (item->ifa_flags & IFF_POINTOPOINT) != 0});
  }
  return found;
}

bool is_neighbour(const InterfaceAddress& own, const std::string& host) {
  const std::optional<HostBytes> a = bytes_of(own.host);
  const std::optional<HostBytes> b = bytes_of(host);
  if (!a || !b || a->count != b->count || own.prefix == 0 || own.prefix > 8 * a->count) {
    return false;
  }
  for (unsigned bit = 0; bit < own.prefix; ++bit) {
    const unsigned mask = 0x80U >> (bit % 8);
    if (((a->bytes[bit / 8] ^ b->bytes[bit / 8]) & mask) != 0) {
      return false;
    }
  }
  return true;
}

std::string interface_towards(const std::string& host, std::span<const InterfaceAddress> own) {
  const std::optional<HostBytes> bytes = bytes_of(host);
  if (!bytes) {
    return "";
  }
  constexpr std::uint16_t kAnyPort = 9;
  sockaddr_in four{};
  sockaddr_in6 six{};
  four.sin_family = AF_INET;
  six.sin6_family = AF_INET6;
  four.sin_port = six.sin6_port = htons(kAnyPort);
  std::memcpy(&four.sin_addr, bytes->bytes.data(), 4);
  std::memcpy(&six.sin6_addr, bytes->bytes.data(), 16);
  const bool is_four = bytes->count == 4;
  const FileDescriptor socket(::socket(is_four ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto* to = is_four ? reinterpret_cast<const sockaddr*>(&four) : reinterpret_cast<const sockaddr*>(&six);
  if (!socket.is_open() || ::connect(socket.get(), to, is_four ? sizeof four : sizeof six) != 0) {
    return "";
  }
  return interface_of_socket(socket.get(), own);
}

std::optional<std::string> first_host(std::span<const InterfaceAddress> own) {
  const auto found = std::ranges::find_if(
      own, [](const InterfaceAddress& address) { return !address.loopback && address.host.find(':') == std::string::npos; });
  return found == own.end() ? std::nullopt : std::optional(found->host);
}

std::string interface_of_socket(int descriptor, std::span<const InterfaceAddress> own) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (::getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return "";
  }
  const std::optional<HostBytes> bytes = bytes_of(reinterpret_cast<const sockaddr*>(&address));
  return bytes ? interface_with(text_of(*bytes), own) : "";
}

}  // namespace atl
