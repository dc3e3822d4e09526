// Rounds where every island has an outer state of its own, and the islands commit.
// Threads: owned by one Core.
#pragma once

#include "agent/core/rules/rule.hpp"

namespace atl::agent {

// What all such rounds have in common.
class OwnStateRounds : public Rule {
 public:
  using Rule::Rule;
  void go_on_from_memory(const Invite& message) override;

 protected:
  // What comes after a contribution is formed.
  virtual void begin_commit(RoundInHand& round) = 0;
  // What came of the round beside its result.
  virtual void note_exchange(RoundInHand&, const ExchangeDone&) {}
  // This round, whose result is about to be applied, is the last before the pause.
  void stand_after(Round round);

  void withdraw(RoundInHand& round, Error error) override;
  void on_exchanged(RoundInHand& round, const ExchangeDone& event) override;
  void go_on_with_pending() override;
  void agree_on(const Digest& initial) override { agree_on_initial(initial); }
  void lack_parameters(const std::string& why) override;
  void on_loaded() override { become_active(); }
  void replace_checkpoint(const CheckpointBroken& event) override;
  [[nodiscard]] bool is_for_part(const CatchUp&) const override { return true; }
  void read_checkpoint(const Invite& message) override;
  [[nodiscard]] bool has_gone_on() const override;
  void be_let_in(Round) override { become_active(); }
  void heed_pause(const NewEpoch& message) override;
  void go_on_after_pause() override;
  void forget_stand() override;

 private:
  void pause();
};

// Nobody else: an island goes its own way, and nothing is sent.
class OwnRounds : public OwnStateRounds {
 public:
  using OwnStateRounds::OwnStateRounds;
  [[nodiscard]] bool starts_over() const override { return false; }

 protected:
  void begin_commit(RoundInHand& round) override;
  void on_formed(RoundInHand& round) override;
  [[nodiscard]] bool commits(Round) const override { return true; }
  [[nodiscard]] bool goes_alone() const override { return true; }
};

}  // namespace atl::agent
