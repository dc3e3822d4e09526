// By which rule the work of a run goes on, on this island.
//
// A round is published by the trainer, formed, exchanged, committed, applied and merged, whatever the rule. This class leads each round
// along that path, and the run through epochs, pauses and checkpoints; a rule is a class that says what differs:
//
//   SharedRounds      all members exchange, and the coordinator commits
//    └ QuorumRounds   … and a round closes with some of them: nobody waits
//   OwnStateRounds    every island has an outer state of its own
//    ├ OwnRounds      … and goes its own way
//    └ GossipRounds   … and meets others in groups, which commit among themselves
//   InLockstep<Rule>  the trainer waits for each result, and its own optimiser takes the step
//
// make_rule() is where a run is asked for its rule; nobody asks a second time.
// A rule leads the nouns of one run, and uses the services of the core that has it.
// Threads: owned by one Core.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/core/core.hpp"
#include "agent/core/departure.hpp"
#include "agent/core/outbox.hpp"
#include "agent/core/rounds.hpp"
#include "agent/core/session.hpp"
#include "agent/core/stored_runs.hpp"
#include "strategies/schedule.hpp"

namespace atl::agent {

struct RunInHand;

class Rule {
 public:
  // Both outlive it.
  Rule(Core::State& core, RunInHand& its_run);
  virtual ~Rule() = default;
  Rule(const Rule&) = delete;
  Rule& operator=(const Rule&) = delete;

  // ---- round_path.cpp: of the trainer and the engine
  void on_trainer(const TrainerPublished& event);
  void on_trainer(const TrainerMerged& event);
  void on_engine(const ContributionFormed& event);
  void on_engine(const ContributionFailed& event);
  void on_engine(const ExchangeDone& event);
  void on_engine(const ExchangeBroke& event);
  void on_engine(const ResultApplied& event);
  void on_engine(const HandedOver& event);
  void on_engine(const ParametersAdopted& event);
  // of the coordinator
  void on_exchange(const Exchange& order);
  void on_abort(const Abort& message);
  void on_commit(const Commit& message);
  // What only some rules have asked for, or are asked.
  virtual void on_parameters_offered(const ParametersOffered&) {}
  virtual void on_partner_ahead(const PartnerAhead&) {}
  virtual void on_pair_in_doubt(const PairInDoubt&) {}
  virtual void on_pair_renounced(const PairRenounced&) {}
  virtual void on_pair_query(const PairQuery&) {}
  virtual void on_pair_answer(const PairAnswer&) {}
  void on_engine(const ParametersOffered& event) { on_parameters_offered(event); }
  void on_engine(const PartnerAhead& event) { on_partner_ahead(event); }
  void on_engine(const PairInDoubt& event) { on_pair_in_doubt(event); }
  void on_engine(const PairRenounced& event) { on_pair_renounced(event); }

  // ---- training.cpp
  void drive_trainer();
  void start_trainer();
  void on_cut(const Cut& message);
  void on_trainer(const TrainerReady& event);
  void on_trainer(const TrainerLoaded& event);
  void on_trainer(const TrainerSaved& event);
  void on_trainer(const TrainerEvaluated& event);
  void tell_not_saved(Round round, const std::string& why);
  void on_trainer(const TrainerProgress& event);
  void on_trainer(const TrainerSaid& event);
  void on_trainer(const TrainerExited& event);
  // The island leaves: the steps that the trainer has done since the last round are its contribution to the next. Where steps are in a
  // round in hand already, that round is the last.
  virtual void cut_short() {}

  // ---- catching_up.cpp
  void on_engine(const InitialState& event);
  void on_engine(const CheckpointLoaded& event);
  void on_engine(const CheckpointBroken& event);
  void on_engine(const CopyFetched& event);
  void on_engine(const CatchUpDone& event);
  void on_engine(const CatchUpBroke& event);
  void on_catch_up(const CatchUp& message);
  // What is in memory is not the state of a committed round: the coordinator hears of it until it assigns the peers' state.
  void lose_state(const std::string& why);

  // ---- epochs.cpp
  // The same run again: whether it starts over, and what this island has is of rounds that were given up.
  [[nodiscard]] virtual bool starts_over() const = 0;
  virtual void be_invited_again() {}  // while it stands for a pause
  void begin_from_seed(const Invite& message, bool newer);
  virtual void go_on_from_memory(const Invite& message) = 0;
  void go_on_from_checkpoint(const Invite& message, bool newer);
  void copy_from_peers(const Invite& message, bool newer);
  void join();
  void restore(const Invite& message);
  // The coordinator counts on this island, which has not heard that it is let in, or has not the state for it.
  virtual void own_up() {}
  void on_new_epoch(const NewEpoch& message);
  void become_active();

  // ---- pauses.cpp
  void end_pause();
  // After which round this island stands, or is to, and offers its state; nothing: the run is not being paused.
  [[nodiscard]] virtual std::optional<Round> paused_at() const;
  // Something of the last round is not on the disk yet.
  [[nodiscard]] bool settling() const;

  // ---- saving.cpp: checkpoints, and the end of the run
  void on_offer(const Offer& message);
  void write_checkpoint();  // of the present outer state, without the trainer's
  void on_engine(const CheckpointWritten& event);
  void on_engine(const CheckpointFailed& event);
  // The coordinator does not let go, being away perhaps: the state in memory may be the only copy of the newest rounds.
  // True if something is on its way to the disk.
  [[nodiscard]] bool keep_state();
  // This island cannot take part; it says so until it is released.
  void give_up(Error error);

  // ---- what is said of the run until it is answered
  void say_of_run();
  void say(const RoundInHand& round);

  // What can go on now beside the trainer does. Called after everything that happens, before drive_trainer().
  virtual void drive() {}

