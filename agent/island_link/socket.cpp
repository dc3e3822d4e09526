// Both ends of the link over ZeroMQ: the only file here that includes it.
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <zmq.hpp>

#include "agent/island_link/agent_end.hpp"
#include "agent/island_link/trainer_link.hpp"

namespace atl::island_link {

namespace {

constexpr std::size_t kLongestPath = 100;
constexpr int kQueuedMessages = 1000;

Error zmq_error(const std::string& what, const zmq::error_t& error) { return {Code::io, what + ": " + error.what()}; }

Status check_path(const std::string& path) {
  if (path.empty() || path.size() > kLongestPath) {
    return Error{Code::invalid_argument, "the island link's path '" + path + "' must have 1 to " + std::to_string(kLongestPath) +
                                             " characters; choose a shorter state directory"};
  }
  return {};
}

void set_options(zmq::socket_t& socket) {
  socket.set(zmq::sockopt::maxmsgsize, static_cast<std::int64_t>(kLargestMessage));
  socket.set(zmq::sockopt::sndhwm, kQueuedMessages);
  socket.set(zmq::sockopt::rcvhwm, kQueuedMessages);
}

template <typename Message>
Status send_on(zmq::socket_t& socket, const Message& message, const char* peer) {
  const std::string text = encode(message);
  if (text.size() > kLargestMessage) {
    return Error{Code::invalid_argument, "island link: '" + std::string(type_of(message)) + "' has " + std::to_string(text.size()) +
                                             " bytes; at most " + std::to_string(kLargestMessage) + " can be sent"};
  }
  try {
    if (!socket.send(zmq::buffer(text), zmq::send_flags::dontwait)) {
      return Error{Code::unavailable, std::string("island link: the ") + peer + " does not read its messages"};
    }
  } catch (const zmq::error_t& error) {
    return zmq_error("island link: cannot send", error);
  }
  return {};
}

// Waits for an event on the first of the items; false after the timeout. A signal ends the wait early.
bool wait_for(zmq::pollitem_t* items, std::size_t count, Duration timeout) {
  const auto ms = timeout < Duration::zero() ? std::chrono::milliseconds(-1) : std::chrono::ceil<std::chrono::milliseconds>(timeout);
  try {
    return zmq::poll(items, count, ms) > 0;
  } catch (const zmq::error_t& error) {
    if (error.num() == EINTR) {
      return false;
    }
    throw;
  }
}

}  // namespace

// ---- agent

struct AgentEnd::State {
  std::string path;
  zmq::context_t context{1};
  zmq::socket_t socket{context, zmq::socket_type::pair};
  int fd = -1;

  ~State() {
    socket.set(zmq::sockopt::linger, 200);
    socket.close();
    ::unlink(path.c_str());
  }
};

AgentEnd::AgentEnd(std::unique_ptr<State> state) : state_(std::move(state)) {}
AgentEnd::AgentEnd(AgentEnd&&) noexcept = default;
AgentEnd& AgentEnd::operator=(AgentEnd&&) noexcept = default;
AgentEnd::~AgentEnd() = default;

Result<AgentEnd> AgentEnd::bind(const std::string& path) {
  ATOLL_TRY(check_path(path));
  try {
    auto state = std::make_unique<State>();
    state->path = path;
    set_options(state->socket);
    state->socket.bind("ipc://" + path);
    ::chmod(path.c_str(), 0600);
    state->fd = state->socket.get(zmq::sockopt::fd);
    return AgentEnd(std::move(state));
  } catch (const zmq::error_t& error) {
    return zmq_error("cannot bind the island link " + path, error);
  }
}

int AgentEnd::fd() const { return state_->fd; }
const std::string& AgentEnd::path() const { return state_->path; }

Result<std::optional<TrainerMessage>> AgentEnd::receive() {
  try {
    zmq::message_t frame;
    if (!state_->socket.recv(frame, zmq::recv_flags::dontwait)) {
      return std::optional<TrainerMessage>();
    }
    ATOLL_ASSIGN(TrainerMessage message, decode_trainer_message(frame.to_string_view()));
    return std::optional<TrainerMessage>(std::move(message));
  } catch (const zmq::error_t& error) {
    return zmq_error("island link " + state_->path, error);
  }
}

Result<std::optional<TrainerMessage>> AgentEnd::receive(Duration timeout) {
  try {
    zmq::pollitem_t item{state_->socket.handle(), 0, ZMQ_POLLIN, 0};
    wait_for(&item, 1, timeout);
  } catch (const zmq::error_t& error) {
    return zmq_error("island link " + state_->path, error);
  }
  return receive();
}

Status AgentEnd::send(const AgentMessage& message) { return send_on(state_->socket, message, "trainer"); }

// ---- trainer

struct TrainerLink::State {
  std::string path;
  zmq::context_t context{1};
  zmq::socket_t socket{context, zmq::socket_type::pair};
  zmq::socket_t monitor{context, zmq::socket_type::pair};
  bool gone = false;

