#include "transport/zmq/accept_gate.hpp"

#include <netdb.h>
#include <sys/socket.h>
#include <zmq.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <utility>

#include "transport/base/descriptor_limit.hpp"
#include "transport/base/log.hpp"
#include "transport/zmq/tcp_tuning.hpp"
#include "transport/zmq/zmq_message.hpp"

namespace atl {
namespace {

constexpr Duration kTellAgain = std::chrono::minutes(1);

// The host at the other end; none if the descriptor is no connection any more.
std::optional<std::string> host_of(int descriptor) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  std::array<char, NI_MAXHOST> host{};
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (::getpeername(descriptor, generic, &length) != 0 ||
      ::getnameinfo(generic, length, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
    return std::nullopt;
  }
  const std::string_view text(host.data());
  static constexpr std::string_view kMapped = "::ffff:";  // IPv4, at a socket of both families
  return std::string(text.starts_with(kMapped) && text.find('.') != std::string_view::npos ? text.substr(kMapped.size()) : text);
}

std::size_t most_strangers() { return std::clamp<std::size_t>(descriptor_limit() / 4, 16, kMostStrangers); }

// A monitor's event: u16 event, u32 value, here a descriptor; then the address.
struct Noticed {
  std::uint16_t event = 0;
  std::int32_t value = 0;
};

std::optional<Noticed> next_event(void* monitor) {
  ZmqMessage part;
  if (!part.receive(monitor)) {
    return std::nullopt;
  }
  Noticed noticed;
  if (part.bytes().size() >= sizeof noticed.event + sizeof noticed.value) {
    std::memcpy(&noticed.event, part.bytes().data(), sizeof noticed.event);
    std::memcpy(&noticed.value, part.bytes().data() + sizeof noticed.event, sizeof noticed.value);
  }
  while (part.more()) {
    part = ZmqMessage();
    part.receive(monitor);
  }
  return noticed;
}

}  // namespace

Result<AcceptGate> AcceptGate::open(void* context, void* socket, std::string name) {
  static std::atomic<std::uint64_t> count = 0;
  const std::string endpoint = "inproc://accept-gate-" + std::to_string(++count);
  void* monitor = zmq_socket(context, ZMQ_PAIR);
  const auto failed = [&](const char* what) {
    const Error error{Code::io, name + ": " + what + ": " + zmq_strerror(zmq_errno())};
    if (monitor != nullptr) {
      zmq_close(monitor);
    }
    return error;
  };
  if (monitor == nullptr) {
    return failed("no socket");
  }
  const int none = 0;  // no limit: ZeroMQ's thread must never wait for who reads its events
  zmq_setsockopt(monitor, ZMQ_RCVHWM, &none, sizeof none);
  zmq_setsockopt(monitor, ZMQ_LINGER, &none, sizeof none);
  if (zmq_socket_monitor(socket, endpoint.c_str(), ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED) != 0 ||
      zmq_connect(monitor, endpoint.c_str()) != 0) {
    return failed("its connections cannot be watched");
  }
  return AcceptGate(socket, monitor, std::move(name));
}

AcceptGate::AcceptGate(void* socket, void* monitor, std::string name)
    : socket_(socket), monitor_(monitor), name_(std::move(name)), book_(most_strangers(), kStrangerPatience) {}

AcceptGate::AcceptGate(AcceptGate&& other) noexcept
    : socket_(std::exchange(other.socket_, nullptr)),
      monitor_(std::exchange(other.monitor_, nullptr)),
      name_(std::move(other.name_)),
      book_(std::move(other.book_)),
      told_(other.told_),
      most_said_(other.most_said_),
      looked_(other.looked_) {}

AcceptGate::~AcceptGate() {
  if (socket_ != nullptr) {
    zmq_socket_monitor(socket_, nullptr, 0);
  }
  if (monitor_ != nullptr) {
    zmq_close(monitor_);
  }
}

int AcceptGate::fd() const {
  int descriptor = -1;
  std::size_t length = sizeof descriptor;
  zmq_getsockopt(monitor_, ZMQ_FD, &descriptor, &length);
  return descriptor;
}

void AcceptGate::pump(TimePoint now) {
  while (const std::optional<Noticed> noticed = next_event(monitor_)) {
    if (noticed->event == ZMQ_EVENT_DISCONNECTED) {
      book_.gone(noticed->value);
    } else if (noticed->event == ZMQ_EVENT_ACCEPTED) {
      // Without a host it has ended already, and its end is told next.
      if (std::optional<std::string> host = host_of(noticed->value)) {
        if (const std::optional<int> too_many = book_.accepted(noticed->value, *std::move(host), now)) {
          shut(*too_many, now, proved_nothing());
        }
      }
    }
  }
  for (const int descriptor : book_.take_expired(now)) {
    shut(descriptor, now, proved_nothing());
  }
  if (most_said_ > 0 && now - looked_ >= kLoudLook) {
    looked_ = now;
    for (const int descriptor : book_.take_loud(most_said_, received_over)) {
      shut(descriptor, now, "said more than " + human_bytes(most_said_) + " in " + human_duration(kLoudLook));
    }
  }
}

std::string AcceptGate::proved_nothing() const {
  return "proved nothing; " + std::to_string(book_.strangers()) + " more have proven nothing yet (at most " +
         std::to_string(most_strangers()) + " may, for " + human_duration(kStrangerPatience) + " each)";
}

void AcceptGate::shut(int descriptor, TimePoint now, const std::string& why) {
  const std::optional<std::string> host = host_of(descriptor);
  ::shutdown(descriptor, SHUT_RDWR);
  if (host && (!told_ || now - *told_ >= kTellAgain)) {
    told_ = now;
    log_warning(name_ + ": a connection from " + *host + " was closed that " + why);
  }
}

}  // namespace atl
