#include "agent/service/joining.hpp"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <thread>

#include "transport/base/address.hpp"

namespace atl::agent {
namespace {

bool names_no_host(const std::string& host) { return host.empty() || host == "*" || host == "0.0.0.0" || host == "::"; }

// The local address of a connection to `host`; no packet is sent.
Result<std::string> address_towards(const Address& peer) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(peer.host.c_str(), std::to_string(peer.port).c_str(), &hints, &found) != 0 || found == nullptr) {
    return Error{Code::unavailable, "the coordinator's name '" + peer.host + "' cannot be resolved; give --advertise HOST"};
  }
  std::string result;
  const int fd = ::socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  std::array<char, 256> text{};
  if (fd >= 0 && ::connect(fd, found->ai_addr, found->ai_addrlen) == 0 &&
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &length) == 0 &&
      ::getnameinfo(reinterpret_cast<sockaddr*>(&own), length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) == 0) {
    result = text.data();
  }
  if (fd >= 0) {
    ::close(fd);
  }
  ::freeaddrinfo(found);
  if (result.empty()) {
    return Error{Code::unavailable, "there is no route to the coordinator at " + peer.host + " at the moment; give --advertise HOST"};
  }
  return result;
}

}  // namespace

Result<Enrolled> enrol(const ControlClientSettings& settings, const std::string& token_secret, const std::string& name, int stop_fd) {
  ATOLL_ASSIGN(const std::unique_ptr<ZmqControlClient> client, ZmqControlClient::open(settings));
  while (true) {
    while (std::optional<LinkEvent> event = client->receive()) {
      if (std::holds_alternative<LinkUp>(*event)) {
        Enrol request;
        request.token_secret = token_secret;
        request.name = name;
        (void)client->send(request);  // a link that breaks now comes up again
      } else if (const auto* message = std::get_if<Message>(&*event)) {
        if (const auto* refused = std::get_if<Refused>(message)) {
          return refused->error;
        }
        if (const auto* enrolled = std::get_if<Enrolled>(message)) {
          return *enrolled;
        }
      }
    }
    std::array<pollfd, 2> fds = {{{client->fd(), POLLIN, 0}, {stop_fd, POLLIN, 0}}};
    ::poll(fds.data(), fds.size(), 1000);
    if ((fds[1].revents & POLLIN) != 0) {
      return Error{Code::cancelled, "stopped before the coordinator at " + settings.address + " answered"};
    }
  }
}

Result<std::string> advertised_address(const std::string& advertise, const std::string& bound, const std::string& coordinator) {
  ATOLL_ASSIGN(Address address, parse_address(bound));
  if (!advertise.empty()) {
    const bool has_port = advertise.find("tcp://") == 0 || (advertise.find(':') != std::string::npos && advertise.back() != ']');
    Result<Address> said = parse_address(has_port ? advertise : advertise + ":" + std::to_string(address.port));
    if (!said || names_no_host(said->host)) {
      return Error{Code::invalid_argument, "--advertise '" + advertise + "' is not HOST or HOST:PORT that other islands can reach"};
    }
    return to_string(*said);
  }
  if (names_no_host(address.host)) {
    ATOLL_ASSIGN(const Address towards, parse_address(coordinator));
    ATOLL_ASSIGN(address.host, address_towards(towards));
  }
  return to_string(address);
}

std::string host_name() {
  std::array<char, 256> text{};
  return ::gethostname(text.data(), text.size() - 1) == 0 && text[0] != '\0' ? std::string(text.data()) : std::string("island");
}

std::string platform_text() {
  utsname names{};
  ::uname(&names);
  std::string text =
      std::string(names.sysname) + " " + names.machine + ", " + std::to_string(std::thread::hardware_concurrency()) + " cores";
#if defined(__x86_64__)
  text += __builtin_cpu_supports("avx512f") ? ", AVX-512" : __builtin_cpu_supports("avx2") ? ", AVX2" : "";
#endif
  return text;
}

}  // namespace atl::agent
