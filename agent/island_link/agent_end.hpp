// The agent's end of the island link: a local ZeroMQ PAIR socket that one trainer connects to.
//
// Bind a fresh path for every start of a trainer process, so that nothing a dead trainer said can be taken for the new one's.
// The folder of the path should be this user's alone (mode 0700): who can open the socket can pose as the trainer.
// Threads: one thread uses an AgentEnd (moving it to another thread is fine between calls).
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "agent/island_link/messages.hpp"
#include "transport/base/result.hpp"
#include "transport/base/time.hpp"

namespace atl::island_link {

class AgentEnd {
 public:
  // `path` is that of the socket file, at most 100 characters (the kernel's limit for local sockets is 107).
  // Errors: invalid_argument for a longer one; io if it cannot be bound.
  static Result<AgentEnd> bind(const std::string& path);

  AgentEnd(AgentEnd&&) noexcept;
  AgentEnd& operator=(AgentEnd&&) noexcept;
  ~AgentEnd();

  // Readable when something may have come. It is edge-triggered: after it polled readable, and after each send(), call
  // receive() until it gives nothing, before polling again.
  [[nodiscard]] int fd() const;
  // The next message if there is one; never waits.
  // Errors: corrupt for a frame that is no trainer message (the link goes on; the trainer should be stopped); io.
  Result<std::optional<TrainerMessage>> receive();
  // The same, waiting up to `timeout` for a message. For tests and tools; a driver polls fd().
  Result<std::optional<TrainerMessage>> receive(Duration timeout);
  // Queues a message for the trainer; never waits. Before a trainer is connected messages are kept for it.
  // Errors: unavailable if a thousand messages wait already (the trainer hangs); invalid_argument if it is over 1 MiB.
  Status send(const AgentMessage& message);
  // What a trainer is given in ATOLL_ISLAND_LINK.
  [[nodiscard]] const std::string& path() const;

 private:
  struct State;
  explicit AgentEnd(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace atl::island_link
