// Shared rounds that close with a quorum: the trainer never waits. Of each fragment one thing at a time is ordered.
//
//   due ─► publish ─► contribution: to the first round of the fragment that is open. A newer result lies in the outer state ─► merge ─► due
//
// A contribution that misses its round goes into the next one of its fragment, until it has missed too many.
// Threads: owned by one Core.
#pragma once

#include <cstdint>
#include <optional>

#include "agent/core/rules/arena_turns.hpp"
#include "agent/core/rules/shared_rounds.hpp"

namespace atl::agent {

class QuorumRounds final : public SharedRounds {
 public:
  using SharedRounds::SharedRounds;
  void on_parameters_offered(const ParametersOffered& event) override;
  void drive() override;

 protected:
  [[nodiscard]] bool expects(const TrainerPublished& event) const override;
  [[nodiscard]] std::optional<Round> open_round(Round from, std::uint32_t fragment) const override;
  void on_unneeded(const TrainerPublished& event) override;
  ContributionFacts credit(RoundInHand& round, const TrainerPublished& event, const ContributionFacts& facts) override;
  void on_formed(RoundInHand& round) override;
  void withdraw(RoundInHand& round, Error error) override;
  [[nodiscard]] std::optional<RoundInHand*> round_of(const Exchange& order) override;
  [[nodiscard]] bool is_counted(const Exchange& order, const RoundInHand& round) const override;
  [[nodiscard]] bool lies_behind(const RoundInHand& round) override;
  [[nodiscard]] std::uint64_t counted_to(const RoundInHand& round) const override;
  void hand_result(const RoundInHand& round, const ResultApplied& event) override;
  [[nodiscard]] bool expects(const TrainerMerged& event) override;
  void order_work() override;
  void load_trainer() override;
  void hurry(Round round) override;
  void on_dropped() override { turns_.stop(); }

 private:
  [[nodiscard]] bool overdue(std::uint32_t fragment, Round closing) const;
  [[nodiscard]] std::uint64_t least_steps() const;
  void order_publish(std::uint32_t fragment);
  [[nodiscard]] std::optional<RoundPlan> first_open(Round from, std::uint32_t fragment) const;
  void adopt(Round round, std::uint32_t fragment, Step not_before);
  RoundInHand* receive(const Exchange& message, RoundInHand* late);
  void form_anew(std::uint32_t fragment, const ResultApplied& event);
  bool date(Round number);
  void drop_contribution(Round number, const Error& why, Fate fate);
  void forget_contribution(Round number);
  bool postpone(Round number);
  void tell_overrun(Round round, const ContributionFacts& facts);

  ArenaTurns turns_;
};

}  // namespace atl::agent
