// The inside of the agent's core: its nouns, and the functions that lead what happens from one to the next.
//
// A noun has its own state, and nobody else sees it: Session, StoredRuns, Tasks and Departure are the agent's, and each run in hand has a
// Membership, a Lifecycle, a CommittedState, Rounds, Partners, Checkpoints and a Trainer. They do not know each other. The functions here
// take an event to the nouns that it concerns, and what one noun says to the next; they are cut by what they are about, one file each.
// Threads: owned by one Core.
#pragma once

#include <map>
#include <set>

#include "agent/core/arena_turns.hpp"
#include "agent/core/checkpoints.hpp"
#include "agent/core/committed_state.hpp"
#include "agent/core/core.hpp"
#include "agent/core/decide.hpp"
#include "agent/core/departure.hpp"
#include "agent/core/lifecycle.hpp"
#include "agent/core/membership.hpp"
#include "agent/core/outbox.hpp"
#include "agent/core/partners.hpp"
#include "agent/core/past_runs.hpp"
#include "agent/core/rounds.hpp"
#include "agent/core/run_terms.hpp"
#include "agent/core/session.hpp"
#include "agent/core/stored_runs.hpp"
#include "agent/core/tasks.hpp"
#include "agent/core/trainer.hpp"

namespace atl::agent {

// The nouns of one run on this island.
struct RunInHand {
  RunInHand(RunTerms of, const Invite& invite, const Settings& settings, Starts& starts, Outbox& out)
      : terms(std::move(of)),
        members(invite, out),
        outer(terms, invite.from, invite.epoch, invite.position, invite.entry),
        rounds(terms, out),
        partners(terms),
        checkpoints(terms, out),
        trainer(terms, settings, starts, out) {}
  RunInHand(const RunInHand&) = delete;
  RunInHand& operator=(const RunInHand&) = delete;

  const RunTerms terms;
  Membership members;
  Lifecycle life;
  CommittedState outer;
  Rounds rounds;
  Partners partners;
  Checkpoints checkpoints;
  Trainer trainer;
  ArenaTurns turns;  // where rounds close with a quorum
  // By whose word, and in which epoch, it last committed a round or took part: not of one that leaves it out.
  struct Word {
    Generation generation;
    Epoch epoch;
  };
  Word word;
};

struct Core::State {
  State(Identity identity, Settings limits, std::vector<StoredRun> found, TimePoint start)
      : settings(limits), stored(std::move(found)), session(std::move(identity), settings, start, out), now(start), next_holds(start) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  Settings settings;
  StoredRuns stored;
  PastRuns past;
  Outbox out;
  Session session;
  Starts starts;
  Departure departure;
  std::optional<RunInHand> run;
  std::optional<Tasks> tasks;  // of a run of phases; both only where `run` is that of a group that works for it
  TimePoint now;
  Gauges gauges;
  std::set<IslandId> neighbours;  // that the coordinator named last
  TimePoint next_holds;
  std::size_t removals = 0;  // of what lies here of runs that are over: ordered, and not done
  bool removed_some = false;
  std::set<RunId> told_kept;                   // its owner was told that they stay, though they are over
  std::map<IslandId, PathReport> tried_paths;  // to this island, as last tried: those that are broken, and from neighbours

  // ---- core.cpp: to whom an event belongs, what is said, and when
  struct Router;
  void dispatch(const Event& event);
  void on_core(const LinkUp& event);
  void on_core(const LinkDown&);
  void on_core(const FromCoordinator& event) { on_message(event.message); }
  void on_core(const Gauges& event) { gauges = event; }
  void on_core(const PathTried& event);
  // What the engine had begun for a run that is in hand no more.
  template <typename E>
  void note_stored(const E&) {}
  void note_stored(const CheckpointWritten& event);
  void on_core(const PathWatched& event);
  void on_core(const PathMeasured& event);
  void on_neighbours(const Neighbours& message);
  void on_core(const UplinkSet& event);
  void on_core(const StoredRemoved& event);
  void on_core(const CopyEnded& event) { send(event.copied); }
  void on_core(const LeaveAsked& event) { begin_leaving(event.why); }
  void on_task(const TaskEnded& event);
  void on_task(const ContentMissed& event) { tasks->on(event, now); }
  template <typename E>
  void on_task(const E& event) {
    tasks->on(event);
  }
  void on_message(const Message& message);
  void on_welcome(const Welcome& message);
  void on_refused(const Refused& message);
  void on_assignment(const Assignment& message);
  void close_tasks(const std::string& why);
  void on_time();
  void drive();
  void send(Message message) { out.send(std::move(message)); }
  void effect(Effect value) { out.effect(std::move(value)); }
  void tell(std::string level, std::string kind, std::string text);
  void say_hello();
  void say_all();  // whatever is not answered
  void say_of_run();
  void say(const RoundInHand& round);
  void beat();
  [[nodiscard]] const IslandId& island() const { return session.island(); }
  [[nodiscard]] bool in_group() const;
  [[nodiscard]] IslandReport report() const;
  [[nodiscard]] Activity activity() const;

