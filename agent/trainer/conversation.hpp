// The trainer's side of the island link's protocol: what the agent says, the learner does, and what it did is said back.
//
// agent/island_link/README.md is the law here. A Conversation owns the learner and the link; run() serves until the agent
// says stop. Everything happens on the calling thread: messages are read between steps and while waiting.
// Threads: one.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/island_link/round_orders.hpp"
#include "agent/island_link/trainer_link.hpp"
#include "agent/trainer/learner.hpp"
#include "transport/base/result.hpp"
#include "transport/base/time.hpp"

namespace atl {

class Conversation {
 public:
  explicit Conversation(island_link::TrainerLink link);

  // Until the agent says stop (ok), is gone (unavailable), or something fails (the agent has been told).
  Status run();

 private:
  // What was trained since the last publish of a fragment.
  struct Tally {
    std::uint64_t steps = 0;
    double loss_sum = 0.0;
    bool nonfinite = false;
  };
  using RoundKey = std::pair<std::uint64_t, std::uint32_t>;  // round, fragment

  Status serve();
  Status begin();
  Status work(const island_link::Task& task);
  Status restore(const island_link::Resume& resume);
  Result<island_link::AgentMessage> expect(Duration timeout, const char* what);

  // One turn: read messages, execute due orders, step.
  Status turn();
  Status read_messages(bool wait);
  Status handle(const island_link::AgentMessage& message);
  Status on(const island_link::Plan& plan);
  Status on(const island_link::PublishNow& order);
  Status on(const island_link::Load& order);
  Status on(const island_link::Finish& order);
  Status on(const island_link::Skip& order);
  void skip_to(std::uint64_t step);
  Status on(const island_link::Save& order);
  Status on(const island_link::Evaluate& order);

  Status execute_orders(std::uint64_t step);
  Status publish(const island_link::PublishOrder& order);
  Status merge(const island_link::MergeOrder& order);
  // Waits for the result of an order; nothing if a load has dropped it meanwhile.
  Result<std::optional<bool>> await_result(const island_link::MergeOrder& order, double& waited);
  Status finish_merge(const island_link::MergeOrder& order, double waited);
  Status step();
  Status account();
  Status report_progress();
  [[nodiscard]] Status save(const std::string& directory);
  [[nodiscard]] std::string notes() const;
  Status read_notes(const std::string& text);
  [[nodiscard]] bool may_step() const { return learner_->step() < until_step_; }
  [[nodiscard]] bool gradients() const { return payload_ == island_link::Payload::gradient; }

  island_link::TrainerLink link_;
  std::unique_ptr<Learner> learner_;
  island_link::Payload payload_ = island_link::Payload::parameters;
  double max_steps_per_second_ = 0.0;
  bool stopped_ = false;

  std::uint64_t until_step_ = 0;
  island_link::RoundOrders<island_link::PublishOrder, island_link::MergeOrder> orders_;
  std::map<RoundKey, bool> results_;             // come, not taken yet
  std::vector<island_link::MergeOrder> parked_;  // payload gradient: merged inside the present step, to be finished after it
  std::vector<double> parked_waits_;             // how long each has waited
  std::optional<island_link::Finish> finish_;
  std::uint64_t loads_ = 0;  // counts loads: orders in progress before one are void

  std::vector<Tally> tallies_;  // by fragment
  std::optional<double> last_loss_;
  bool nonfinite_ = false;  // since the last progress
  double compute_seconds_ = 0.0;
  double wait_seconds_ = 0.0;
  TimePoint next_step_{};
  TimePoint last_progress_{};
  std::uint64_t last_progress_step_ = 0;
};

}  // namespace atl
