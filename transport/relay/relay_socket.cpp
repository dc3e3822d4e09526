#include "transport/relay/relay_socket.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

namespace atl {
namespace {

constexpr int kBacklog = 256;
// A peer that vanished is noticed within half a minute, and a router keeps its entry for the connection.
constexpr int kKeepAliveIdle = 15;
constexpr int kKeepAliveEvery = 5;
constexpr int kKeepAliveTimes = 3;

void set(int socket, int level, int option, int value) { (void)::setsockopt(socket, level, option, &value, sizeof value); }

std::string host_of(const sockaddr_storage& address, socklen_t length) {
  std::array<char, NI_MAXHOST> host{};
  if (::getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
    return "";
  }
  const std::string text(host.data());
  static constexpr std::string_view kMapped = "::ffff:";  // IPv4, at a socket of both families
  return text.starts_with(kMapped) && text.find('.') != std::string::npos ? text.substr(kMapped.size()) : text;
}

SeenAddress seen_at(const sockaddr_storage& address) {
  SeenAddress seen;
  if (address.ss_family == AF_INET6) {
    const auto& six = reinterpret_cast<const sockaddr_in6&>(address);
    std::memcpy(seen.host.data(), &six.sin6_addr, seen.host.size());
    seen.port = ntohs(six.sin6_port);
  } else {
    const auto& four = reinterpret_cast<const sockaddr_in&>(address);
    seen.host[10] = seen.host[11] = std::byte{0xff};
    std::memcpy(seen.host.data() + 12, &four.sin_addr, 4);
    seen.port = ntohs(four.sin_port);
  }
  return seen;
}

Error cannot_listen(const Address& address, int number) {
  const std::string port = std::to_string(address.port);
  switch (number) {
    case EADDRINUSE:
      return Error{Code::conflict, "port " + port + " is in use on this machine: stop the program that has it (ss -ltnp 'sport = :" + port +
                                       "' shows which; another relay?), or choose another port with --bind"};
    case EACCES:
      return Error{Code::io, "this user may not listen on port " + port + ": choose one above 1023"};
    case EADDRNOTAVAIL:
      return Error{Code::invalid_argument, "this machine has no address " + address.host + ": give one of its own, or * for all"};
    default:
      return Error{Code::io, "cannot listen on " + to_string(address) + ": " + std::strerror(number)};
  }
}

}  // namespace

Result<FileDescriptor> listen_at(const Address& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const bool everywhere = address.host == "*";
  if (::getaddrinfo(everywhere ? "::" : address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found) != 0) {
    return Error{Code::invalid_argument, "this machine has no address " + address.host + ": give one of its own, or * for all"};
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, ::freeaddrinfo);
  FileDescriptor socket(::socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.is_open()) {
    return cannot_listen(address, errno);
  }
  set(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (everywhere) {
    set(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  }
  if (::bind(socket.get(), found->ai_addr, found->ai_addrlen) != 0 || ::listen(socket.get(), kBacklog) != 0) {
    return cannot_listen(address, errno);
  }
  return socket;
}

std::string address_of(int listener) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  std::array<char, NI_MAXSERV> port{};
  if (::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0 ||
      ::getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, nullptr, 0, port.data(), port.size(), NI_NUMERICSERV) != 0) {
    return "";
  }
  const std::string host = host_of(address, length);
  return "tcp://" + (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" + port.data();
}

Accepted accept_from(int listener) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  Accepted accepted{
      FileDescriptor(::accept4(listener, reinterpret_cast<sockaddr*>(&address), &length, SOCK_NONBLOCK | SOCK_CLOEXEC)), "", {}};
  if (const int socket = accepted.socket.get(); accepted.socket.is_open()) {
    accepted.host = host_of(address, length);
    accepted.seen = seen_at(address);
    set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
    set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
    set(socket, IPPROTO_TCP, TCP_KEEPIDLE, kKeepAliveIdle);
    set(socket, IPPROTO_TCP, TCP_KEEPINTVL, kKeepAliveEvery);
    set(socket, IPPROTO_TCP, TCP_KEEPCNT, kKeepAliveTimes);
  }
  return accepted;
}

Duration round_trip_of(int socket) {
  tcp_info info{};
  socklen_t length = sizeof info;
  const bool known = ::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &length) == 0;
  return known ? Duration(std::chrono::microseconds(info.tcpi_rtt)) : Duration();
}

}  // namespace atl
