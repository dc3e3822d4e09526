#include "agent/service/joining.hpp"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "agent/storage/membership_file.hpp"
#include "transport/base/address.hpp"
#include "transport/base/log.hpp"
#include "transport/base/room_on_disk.hpp"
#include "transport/identity/join_token.hpp"

namespace atl::agent {
namespace {

constexpr auto kAskAgain = std::chrono::seconds(2);

// Of a documentation's network: a packet to it would take the default route.
const Address kAnywhere{"192.0.2.1", 9};

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

Result<Address> advertised(const std::string& text, std::uint16_t port) {
  const bool has_port = text.starts_with("tcp://") || (text.find(':') != std::string::npos && text.back() != ']');
  Result<Address> said = parse_address(has_port ? text : text + ":" + std::to_string(port));
  if (!said || names_no_host(said->host)) {
    return Error{Code::invalid_argument, "--advertise '" + text + "' is not HOST or HOST:PORT that other islands can reach"};
  }
  return said;
}

// By which address of this machine the coordinator is reached.
Result<std::string> host_towards(const std::string& coordinator) {
  ATOLL_ASSIGN(const Address towards, parse_address(coordinator));
  // Behind a proxy the coordinator's name may be unknown here, and no route lead there.
  const Proxy* const proxy = own_proxy().towards(towards.host);
  ATOLL_ASSIGN(const std::string host, address_towards(proxy != nullptr ? Address{proxy->host, towards.port} : towards));
  if (Address{host, 0}.is_loopback() && !towards.is_loopback()) {
    // The name of this very machine, which it resolves to itself (Debian's /etc/hosts says 127.0.1.1): others know the machine by the
    // address that its packets to anywhere have, or in a network that no way leads out of by the first one.
    return address_towards(kAnywhere).value_or(first_host(interface_addresses()).value_or(host));
  }
  return host;
}

// Remembered once it is another place; a disk that is full is waited for.
Status remember(const Entrance& entrance, CoordinatorPlace place, int stop_fd) {
  const Result<CoordinatorPlace> before = read_coordinator(entrance.state);
  if (before && before->key == place.key) {
    if (before->address == place.address && before->name == place.name) {
      return {};
    }
    place.generation = before->generation;
  }
  return once_there_is_room(entrance.state, stop_fd, [&] { return write_coordinator(entrance.state, place); });
}

}  // namespace

Result<ControlClientSettings> find_coordinator(const Entrance& entrance, const KeyPair& keys, int stop_fd) {
  ControlClientSettings settings;
  settings.keys = keys;
  settings.insecure = entrance.insecure;
  settings.address = entrance.coordinator;
  if (!entrance.join_token.empty()) {
    ATOLL_ASSIGN(const JoinToken token, join_token_from_text(entrance.join_token));
    settings.coordinator_key = token.coordinator_key;
    settings.address = entrance.coordinator.empty() ? token.coordinator_address : entrance.coordinator;
    if (token.role != "island") {
      return Error{Code::invalid_argument,
                   "this token is for an " + token.role + ", not for an island; make one with `atoll token create --role island`"};
    }
    ATOLL_ASSIGN(const Enrolled enrolled, enrol(settings, token.secret, entrance.name, stop_fd));
    const std::string name = enrolled.name.empty() ? entrance.name : enrolled.name;
    ATOLL_TRY(remember(entrance, {settings.address, settings.coordinator_key, {}, name}, stop_fd));
    log_info("joined the coordinator at " + settings.address + " as island " + enrolled.island.text + " (" + name + ")");
    return settings;
  }
  const Result<CoordinatorPlace> place = read_coordinator(entrance.state);
  if (!place && (settings.address.empty() || !entrance.insecure)) {
    return place.error();
  }
  settings.coordinator_key = place ? place->key : std::string();
  if (settings.address.empty()) {
    settings.address = place->address;
  }
  return settings;
}

std::string name_of_island(const Entrance& entrance) {
  const Result<CoordinatorPlace> place = read_coordinator(entrance.state);
  if (!place || place->name.empty()) {
    return entrance.name;
  }
  if (entrance.named && place->name != entrance.name) {
    log_warning("this island was enrolled as '" + place->name + "' and stays that: --name " + entrance.name + " has no effect");
  }
  return place->name;
}

Status remember_address(const std::filesystem::path& state, const std::string& address) {
  Result<CoordinatorPlace> place = read_coordinator(state);
  if (!place || place->address == address) {
    return {};
  }
  place->address = address;
  return write_coordinator(state, *place);
}

Result<Enrolled> enrol(const ControlClientSettings& settings, const std::string& token_secret, const std::string& name, int stop_fd) {
  ATOLL_ASSIGN(const std::unique_ptr<ZmqControlClient> client, ZmqControlClient::open(settings));
  Enrol request;
  request.token_secret = token_secret;
  request.name = name;
  TimePoint again = TimePoint::max();  // it could not write at the moment
  bool told = false;
  while (true) {
    if (now() >= again) {
      again = TimePoint::max();
      (void)client->send(request);
    }
    while (std::optional<LinkEvent> event = client->receive()) {
      if (std::holds_alternative<atl::LinkUp>(*event)) {
        (void)client->send(request);  // a link that breaks now comes up again
      } else if (const auto* message = std::get_if<Message>(&*event)) {
        if (const auto* refused = std::get_if<Refused>(message); refused != nullptr && worth_retrying(refused->error.code)) {
          again = now() + kAskAgain;
          if (!std::exchange(told, true)) {
            log_warning("waiting for the coordinator at " + settings.address + ": " + refused->error.why);
          }
        } else if (refused != nullptr) {
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

Result<std::string> advertised_addresses(std::span<const std::string> advertise, const InterfaceRules& rules, const std::string& bound,
                                         const std::string& coordinator, const std::string& mapped) {
  ATOLL_ASSIGN(const Address listens, parse_address(bound));
  const std::vector<InterfaceAddress> own = interface_addresses();
  std::vector<std::string> named;
  for (const std::string& one : advertise) {
    ATOLL_ASSIGN(const Address address, advertised(one, listens.port));
    named.push_back(to_string(address));
  }
  const bool everywhere = names_no_host(listens.host);
  if (named.empty()) {
    Address found = listens;
    if (everywhere) {
      ATOLL_ASSIGN(found.host, host_towards(coordinator));
    }
    const auto barred = [&](const InterfaceAddress& one) { return one.host == found.host && rules.bars(one.interface); };
    if (std::ranges::none_of(own, barred)) {
      named.push_back(to_string(found));
    }
  }
  if (!mapped.empty()) {
    named.insert(named.begin(), mapped);
  }
  // Loopback is said where the coordinator is on this machine: so are the others.
  const bool here = !named.empty() && parse_address(named.front()).value().is_loopback();
  const std::string offered =
      everywhere && !here ? addresses_to_offer(named, own, listens.port, listens.host != "0.0.0.0", rules) : address_text(named);
  if (offered.empty()) {
    return Error{Code::invalid_argument,
                 "--never-over leaves no address of this machine at which other islands reach it: give --advertise"};
  }
  return offered;
}

bool may_be_mapped(const std::string& bound, const std::string& addresses) {
  const Result<Address> listens = parse_address(bound);
  const Result<Address> first = parse_address(first_address(addresses));
  if (!listens || !first || !names_no_host(listens->host) || !first->is_private() || first->host.find(':') != std::string::npos) {
    return false;
  }
  return std::ranges::any_of(interface_addresses(), [&](const auto& own) { return own.host == first->host && !own.overlay; });
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
