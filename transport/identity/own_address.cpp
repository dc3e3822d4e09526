#include "transport/identity/own_address.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <array>
#include <memory>

namespace atl {

std::optional<std::string> first_address() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) {
    return std::nullopt;
  }
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  for (const ifaddrs* item = list; item != nullptr; item = item->ifa_next) {
    const bool usable = item->ifa_addr != nullptr && item->ifa_addr->sa_family == AF_INET && (item->ifa_flags & IFF_LOOPBACK) == 0 &&
                        (item->ifa_flags & IFF_UP) != 0;
    std::array<char, INET_ADDRSTRLEN> text{};
    if (usable &&
        ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(item->ifa_addr)->sin_addr, text.data(), text.size()) != nullptr) {
      return text.data();
    }
  }
  return std::nullopt;
}

}  // namespace atl
