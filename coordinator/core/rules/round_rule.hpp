// Rounds that the coordinator plans and commits: those of runs whose islands share one outer state, and those that merge states of their
// own into one.
//
//   round_path.cpp      contributed to, collected, planned, exchanged, committed or tried again
//   round_attempts.cpp  what an attempt came to, and when the next one may begin
//   merged_rounds.cpp   what trainers have merged, and for what they waited
//   pacing.cpp          islands of different speeds come to a round together
//   copying.cpp         checkpoints are copied to a store
//   joining.cpp         invitations, sources for joiners, checkpoints
//
// Threads: owned by one Core.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/core/rules/closing.hpp"
#include "coordinator/core/rules/rule.hpp"

namespace atl::coordinator {

class RoundRule : public Rule {
 public:
  // closing: how its rounds close; outlives it.
  RoundRule(Core::State& core, Closing& closing) : Rule(core), closing_(closing) {}

  void hear(Run& run, Membership& membership, const atl::Ready& message) override;
  void hear(Run& run, Membership& membership, const Withdrawn& message) override;
  void hear(Run& run, Membership& membership, const Exchanged& message) override;
  void hear(Run& run, Membership& membership, const ExchangeFailed& message) override;
  void hear(Run& run, Membership& membership, const Merged& message) override;
  void hear(Run& run, Membership& membership, const Checkpointed& message) override;
  void hear(Run& run, Membership& membership, const CaughtUp& message) override;
  using Rule::hear;
  void invite(Run& run, Membership& membership) override;
  void on_left(Run& run, const IslandId& island, const std::string& why) override;
  void on_admitted(Run& run) override;
  void on_epoch(Run& run) override;
  void on_moved(Run& run, const std::string& why) override;
  bool may_leave(Run& run, Membership& membership, const Island& island) override;
  void account_unmerged(const Run& run, Membership& membership) override;
  Status pause(Run& run) override;
  [[nodiscard]] std::string where_paused(const Run& run) const override;
  [[nodiscard]] std::string why_it_stands(const Run& run) const override;
  [[nodiscard]] bool began_before(const Run& run, const IslandId& island) const override;
  void give_up_rounds(Run& run) override { run.rounds().start_anew(); }
  using Rule::recover;
  void recover(Run& run, const RoundRecord& value) override;
  void settle_recovered(Run& run) override;
  void settle_backup(Run& run) override { run.rounds().clear(); }
  void describe(const Run& run, RunView& view) const override;

 protected:
  // ---- what differs between its kinds
  // The rounds that are planned here are trained for, rather than merges of what islands have: a contribution has tokens of its own, one of
  // nothing is no contribution, and slower islands may come with less.
  [[nodiscard]] virtual bool trains() const { return true; }
  // A contribution to a round to come is of the run's state. Else its island was told, or left out.
  virtual bool fits(Run&, Membership&, const atl::Ready&) { return true; }
  // An island commits this round by itself.
  [[nodiscard]] virtual bool islands_commit(const Run&, Round) const { return false; }
  virtual void hear_own(Run&, Membership&, const atl::Ready&) {}
  virtual void on_merged_newer(Run&, Membership&, const Merged&) {}
  // A checkpoint is of the run's history, and the same as its peers'.
  virtual bool takes_checkpoint(Run&, Membership&, const Checkpointed&) = 0;
  // Of a joiner's states: that of the newest round, held by one that is away; that to which it was to come.
  [[nodiscard]] virtual bool has_newest(const Run&, const CaughtUp&) const { return false; }
  virtual void come_to(Run&, Membership&, const CaughtUp&) = 0;
  // A joiner may copy the state now.
  [[nodiscard]] virtual bool takes_state(const Run&, const IslandId&) const { return true; }
  // Rounds are held for so long for a joiner; and others stand while it copies.
  [[nodiscard]] virtual Duration hold_limit(const Run& run) const;
  [[nodiscard]] virtual bool stands_for_joiners() const { return false; }
  // Rounds end while an island that leaves has a contribution in hand, or announces one.
  [[nodiscard]] virtual bool awaits_leavers(const Run&) const { return false; }
  // No round is done before more members come.
  [[nodiscard]] virtual bool awaits_members(const Run&) const { return false; }
  // What an invitation to go on from a checkpoint names, and from where the data go on.
  [[nodiscard]] virtual Digest digest_at(const Run& run, const Membership& membership, Round round) const;
  [[nodiscard]] virtual std::uint64_t position_of(const Run& run, std::uint32_t part, Round round) const;

