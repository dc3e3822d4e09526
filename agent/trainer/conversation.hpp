// The built-in trainer at the island link: what the agent orders, the learner does.
//
// The protocol is agent/island_link/client's. What stands here is what each of its orders means for a learner, and what a task is.
// A Conversation owns the learner and the link; run() serves until the agent says stop. Everything happens on the calling thread: messages
// are read between orders and while waiting. On a GPU copies and reports go on beside the steps, and are answered when they have ended.
// Threads: one.
#pragma once

#include <deque>
#include <functional>
#include <memory>

#include "agent/island_link/client/trainer_client.hpp"
#include "agent/trainer/learner.hpp"
#include "agent/trainer/torch_runtime.hpp"
#include "transport/base/result.hpp"

namespace atl {

class Conversation {
 public:
  explicit Conversation(island_link::TrainerLink link);

  // Until the agent says stop (ok), is gone (unavailable), or something fails (the agent has been told).
  Status run();

 private:
  Status serve();
  Status begin(const island_link::Configure& configure);
  Status work(const island_link::Task& task);
  // Passes on what came of data and settings: if they are wrong now, they are next time, and what does not fit at the first step never
  // fits.
  template <typename Outcome>
  Outcome noted(Outcome outcome) {
    hopeless_ = !outcome && (outcome.error().code == Code::invalid_argument || outcome.error().code == Code::corrupt ||
                             (!stepped_ && is_out_of_memory(outcome.error())));
    return outcome;
  }
  // An order that goes on beside the steps.
  struct Begun {
    std::function<bool()> ended;
    std::function<island_link::Answer()> answer;  // once it has
  };

  Result<island_link::Answer> carry_out(const island_link::Order& order);
  // Copies and reports: begun here, answered later where they go on beside the steps.
  Status begin_order(const island_link::Order& order);
  // Answers those that have ended; with `wait` waits for the oldest.
  Status answer_ended(bool wait);

  island_link::TrainerClient client_;  // the arena is its: the learner, which copies into it, goes first
  std::unique_ptr<Learner> learner_;
  std::deque<Begun> begun_;
  std::uint64_t dealt_ = 0;  // how often, as far as the learner knows
  bool hopeless_ = false;    // what failed would fail again
  bool stepped_ = false;     // it has done a step, so there was memory for one
};

}  // namespace atl
