// One ZeroMQ message part, owned. The only type here that knows zmq.h's message.
// Threads: a value; may be handed from one thread to another.
#pragma once

#include <zmq.h>

#include <cstddef>
#include <cstring>
#include <span>

#include "transport/base/bytes.hpp"
#include "transport/base/check.hpp"

namespace atl {

class ZmqMessage {
 public:
  ZmqMessage() { zmq_msg_init(&message_); }
  explicit ZmqMessage(ByteView copied) {
    ATOLL_CHECK(zmq_msg_init_size(&message_, copied.size()) == 0, "ZeroMQ has memory");
    if (!copied.empty()) {
      std::memcpy(zmq_msg_data(&message_), copied.data(), copied.size());
    }
  }
  // Takes the bytes as they lie; `release(_, hint)` is called on any thread once ZeroMQ is done with them.
  ZmqMessage(std::span<std::byte> bytes, zmq_free_fn* release, void* hint) {
    ATOLL_CHECK(zmq_msg_init_data(&message_, bytes.data(), bytes.size(), release, hint) == 0, "ZeroMQ has memory");
  }
  ~ZmqMessage() { zmq_msg_close(&message_); }
  ZmqMessage(ZmqMessage&& other) noexcept {
    zmq_msg_init(&message_);
    zmq_msg_move(&message_, &other.message_);
  }
  ZmqMessage& operator=(ZmqMessage&& other) noexcept {
    zmq_msg_move(&message_, &other.message_);
    return *this;
  }

  [[nodiscard]] ByteView bytes() const {
    auto* message = const_cast<zmq_msg_t*>(&message_);  // zmq_msg_data has no const form; nothing is changed
    return {static_cast<const std::byte*>(zmq_msg_data(message)), zmq_msg_size(message)};
  }
  // The descriptor of the connection that it came by; −1 if unknown.
  [[nodiscard]] int source() const { return zmq_msg_get(const_cast<zmq_msg_t*>(&message_), ZMQ_SRCFD); }
  // Next part from the socket; false if there is none now.
  bool receive(void* socket) { return zmq_msg_recv(&message_, socket, ZMQ_DONTWAIT) >= 0; }
  [[nodiscard]] bool more() const { return zmq_msg_more(&message_) != 0; }
  // True if the socket took it; it is empty then.
  bool send(void* socket, bool more) { return zmq_msg_send(&message_, socket, ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0)) >= 0; }

 private:
  zmq_msg_t message_{};
};

}  // namespace atl
