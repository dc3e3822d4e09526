// A rule under which the trainer waits for each result and its own optimiser takes the step: what is exchanged are gradients, and the outer
// state comes from the trainer. So nothing is ordered ahead, and a round whose step was not taken is a state that is lost.
// Threads: owned by one Core.
#pragma once

#include <string>

#include "agent/core/core_state.hpp"

namespace atl::agent {

template <typename Base>
class InLockstep final : public Base {
 public:
  using Base::Base;
  void cut_short() override {}  // there are no steps between two rounds

 protected:
  void begin_checkpoint(Round) override {}  // the outer state comes with the merge
  // The parameters of this round would have come from an optimiser's step that only the trainer could take.
  void miss_merge(Round round) override {
    this->lose_state("the trainer ended before it took the step of round " + std::to_string(round.value));
  }
  void take_merge(const TrainerMerged& event) override { this->run->rounds.adopt(event.round, event.save == TrainerSave::done); }
  void on_merged() override {
    const CommittedState& outer = this->run->outer;
    Checkpoints& checkpoints = this->run->checkpoints;
    if (outer.held() && checkpoints.offered() && !checkpoints.writing() && !checkpoints.serves(outer.committed(), outer.digest(), false)) {
      this->write_checkpoint();  // it was offered while the step was under way
    }
  }
  [[nodiscard]] bool can_go_back() const override { return false; }
};

}  // namespace atl::agent
