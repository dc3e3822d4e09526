// Rounds in which an island meets others in a group that is drawn anew each time, and the members commit among themselves. The last rounds
// merge all islands' outer parameters: those the coordinator commits.
// Threads: owned by one Core.
#pragma once

#include <optional>
#include <vector>

#include "agent/core/rules/own_rounds.hpp"
#include "agent/core/rules/partners.hpp"

namespace atl::agent {

class GossipRounds final : public OwnStateRounds {
 public:
  GossipRounds(Core::State& core, RunInHand& its_run);
  void on_partner_ahead(const PartnerAhead& event) override;
  void on_pair_in_doubt(const PairInDoubt& event) override;
  void on_pair_renounced(const PairRenounced& event) override;
  void on_pair_query(const PairQuery& message) override;
  void on_pair_answer(const PairAnswer& message) override;
  [[nodiscard]] bool starts_over() const override;
  void go_on_from_memory(const Invite& message) override;
  void own_up() override;
  void drive() override;

 protected:
  ContributionFacts credit(RoundInHand& round, const TrainerPublished& event, const ContributionFacts& facts) override;
  void on_formed(RoundInHand& round) override;
  void withdraw(RoundInHand& round, Error error) override;
  void begin_commit(RoundInHand& round) override { meet_partner(round); }
  [[nodiscard]] bool commits(Round round) const override;
  void note_exchange(RoundInHand& round, const ExchangeDone& event) override;
  void miss_commit(Round round) override;
  void on_applied(const ResultApplied& event) override;
  void on_epoch() override;
  void prepare_next() override;
  void be_left_out() override;

 private:
  [[nodiscard]] std::optional<PairWord> word_on(Epoch epoch, Round round);
  [[nodiscard]] std::vector<IslandId> group_in(Round round) const;
  [[nodiscard]] bool is_ahead() const;
  void meet_partner(RoundInHand& round);
  void reject_own(RoundInHand& round, const Error& error);

  Partners partners_;
};

}  // namespace atl::agent
