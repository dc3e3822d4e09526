#include "cli/link/dial.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/base/file_descriptor.hpp"
#include "transport/proxy/proxy_dials.hpp"

namespace atl {
namespace {

std::uint32_t mtu_of(int socket, int family) {
  int mtu = 0;
  socklen_t size = sizeof mtu;
  const bool known = family == AF_INET6 ? ::getsockopt(socket, IPPROTO_IPV6, IPV6_MTU, &mtu, &size) == 0
                                        : ::getsockopt(socket, IPPROTO_IP, IP_MTU, &mtu, &size) == 0;
  return known && mtu > 0 ? static_cast<std::uint32_t>(mtu) : 0;
}

Result<Dialled> dial_one(const addrinfo& way, const std::string& where, Duration patience) {
  const FileDescriptor socket(::socket(way.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const TimePoint begin = now();
  int error = !socket.is_open() || (::connect(socket.get(), way.ai_addr, way.ai_addrlen) != 0 && errno != EINPROGRESS) ? errno : 0;
  if (error == 0) {
    pollfd one{socket.get(), POLLOUT, 0};
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(patience).count();
    if (::poll(&one, 1, static_cast<int>(ms)) != 1) {
      return Error{Code::timeout, where + " does not answer: a firewall drops what is sent there, or the address is wrong"};
    }
    socklen_t size = sizeof error;
    ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  }
  if (error == 0) {
    return Dialled{now() - begin, mtu_of(socket.get(), way.ai_family)};
  }
  return Error{Code::unavailable, error == ECONNREFUSED
                                      ? "nobody listens at " + where + ": start what should be there, or correct the address"
                                      : where + " cannot be reached: " + std::strerror(error)};
}

}  // namespace

Result<Dialled> dial(const Address& address, Duration patience) {
  if (const Proxy* proxy = own_proxy().towards(address.host)) {
    const TimePoint begin = now();
    const Result<FileDescriptor> opened = dial_through(*proxy, address, patience);
    return opened ? Dialled{now() - begin, 0} : Result<Dialled>(opened.error());
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string where = to_string(address);
  const int failed = ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (failed != 0) {
    return Error{Code::not_found,
                 "the name " + address.host + " is not known here (" + ::gai_strerror(failed) + "): correct it, or see /etc/resolv.conf"};
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> ways(found, &::freeaddrinfo);
  Result<Dialled> dialled = Error{Code::not_found, where + " has no address"};
  for (const addrinfo* way = ways.get(); way != nullptr; way = way->ai_next) {
    dialled = dial_one(*way, where, patience);
    if (dialled) {
      break;
    }
  }
  return dialled;
}

Result<Dialled> dial_nearest(std::string_view addresses, Duration patience) {
  std::vector<std::future<Result<Dialled>>> dialled;
  for (const std::string& text : addresses_in(addresses)) {
    if (dialled.size() < kMostAddresses) {
      dialled.push_back(std::async(std::launch::async, [text, patience] {
        const Result<Address> address = parse_address(text);
        return address ? dial(*address, patience) : Result<Dialled>(address.error());
      }));
    }
  }
  Result<Dialled> nearest = Error{Code::not_found, "there is no address to dial"};
  for (std::size_t i = 0; i < dialled.size(); ++i) {
    Result<Dialled> one = dialled[i].get();
    if (i == 0 || (one && (!nearest || one->round_trip < nearest->round_trip))) {
      nearest = std::move(one);
    }
  }
  return nearest;
}

}  // namespace atl