 protected:
  // ---- the path of a round, where rules differ; in its order
  // The trainer was told to publish this, and still is.
  [[nodiscard]] virtual bool expects(const TrainerPublished&) const { return true; }
  // Into which round a contribution goes that the trainer was told to publish for round `from`: that one; where it may have closed already,
  // the next of its fragment that has not. Nothing: the contribution is not needed.
  [[nodiscard]] virtual std::optional<Round> open_round(Round from, std::uint32_t fragment) const;
  virtual void on_unneeded(const TrainerPublished&) {}
  // What of the publish the contribution holds.
  virtual ContributionFacts credit(RoundInHand&, const TrainerPublished&, const ContributionFacts& facts) { return facts; }
  virtual void on_formed(RoundInHand& round) = 0;
  // Its contribution does not count, as this island itself says.
  virtual void withdraw(RoundInHand& round, Error error) = 0;
  // Who commits: this island, by itself or with those whom it meets; else the coordinator does.
  [[nodiscard]] virtual bool commits(Round) const { return false; }
  // The round that an order is about. Nothing: it is not known yet, and the order comes again.
  [[nodiscard]] virtual std::optional<RoundInHand*> round_of(const Exchange& order);
  // It is this contribution of the island that the order counts, and none that it made before.
  [[nodiscard]] virtual bool is_counted(const Exchange&, const RoundInHand&) const { return true; }
  virtual void on_exchanged(RoundInHand& round, const ExchangeDone& event) = 0;
  // The result is about to be applied: the trainer has not come to this round, and the arena stays as it is.
  [[nodiscard]] virtual bool lies_behind(const RoundInHand&) { return false; }
  // The others went on with a result that this island does not hold.
  virtual void miss_commit(Round round);
  // Up to where the round's contribution counts in this island's part of the data.
  [[nodiscard]] virtual std::uint64_t counted_to(const RoundInHand& round) const { return round.facts().data.to; }
  virtual void on_applied(const ResultApplied&) {}
  virtual void begin_checkpoint(Round round);
  virtual void hand_result(const RoundInHand& round, const ResultApplied& event);
  // The trainer, which had to merge this round, ended meanwhile.
  virtual void miss_merge(Round round) { merged(round, TrainerSave::none); }
  // It was told to merge this round, and still is.
  [[nodiscard]] virtual bool expects(const TrainerMerged&) { return true; }
  virtual void take_merge(const TrainerMerged& event) { merged(event.round, event.save); }
  // The trainer has taken a round's result, or will not any more.
  void merged(Round round, TrainerSave save);
  virtual void on_merged() {}

  // ---- the trainer
  virtual void order_work() { extend_plan(); }
  virtual void load_trainer();
  virtual void hurry(Round round);
  // The contributions of a checkpoint are said, or committed, from now on.
  virtual void go_on_with_pending() = 0;
  // What an optimiser took in from a step that was not finite can be undone by going back.
  [[nodiscard]] virtual bool can_go_back() const { return true; }
  void extend_plan();
  void hand_over();

  // ---- the state, and the epoch
  virtual void agree_on(const Digest& initial) = 0;  // the parameters that the run begins with are formed here
  virtual void lack_parameters(const std::string& why) = 0;
  virtual void on_loaded() = 0;
  virtual void replace_checkpoint(const CheckpointBroken& event) = 0;
  // Whether this order to copy is for the part of the data that the island has.
  [[nodiscard]] virtual bool is_for_part(const CatchUp& message) const = 0;
  virtual void read_checkpoint(const Invite& message) = 0;
  // Whether it went on from the checkpoint that it is assigned again.
  [[nodiscard]] virtual bool has_gone_on() const { return false; }
  virtual void on_epoch() {}  // the members are others
  // The round after the committed one can be prepared.
  virtual void prepare_next() {}
  // This island is told of its epoch: true where that is all there is to it.
  [[nodiscard]] virtual bool goes_alone() const { return false; }
  virtual void be_left_out();
  // Into an epoch whose members have the state of this round, if this island has that too.
  virtual void be_let_in(Round committed) = 0;

  // ---- pauses
  virtual void heed_pause(const NewEpoch& message);
  virtual void go_on_after_pause() = 0;
  // Its state is, or goes back to, one before the round that it was to stand after: it comes to that round again.
  virtual void forget_stand() {}
  // Rounds in hand lead nowhere any more.
  void drop_rounds();
  virtual void on_dropped() {}

  void agree_on_initial(const Digest& digest);
  void use_epoch(Epoch epoch, const std::vector<Member>& members, const PlaceCouples& avoid);
  void advance_epoch(Epoch epoch);
  void take_part(const Invite& message);
  void note_word();  // that of the coordinator of now
  void finish_if_done();

  // ---- services of the core
  void send(Message message) { out.send(std::move(message)); }
  void effect(Effect value) { out.effect(std::move(value)); }
  void tell(std::string level, std::string kind, std::string text);
  void say_all();
  void beat();
  void say_leave();
  [[nodiscard]] const IslandId& island() const { return session.island(); }
  // The run went out of the core's hands while something of it was being done.
  [[nodiscard]] bool closed() const;

  Core::State& core;
  RunInHand* const run;
  Outbox& out;
  Session& session;
  Departure& departure;
  StoredRuns& stored;
  const TimePoint& now;

 private:
  void give_orders();
  [[nodiscard]] bool lose_trainer(const TrainerExited& event);
  void go_back(const std::string& why);
  void take_failure(Round round, Error error);
  void finish_checkpoint(Round round, const Digest& digest, TrainerSave save);
  void deal(const DataShare& share);
};

// The one place where a run is asked for its rule.
[[nodiscard]] std::unique_ptr<Rule> make_rule(Core::State& core, RunInHand& run);

}  // namespace atl::agent
