// The rules of one core, and which of them a run goes by.
#pragma once

#include "coordinator/core/rules/closing.hpp"
#include "coordinator/core/rules/own_state_rule.hpp"
#include "coordinator/core/rules/shared_rule.hpp"
#include "coordinator/core/rules/task_rule.hpp"
#include "strategies/specification/run_spec.hpp"

namespace atl::coordinator {

class Rules {
 public:
  // core: outlives it.
  explicit Rules(Core::State& core);

  // The run goes by what this says.
  void adopt(Run& run, RunSpec spec);
  [[nodiscard]] TaskRule& tasks() { return tasks_; }
  [[nodiscard]] const TaskRule& tasks() const { return tasks_; }

 private:
  [[nodiscard]] Rule& of(const RunSpec& spec);

  Closing all_;
  QuorumClosing quorum_;
  BufferClosing buffer_;
  SharedRule shared_;
  SharedRule shared_with_quorum_;
  SharedRule shared_with_buffer_;
  LockstepRule lockstep_;
  GossipRule gossip_;
  OwnRule own_;
  TaskRule tasks_;
};

}  // namespace atl::coordinator
