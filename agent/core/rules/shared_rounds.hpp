// Rounds to which all members contribute, and that the coordinator commits: there is one outer state, and every island has it.
// A round closes with the contributions of all; QuorumRounds closes with some of them.
// Threads: owned by one Core.
#pragma once

#include "agent/core/rules/rule.hpp"

namespace atl::agent {

class SharedRounds : public Rule {
 public:
  using Rule::Rule;
  void cut_short() override;
  [[nodiscard]] bool starts_over() const override;
  void be_invited_again() override;
  void go_on_from_memory(const Invite& message) override;
  [[nodiscard]] std::optional<Round> paused_at() const override;

 protected:
  void on_formed(RoundInHand& round) override;
  void withdraw(RoundInHand& round, Error error) override;
  void on_exchanged(RoundInHand& round, const ExchangeDone& event) override;
  void go_on_with_pending() override;
  void agree_on(const Digest& initial) override;
  void lack_parameters(const std::string& why) override;
  void on_loaded() override;
  void replace_checkpoint(const CheckpointBroken& event) override;
  [[nodiscard]] bool is_for_part(const CatchUp& message) const override;
  void read_checkpoint(const Invite& message) override;
  void be_let_in(Round committed) override;
  void go_on_after_pause() override;
};

}  // namespace atl::agent