  // ---- invitations.cpp
  void on_invite(const Invite& message);
  void open_run(const Invite& message, RunTerms terms);
  void on_invite_again(const Invite& message);
  void invite_from_seed(const Invite& message, bool newer);
  void invite_with_memory(const Invite& message);
  void invite_with_checkpoint(const Invite& message, bool newer);
  void on_new_epoch(const NewEpoch& message);
  void be_left_out();
  void be_let_in(Round committed);
  void use_epoch(Epoch epoch, const std::vector<Member>& members);
  void advance_epoch(Epoch epoch);
  void take_part(const Invite& message);
  void deal(const DataShare& share);
  void join();
  void restore(const Invite& message);
  void own_up();
  void become_active();

  // ---- catching_up.cpp
  void on_engine(const InitialState& event);
  void agree_on_initial(const Digest& digest);
  void lack_parameters(const std::string& why);
  void on_engine(const CheckpointLoaded& event);
  void on_engine(const CheckpointBroken& event);
  void on_engine(const CopyFetched& event);
  void on_catch_up(const CatchUp& message);
  void on_engine(const CatchUpDone& event);
  void on_engine(const CatchUpBroke& event);
  void lose_state(const std::string& why);

  // ---- round_path.cpp
  void on_trainer(const TrainerPublished& event);
  [[nodiscard]] std::optional<Round> open_round(Round from, std::uint32_t fragment);
  void on_engine(const ContributionFormed& event);
  void on_engine(const ContributionFailed& event);
  void withdraw(Round round, Error error);
  void begin_commit(Round round);
  void begin_alone(Round round);
  void on_exchange(const Exchange& message);
  RoundInHand* receive(const Exchange& message, RoundInHand* late);
  void on_engine(const ExchangeDone& event);
  void on_engine(const ExchangeBroke& event);
  void on_abort(const Abort& message);
  void on_commit(const Commit& message);
  void miss_commit(Round round);
  void on_engine(const ResultApplied& event);
  void on_engine(const HandedOver& event);
  void hand_over();
  void on_trainer(const TrainerMerged& event);
  void on_trainer(const TrainerSaid& event);
  void on_engine(const ParametersAdopted& event);
  void merged(Round round, bool saved);
  void drop_rounds();

  // ---- quorum_rounds.cpp
  void drive_turns();
  [[nodiscard]] bool overdue(std::uint32_t fragment, Round closing) const;
  [[nodiscard]] std::uint64_t least_steps() const;
  void order_publish(std::uint32_t fragment);
  [[nodiscard]] std::optional<RoundPlan> first_open(Round from, std::uint32_t fragment) const;
  void hurry(Round round);
  void adopt(Round round, std::uint32_t fragment, Step not_before);
  void on_engine(const ParametersOffered& event);
  void go_on_after(const RoundInHand& round, const ResultApplied& event);
  [[nodiscard]] bool lies_behind(const RoundInHand& round);
  bool date(Round number);
  void drop_contribution(Round number, const Error& why, Fate fate);
  void forget_contribution(Round number);
  bool postpone(Round number);
  void bring_forward();
  void overrun(const TrainerPublished& event);
  void tell_overrun(Round round, std::uint32_t fragment, const PublishFacts& facts);

  // ---- group_rounds.cpp
  void on_pair_query(const PairQuery& message);
  void on_pair_answer(const PairAnswer& message);
  void on_engine(const PartnerAhead& event);
  void on_engine(const PairInDoubt& event);
  void on_engine(const PairRenounced& event);
  [[nodiscard]] std::optional<PairWord> word_on(Epoch epoch, Round round);
  [[nodiscard]] std::vector<IslandId> group_in(Round round) const;
  void prepare_pair();
  void meet_partner(Round round);
  void reject_own(Round round, const Error& error);
  void note_met(const RoundInHand& round, const ExchangeDone& event);
  void change_groups();
  void drive_merges();

  // ---- training.cpp
  void drive_trainer();
  void start_trainer();
  void give_orders();
  void extend_plan();
  void go_on_with_pending();
  void on_cut(const Cut& message);
  void on_trainer(const TrainerReady& event);
  void on_trainer(const TrainerLoaded& event) { run->trainer.on(event, run->outer.committed()); }
  void on_trainer(const TrainerEvaluated& event);
  void on_trainer(const TrainerProgress& event);
  void go_back(const std::string& why);
  bool lose_trainer(const TrainerExited& event);
  void on_trainer(const TrainerExited& event);

  // ---- serving.cpp
  void on_offer(const Offer& message);
  void on_serve(const Serve& message);
  void write_checkpoint();  // of the present outer state, without the trainer's
  void finish_checkpoint(Round round, const Digest& digest, bool trainer_state);
  void on_engine(const CheckpointWritten& event);
  void on_engine(const CheckpointFailed& event);
  void finish_if_done();

  // ---- retention.cpp
  void say_holds();
  [[nodiscard]] bool in_hand(const RunId& id) const;
  void on_over(const Over& message);

  // ---- pauses.cpp
  void heed_pause(const NewEpoch& message);
  void end_pause();
  void stand_after(Round round);
  void forget_stand();
  void pause_own_rounds();
  void go_on_after_pause();

  // ---- departures.cpp
  void begin_leaving(const std::string& why);
  void cut_short();
  void miss_coordinator();
  void say_leave();
  void on_release(const Release& message);
  [[nodiscard]] bool settling() const;
  bool keep_state();
  void finish_leaving();
  [[nodiscard]] RunEnd end_of_run(const Release& message);
  void close_run(const std::string& why, RunEnd end = RunEnd::none);
  void give_up(Error error);
  void exit(std::optional<Error> error);
};

}  // namespace atl::agent
