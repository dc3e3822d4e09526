#include "transport/relay/hole_punch.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/crypto.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "transport/base/address.hpp"
#include "transport/relay/relay_socket.hpp"

namespace atl {
namespace {

constexpr Duration kToAsk = std::chrono::seconds(10);     // for a relay to be reached and to answer
constexpr Duration kToCompare = std::chrono::seconds(2);  // for its second port, which a firewall may hide
constexpr Duration kDialEvery = std::chrono::milliseconds(250);
constexpr Duration kDialFor = std::chrono::seconds(4);
constexpr int kAnswers = 4;
constexpr Duration kToProve = std::chrono::seconds(2);

void set(const FileDescriptor& socket, int level, int option, int value) {
  (void)::setsockopt(socket.get(), level, option, &value, sizeof value);
}

const sockaddr* as_address(const Bytes& bytes) { return reinterpret_cast<const sockaddr*>(bytes.data()); }
socklen_t length_of(const Bytes& bytes) { return static_cast<socklen_t>(bytes.size()); }

Bytes bytes_of(const void* address, std::size_t length) {
  const auto* first = static_cast<const std::byte*>(address);
  return {first, first + length};
}

// The same address at another port.
Bytes at_port(Bytes address, std::uint16_t port) {
  auto* base = reinterpret_cast<sockaddr*>(address.data());
  if (base->sa_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(base)->sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in*>(base)->sin_port = htons(port);
  }
  return address;
}

// For a socket of this family; empty: it cannot dial it.
Bytes dialled(const SeenAddress& peer, sa_family_t family) {
  if (family == AF_INET && peer.is_ipv4()) {
    sockaddr_in four{};
    four.sin_family = AF_INET;
    four.sin_port = htons(peer.port);
    std::memcpy(&four.sin_addr, peer.host.data() + 12, 4);
    return bytes_of(&four, sizeof four);
  }
  if (family == AF_INET6 && !peer.is_ipv4()) {
    sockaddr_in6 six{};
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(peer.port);
    std::memcpy(&six.sin6_addr, peer.host.data(), peer.host.size());
    return bytes_of(&six, sizeof six);
  }
  return {};
}

bool is_of_loopback(const Bytes& address) {
  const auto* base = as_address(address);
  return base->sa_family == AF_INET ? (ntohl(reinterpret_cast<const sockaddr_in*>(base)->sin_addr.s_addr) >> 24U) == 127
                                    : IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(base)->sin6_addr) != 0;
}

}  // namespace

Result<HolePunch> HolePunch::begin(const Whom& whom, int poll, std::uint64_t number) {
  ATOLL_ASSIGN(const Address address, parse_address(whom.relay));
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found) != 0 || found == nullptr) {
    return Error{Code::unavailable, "the name of the relay at " + whom.relay + " cannot be resolved"};
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, ::freeaddrinfo);
  HolePunch punch(whom, poll, number);
  punch.relay_address_ = bytes_of(found->ai_addr, found->ai_addrlen);
  sockaddr_storage any{};
  any.ss_family = static_cast<sa_family_t>(found->ai_family);
  punch.own_port_ = at_port(bytes_of(&any, found->ai_addrlen), whom.own_port);
  ATOLL_ASSIGN(punch.relay_, punch.socket_from_own_port());
  socklen_t length = length_of(punch.own_port_);
  if (::getsockname(punch.relay_.get(), reinterpret_cast<sockaddr*>(punch.own_port_.data()), &length) != 0 ||
      (::connect(punch.relay_.get(), as_address(punch.relay_address_), length_of(punch.relay_address_)) != 0 && errno != EINPROGRESS)) {
    return Error{Code::unavailable, "the relay at " + whom.relay + " cannot be dialled: " + std::strerror(errno)};
  }
  set(punch.relay_, SOL_SOCKET, SO_KEEPALIVE, 1);  // the router forgets the port of a connection that is silent
  set(punch.relay_, IPPROTO_TCP, TCP_KEEPIDLE, 15);
  punch.watch(punch.relay_);
  punch.deadline_ = now() + kToAsk;
  return punch;
}