  ~State() {
    monitor.set(zmq::sockopt::linger, 0);
    zmq_socket_monitor(socket.handle(), nullptr, 0);
    socket.set(zmq::sockopt::linger, gone ? 0 : 1000);
  }

  [[nodiscard]] Error gone_error() const { return {Code::unavailable, "island link " + path + ": the agent is gone"}; }

  // Reads what the monitor says; an end of the connection is final.
  void read_monitor() {
    zmq::message_t frame;
    while (monitor.recv(frame, zmq::recv_flags::dontwait)) {
      gone = true;  // nothing but ends of the connection is monitored
    }
  }

  Result<std::optional<AgentMessage>> next() {
    zmq::message_t frame;
    if (!socket.recv(frame, zmq::recv_flags::dontwait)) {
      return std::optional<AgentMessage>();
    }
    ATOLL_ASSIGN(AgentMessage message, decode_agent_message(frame.to_string_view()));
    return std::optional<AgentMessage>(std::move(message));
  }
};

TrainerLink::TrainerLink(std::unique_ptr<State> state) : state_(std::move(state)) {}
TrainerLink::TrainerLink(TrainerLink&&) noexcept = default;
TrainerLink& TrainerLink::operator=(TrainerLink&&) noexcept = default;
TrainerLink::~TrainerLink() = default;

Result<TrainerLink> TrainerLink::connect(const std::string& path) {
  ATOLL_TRY(check_path(path));
  if (::access(path.c_str(), F_OK) != 0) {
    return Error{Code::not_found, "island link: there is no socket " + path + "; trainers are started by an agent"};
  }
  try {
    auto state = std::make_unique<State>();
    state->path = path;
    set_options(state->socket);
    // Never in practice. Not -1: that drops the messages which came before the end of the connection and are not read yet.
    state->socket.set(zmq::sockopt::reconnect_ivl, 24 * 3600 * 1000);
    const char* monitor = "inproc://island-link-monitor";
    if (zmq_socket_monitor(state->socket.handle(), monitor,
                           ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_CLOSED | ZMQ_EVENT_CONNECT_RETRIED | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL) !=
        0) {
      throw zmq::error_t();
    }
    state->monitor.connect(monitor);
    state->socket.connect("ipc://" + path);
    return TrainerLink(std::move(state));
  } catch (const zmq::error_t& error) {
    return zmq_error("cannot connect to the island link " + path, error);
  }
}

Result<std::optional<AgentMessage>> TrainerLink::receive(Duration timeout) {
  try {
    auto ready = state_->next();  // what came before the end of the connection is still worth reading
    if (!ready || *ready) {
      return ready;
    }
    if (!state_->gone) {
      std::array<zmq::pollitem_t, 2> items{zmq::pollitem_t{state_->socket.handle(), 0, ZMQ_POLLIN, 0},
                                           zmq::pollitem_t{state_->monitor.handle(), 0, ZMQ_POLLIN, 0}};
      wait_for(items.data(), items.size(), timeout);
      state_->read_monitor();
      ready = state_->next();
      if (!ready || *ready) {
        return ready;
      }
    }
    if (state_->gone) {
      return state_->gone_error();
    }
    return ready;
  } catch (const zmq::error_t& error) {
    return zmq_error("island link " + state_->path, error);
  }
}

Status TrainerLink::send(const TrainerMessage& message) {
  try {
    state_->read_monitor();
  } catch (const zmq::error_t& error) {
    return zmq_error("island link " + state_->path, error);
  }
  if (state_->gone) {
    return state_->gone_error();
  }
  return send_on(state_->socket, message, "agent");
}

bool die_with_parent() {
  const pid_t parent = ::getppid();
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  return ::getppid() == parent;
}

}  // namespace atl::island_link
