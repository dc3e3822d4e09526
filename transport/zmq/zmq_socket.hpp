// A ZeroMQ context, socket and frame that close themselves; never blocking, never throwing. For the control link's sources only.
// Threads: one per socket.
#pragma once

#include <zmq.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "transport/base/bytes.hpp"
#include "transport/base/result.hpp"

namespace atl {

inline constexpr std::size_t kCurveOverheadBytes = 64;  // of CURVE's own framing, on top of a message

class ZmqContext {
 public:
  ZmqContext() : context_(zmq_ctx_new()) {}
  ~ZmqContext();
  ZmqContext(const ZmqContext&) = delete;
  ZmqContext& operator=(const ZmqContext&) = delete;
  [[nodiscard]] void* get() const { return context_; }

 private:
  void* context_;
};

// One received frame; its bytes live as long as it does.
class ZmqFrame {
 public:
  ZmqFrame() { zmq_msg_init(&message_); }
  ~ZmqFrame() { zmq_msg_close(&message_); }
  ZmqFrame(ZmqFrame&& other) noexcept : ZmqFrame() { zmq_msg_move(&message_, &other.message_); }
  ZmqFrame& operator=(ZmqFrame&& other) noexcept {
    zmq_msg_move(&message_, &other.message_);
    return *this;
  }

  [[nodiscard]] ByteView bytes() const;
  [[nodiscard]] std::string_view text() const { return as_text(bytes()); }
  // The descriptor of the connection that it came by; −1 if unknown.
  [[nodiscard]] int source() const { return zmq_msg_get(const_cast<zmq_msg_t*>(&message_), ZMQ_SRCFD); }
  // The address that its connection comes from, without the port; empty if unknown.
  [[nodiscard]] std::string peer_host() const;
  // What the ZAP handler called the peer; empty without one.
  [[nodiscard]] std::string user_id() const;
  [[nodiscard]] zmq_msg_t* raw() { return &message_; }

 private:
  zmq_msg_t message_;
};

class ZmqSocket {
 public:
  // Errors: io when the process has no sockets left.
  static Result<ZmqSocket> open(const ZmqContext& context, int type);
  ~ZmqSocket() { close(); }
  ZmqSocket(ZmqSocket&& other) noexcept : socket_(std::exchange(other.socket_, nullptr)) {}
  ZmqSocket& operator=(ZmqSocket&& other) noexcept {
    close();
    socket_ = std::exchange(other.socket_, nullptr);
    return *this;
  }

  // Options whose values come from the program: a refusal is a defect.
  void set(int option, int value);
  void set(int option, std::int64_t value);
  void set(int option, const std::string& value);

  // All frames of the next message; empty when there is none.
  std::vector<ZmqFrame> receive();
  // The errno of a message that could not be queued whole; 0: queued.
  int send(std::initializer_list<ByteView> frames);
  // ZMQ_POLLIN, ZMQ_POLLOUT.
  [[nodiscard]] int events() const;
  [[nodiscard]] int fd() const;
  [[nodiscard]] std::string last_endpoint() const;
  [[nodiscard]] void* get() const { return socket_; }

 private:
  explicit ZmqSocket(void* socket) : socket_(socket) {}
  void close();

  void* socket_;
};

}  // namespace atl
