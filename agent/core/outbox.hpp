// What the core has decided to say and to have done, in order, until the driver takes it.
//
// Messages go to the coordinator and effects to the trainer host, the engine or the process. Events for people that come up while the
// coordinator has not welcomed this island are kept, the newest few, and said with the next welcome.
// Threads: owned by one Core.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "agent/core/effect.hpp"
#include "transport/control/message.hpp"

namespace atl::agent {

// In this order.
struct Ready {
  std::vector<Message> messages;  // to the coordinator; dropped by the driver while there is no link
  std::vector<Effect> effects;
  [[nodiscard]] bool empty() const { return messages.empty() && effects.empty(); }
};

class Outbox {
 public:
  void send(Message message) { ready_.messages.push_back(std::move(message)); }
  void effect(Effect effect) { ready_.effects.push_back(std::move(effect)); }
  // An event for people. level: info, warning or error.
  void tell(RunId run, std::string level, std::string kind, std::string text);

  // Whether the coordinator has welcomed this island. What was kept for people is said now.
  void set_linked(bool linked);
  [[nodiscard]] bool linked() const { return linked_; }

  // Empties it, but for the events that are kept.
  Ready take() { return std::exchange(ready_, Ready{}); }

 private:
  Ready ready_;
  std::deque<IslandEvent> unsaid_;
  bool linked_ = false;
};

}  // namespace atl::agent
