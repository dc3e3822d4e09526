#include "transport/zmq/zmq_socket.hpp"

#include <array>
#include <cerrno>

namespace atl {

ZmqContext::~ZmqContext() {
  while (context_ != nullptr && zmq_ctx_term(context_) != 0 && zmq_errno() == EINTR) {
  }
}

ByteView ZmqFrame::bytes() const {
  auto* message = const_cast<zmq_msg_t*>(&message_);  // zmq_msg_data reads only, its signature is older than const
  return {static_cast<const std::byte*>(zmq_msg_data(message)), zmq_msg_size(message)};
}

std::string ZmqFrame::peer_host() const {
  constexpr std::string_view kMapped = "::ffff:";  // an IPv4 connection to a socket of IPv6
  const char* value = zmq_msg_gets(&message_, "Peer-Address");
  const std::string_view host = value == nullptr ? std::string_view() : std::string_view(value);
  return std::string(host.starts_with(kMapped) ? host.substr(kMapped.size()) : host);
}

std::string ZmqFrame::user_id() const {
  const char* value = zmq_msg_gets(&message_, "User-Id");
  return value == nullptr ? std::string() : std::string(value);
}

Result<ZmqSocket> ZmqSocket::open(const ZmqContext& context, int type) {
  void* socket = context.get() == nullptr ? nullptr : zmq_socket(context.get(), type);
  if (socket == nullptr) {
    return Error{Code::io, std::string("cannot open a ZeroMQ socket: ") + zmq_strerror(zmq_errno())};
  }
  return ZmqSocket(socket);
}

void ZmqSocket::close() {
  if (socket_ != nullptr) {
    zmq_close(socket_);
    socket_ = nullptr;
  }
}

void ZmqSocket::set(int option, int value) {
  ATOLL_CHECK(zmq_setsockopt(socket_, option, &value, sizeof value) == 0, zmq_strerror(zmq_errno()));
}
void ZmqSocket::set(int option, std::int64_t value) {
  ATOLL_CHECK(zmq_setsockopt(socket_, option, &value, sizeof value) == 0, zmq_strerror(zmq_errno()));
}
void ZmqSocket::set(int option, const std::string& value) {
  ATOLL_CHECK(zmq_setsockopt(socket_, option, value.data(), value.size()) == 0, zmq_strerror(zmq_errno()));
}

std::vector<ZmqFrame> ZmqSocket::receive() {
  std::vector<ZmqFrame> frames;
  do {
    ZmqFrame frame;
    while (zmq_msg_recv(frame.raw(), socket_, ZMQ_DONTWAIT) < 0) {
      if (zmq_errno() != EINTR) {
        return {};
      }
    }
    frames.push_back(std::move(frame));
  } while (zmq_msg_more(frames.back().raw()) != 0);
  return frames;
}

int ZmqSocket::send(std::initializer_list<ByteView> frames) {
  std::size_t left = frames.size();
  for (const ByteView frame : frames) {
    const int flags = ZMQ_DONTWAIT | (--left > 0 ? ZMQ_SNDMORE : 0);
    while (zmq_send(socket_, frame.data(), frame.size(), flags) < 0) {
      if (zmq_errno() != EINTR) {
        return zmq_errno();
      }
    }
  }
  return 0;
}

int ZmqSocket::events() const {
  int events = 0;
  std::size_t size = sizeof events;
  return zmq_getsockopt(socket_, ZMQ_EVENTS, &events, &size) == 0 ? events : 0;
}

int ZmqSocket::fd() const {
  int fd = -1;
  std::size_t size = sizeof fd;
  return zmq_getsockopt(socket_, ZMQ_FD, &fd, &size) == 0 ? fd : -1;
}

std::string ZmqSocket::last_endpoint() const {
  std::array<char, 512> text{};
  std::size_t size = text.size();
  return zmq_getsockopt(socket_, ZMQ_LAST_ENDPOINT, text.data(), &size) == 0 ? std::string(text.data()) : std::string();
}

}  // namespace atl