Result<FileDescriptor> HolePunch::socket_from_own_port() {
  FileDescriptor socket(::socket(as_address(own_port_)->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  set(socket, SOL_SOCKET, SO_REUSEADDR, 1);
  set(socket, SOL_SOCKET, SO_REUSEPORT, 1);
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  if (!socket.is_open() || ::bind(socket.get(), as_address(own_port_), length_of(own_port_)) != 0) {
    return Error{Code::unavailable, std::string("no socket to punch a hole with: ") + std::strerror(errno)};
  }
  return socket;
}

std::uint16_t HolePunch::own_port() const {
  const auto* base = as_address(own_port_);
  return ntohs(base->sa_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(base)->sin6_port
                                           : reinterpret_cast<const sockaddr_in*>(base)->sin_port);
}

void HolePunch::watch(const FileDescriptor& socket) const {
  epoll_event watched{EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, {.u64 = number_}};
  (void)::epoll_ctl(poll_, EPOLL_CTL_ADD, socket.get(), &watched);
}

HolePunch::State HolePunch::advance(TimePoint now) {
  while (take_step(now)) {
  }
  switch (step_) {
    case Step::open:
      return State::open;
    case Step::failed:
      return State::failed;
    case Step::waits:
      return State::waits;
    default:
      return State::works;
  }
}

bool HolePunch::take_step(TimePoint now) {
  switch (step_) {
    case Step::greets:
      return now >= deadline_ ? fail(NotPunched::not_tried, "the relay did not greet") : greet();
    case Step::asks:
      return now >= deadline_ ? fail(NotPunched::not_tried, "the relay did not answer") : ask(now);
    case Step::compares:
      return compare(now);
    case Step::waits:
      return hear_begin(now);
    case Step::pauses:
      return now >= deadline_ && dial();
    case Step::dials:
      return look_at_dial(now);
    case Step::proves:
      return now >= deadline_ ? fail(NotPunched::nothing_came, "who answered did not show the relay's token") : prove();
    case Step::open:
    case Step::failed:
      return false;
  }
  return false;
}

bool HolePunch::fail(NotPunched failure, const std::string& why) {
  step_ = Step::failed;
  failure_ = failure;
  why_ = why;
  return false;
}

bool HolePunch::hear(const FileDescriptor& socket, std::size_t whole, const std::string& who) {
  while (heard_.size() < whole) {
    std::array<std::byte, 64> buffer{};
    const ssize_t got = ::recv(socket.get(), buffer.data(), std::min(buffer.size(), whole - heard_.size()), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOTCONN)) {
      return false;
    }
    if (got <= 0) {
      return fail(NotPunched::not_tried, who + " ended the connection");
    }
    heard_.insert(heard_.end(), buffer.begin(), buffer.begin() + got);
  }
  return true;
}

bool HolePunch::greet() {
  static constexpr std::array kGreeting = {std::byte{5}, std::byte{1}, std::byte{0}};
  if (!said_) {
    const ssize_t sent = ::send(relay_.get(), kGreeting.data(), kGreeting.size(), MSG_NOSIGNAL);
    if (sent < 0 && (errno == EAGAIN || errno == ENOTCONN || errno == EINPROGRESS || errno == EALREADY)) {
      return false;
    }
    if (sent != static_cast<ssize_t>(kGreeting.size())) {
      return fail(NotPunched::not_tried, std::string("the relay does not listen: ") + std::strerror(errno));
    }
    said_ = true;
  }
  if (!hear(relay_, kSocksGreeting.size(), "the relay")) {
    return false;
  }
  heard_.clear();
  const Bytes request = socks_request(whom_.request, SocksCommand::bind);
  if (::send(relay_.get(), request.data(), request.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(request.size())) {
    return fail(NotPunched::not_tried, "the relay ended the connection");
  }
  step_ = Step::asks;
  return true;
}

bool HolePunch::ask(TimePoint now) {
  if (!hear(relay_, kHoleSeenBytes, "the relay")) {
    return false;
  }
  const Result<HoleSeen> seen = read_hole_seen(heard_);
  heard_.clear();
  if (!seen) {
    return fail(NotPunched::not_tried, seen.error().why);
  }
  seen_ = *seen;
  sightings_ = {seen_.self};
  Result<FileDescriptor> second = socket_from_own_port();
  if (seen_.second_port == 0 || !second) {
    return say_ready(HoleReady::ready);
  }
  second_ = *std::move(second);
  const Bytes there = at_port(relay_address_, seen_.second_port);
  if (::connect(second_.get(), as_address(there), length_of(there)) != 0 && errno != EINPROGRESS) {
    return say_ready(HoleReady::ready);
  }
  watch(second_);
  step_ = Step::compares;
  deadline_ = now + kToCompare;
  return true;
}

// A second port that cannot be asked says nothing about the router: trying will.
bool HolePunch::compare(TimePoint now) {
  if (!hear(second_, kSeenAddressBytes, "the relay")) {
    const bool unknown = step_ == Step::failed || now >= deadline_;
    return unknown && say_ready(HoleReady::ready);
  }
  const Result<SeenAddress> seen = read_seen_address(heard_);
  sightings_.insert(sightings_.end(), seen ? 1 : 0, seen.value_or(SeenAddress()));
  return say_ready(seen && *seen == seen_.self ? HoleReady::ready : HoleReady::other_ports);
}

bool HolePunch::say_ready(HoleReady ready) {
  heard_.clear();
  failure_ = NotPunched::not_tried;
  const auto word = static_cast<std::uint8_t>(ready);
  if (::send(relay_.get(), &word, 1, MSG_NOSIGNAL) != 1) {
    return fail(NotPunched::not_tried, "the relay ended the connection");
  }
  if (ready == HoleReady::other_ports) {
    failure_ = NotPunched::own_router;
  }
  step_ = Step::waits;
  deadline_ = TimePoint::max();  // the relay says when it has waited for long enough
  return true;
}

bool HolePunch::hear_begin(TimePoint now) {
  const NotPunched own = failure_;
  if (!hear(relay_, kHoleBeginBytes, "the relay")) {
    return false;
  }
  const Result<HoleBegin> begin = read_hole_begin(heard_, is_of_loopback(relay_address_));
  heard_.clear();
  if (!begin) {
    return fail(NotPunched::not_tried, begin.error().why);
  }
  if (begin->code != SocksAnswer::joined) {
    return fail(own == NotPunched::own_router ? own : NotPunched::peers_router, "a router gives each connection another port");
  }
  begin_ = *begin;
  step_ = Step::pauses;
  first_dial_ = deadline_ = now + begin_.wait;
  return true;
}

bool HolePunch::dial() {
  const Bytes there = dialled(begin_.peer, as_address(own_port_)->sa_family);
  if (there.empty()) {
    return fail(NotPunched::nothing_came, "one of the two has IPv4 only, the other IPv6");
  }
  Result<FileDescriptor> far = socket_from_own_port();
  if (!far) {
    return fail(NotPunched::not_tried, far.error().why);
  }
  far_ = *std::move(far);
  step_ = Step::dials;
  if (Result<FileDescriptor> listener = socket_from_own_port();
      !listener_.is_open() && listener && ::listen(listener->get(), kAnswers) == 0) {
    listener_ = *std::move(listener);
    watch(listener_);
  }
  const bool begun = ::connect(far_.get(), as_address(there), length_of(there)) == 0 || errno == EINPROGRESS;
  if (begun) {
    watch(far_);
  } else {
    far_ = FileDescriptor();
  }
  deadline_ = first_dial_ + kDialFor;
  return true;
}

void HolePunch::accept_peer() {
  for (int i = 0; i < kAnswers && listener_.is_open(); ++i) {
    Accepted accepted = accept_from(listener_.get());
    if (!accepted.socket.is_open()) {
      return;
    }
    if (accepted.seen == begin_.peer) {
      far_ = std::move(accepted.socket);
      watch(far_);
    }
  }
}

// A refusal comes from a router that the peer had not dialled through yet. The next dial is in step with the peer's.
bool HolePunch::look_at_dial(TimePoint now) {
  accept_peer();
  sockaddr_storage peer{};
  socklen_t length = sizeof peer;
  if (far_.is_open() && ::getpeername(far_.get(), reinterpret_cast<sockaddr*>(&peer), &length) == 0) {
    const Digest proof = hole_proof(begin_.token, whom_.self);
    listener_ = FileDescriptor();
    step_ = Step::proves;
    deadline_ = now + kToProve;
    heard_.clear();
    const bool said = ::send(far_.get(), proof.bytes.data(), proof.bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(proof.bytes.size());
    return said || fail(NotPunched::nothing_came, "the peer's router ended the connection");
  }
  if (now >= first_dial_ + kDialFor) {
    return fail(NotPunched::nothing_came, "a router of the two lets nothing in");
  }
  int error = 0;
  length = sizeof error;
  if (!far_.is_open() || (::getsockopt(far_.get(), SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error != 0)) {
    far_ = FileDescriptor();
    const auto done = (now - first_dial_) / kDialEvery;
    step_ = Step::pauses;
    deadline_ = std::min(first_dial_ + (done + 1) * kDialEvery, first_dial_ + kDialFor);
  }
  return false;
}

bool HolePunch::prove() {
  const Digest expected = hole_proof(begin_.token, whom_.peer);
  if (!hear(far_, expected.bytes.size(), "who answered")) {
    failure_ = step_ == Step::failed ? NotPunched::nothing_came : failure_;
    return false;
  }
  if (CRYPTO_memcmp(heard_.data(), expected.bytes.data(), expected.bytes.size()) != 0) {
    return fail(NotPunched::nothing_came, "who answered did not show the relay's token");
  }
  heard_.clear();
  (void)::epoll_ctl(poll_, EPOLL_CTL_DEL, far_.get(), nullptr);
  set(far_, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(far_, IPPROTO_TCP, TCP_KEEPIDLE, 15);
  set(far_, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(far_, IPPROTO_TCP, TCP_KEEPCNT, 3);
  relay_ = FileDescriptor();
  second_ = FileDescriptor();
  step_ = Step::open;
  return false;
}

}  // namespace atl