  // ---- what they share
  void reject(Run& run, Membership& membership, const Withdrawn& message);
  void tell_rejected(const Run& run, const Membership& membership, const Withdrawn& message);
  bool blame_withdrawn(Run& run, Round round, const std::vector<IslandId>& participants);
  void tell_skipped(const Run& run, Round round, const std::string& why);
  MetricRecord metric_of(const Run& run, const Membership& membership, Round round) const;
  void record_unmerged(const Run& run, Membership& membership, Round before, std::optional<std::uint32_t> fragment);
  void contribute(Run& run, Membership& membership, Round round, const Contribution& contribution);
  [[nodiscard]] bool current(Run& run, Membership& membership, Epoch epoch);
  void answer_committed(Run& run, Membership& membership, Round round, const Digest& digest);
  void advance_rounds(Run& run);
  void wait_for(Run& run, const Wait& wait);
  [[nodiscard]] RoundInput round_input(Run& run, Round round);
  [[nodiscard]] RoundRecord record_of(const Run& run, Round number, const OpenRound& round) const;
  [[nodiscard]] bool wants_checkpoint(const Run& run, Round number) const;
  void tell_commit(const Run& run, const RoundRecord& round);
  void note_shares(Run& run, const AttemptPlan& plan);
  void advance_collecting(Run& run, Round round);
  void plan(Run& run, Round round, const std::vector<IslandId>& participants, std::vector<std::uint8_t> shares);
  void send_exchange(Run& run, Round round, const std::vector<IslandId>& to, bool again);
  void commit(Run& run, Round round, const Digest& digest);
  static std::string misplaced(const Run& run, Round round, const ContributionFacts& facts);
  void reject_unbelievable(Run& run, Round round);
  bool reject_contribution(Run& run, Round round, const IslandId& island, const std::string& why, std::vector<Field> fields);
  void note_accepted(Run& run, const OpenRound& round);
  void forgive(Run& run, const Membership& membership);
  void look_for_alike(Run& run, const Membership& membership, const atl::Ready& message);
  void note_bytes(Membership& membership, const Exchanged& message) const;
  void advance_exchanging(Run& run, Round round);
  void abort(Run& run, Round round, const std::string& why);
  void leave_out_differing(Run& run, Round number, const AttemptDecision& decision, const std::string& why);
  void fail_round(Run& run, Round round, const OpenRound::Failures& failures);
  void stand(Run& run, Round number, const std::string& why);
  [[nodiscard]] std::optional<Wait> pause_before(const Run& run, Round round, const std::vector<IslandId>& participants) const;
  void tell_own_metrics(const Run& run, const Membership& membership, const Merged& message);
  void account_wait(Run& run, Membership& membership, Round round, double wait_seconds);
  void offer(Run& run);
  [[nodiscard]] std::optional<Wait> hold_for_joiners(Run& run);
  [[nodiscard]] AdmitInput admission_input(const Run& run);
  void end_entry(Run& run, Membership& membership, const Error& error);
  void roll_back(Run& run, Round round);
  static void recount_tokens(Run& run);
  void record_lineage(const Run& run);
  // Its owner lets it write to and read from the place of this run's copies.
  [[nodiscard]] bool may_copy(const Run& run, const IslandId& island) const;
  void ask_for_copy(Run& run, Round round, const std::vector<IslandId>& holders, const std::vector<DataRange>& data);
  // The commit of a round as an island is told it.
  [[nodiscard]] Commit commit_of(const Run& run, const IslandId& island, const Committed& round) const;
  void keep_pace(Run& run, Round round);
  void hear_collected(Run& run, Membership& membership, const atl::Ready& message);
  bool is_in_place(Run& run, Membership& membership, Round round, const ContributionFacts& facts);
  void invite_joiners(Run& run);
  [[nodiscard]] JudgedNorm judged(const Run& run, const IslandId& island, const Contribution& contribution) const;
  void deal_data(Run& run);
  // The end of a pause, of islands whose checkpoints are still being written, once nobody waits for one.
  void finish_pause(Run& run, Round last, const std::vector<std::string>& writing);

  Closing& closing_;
};

}  // namespace atl::coordinator
