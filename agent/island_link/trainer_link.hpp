// The trainer's end of the island link.
//
// It connects once. When the agent closes the socket or dies, the connection is gone for good: receive() says so with
// `unavailable`, and the trainer should exit. A trainer never reconnects; the agent starts a new one.
// Threads: one thread uses a TrainerLink.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "agent/island_link/messages.hpp"
#include "transport/base/result.hpp"
#include "transport/base/time.hpp"

namespace atl::island_link {

class TrainerLink {
 public:
  // `path` is that of the agent's socket file.
  // Errors: not_found if there is no such file; invalid_argument; io.
  static Result<TrainerLink> connect(const std::string& path);

  TrainerLink(TrainerLink&&) noexcept;
  TrainerLink& operator=(TrainerLink&&) noexcept;
  ~TrainerLink();  // gives messages already sent up to one second to leave

  // The next message, waiting up to `timeout` (0: not at all; a negative one: for ever). Nothing when none came.
  // Errors: unavailable when the agent is gone; corrupt for a frame that is no agent message; io.
  Result<std::optional<AgentMessage>> receive(Duration timeout);
  // Errors: unavailable when the agent is gone or does not read; invalid_argument if the message is over 1 MiB.
  Status send(const TrainerMessage& message);

 private:
  struct State;
  explicit TrainerLink(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Asks the kernel to end this process (SIGTERM) when the thread that started it ends, so that no trainer outlives its agent. An
// agent must therefore start trainers from a thread that lives as long as they do. Linux only; elsewhere the closed link does it.
// Call it first thing in main. False if the parent is gone already.
bool die_with_parent();

}  // namespace atl::island_link
