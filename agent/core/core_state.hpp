// The inside of the agent's core: its link, its run, its trainer and its rounds in hand, and the functions that change them.
//
// Only core.cpp, orders.cpp, pair_side.cpp, trainer_side.cpp and sync_side.cpp include this. Everything here is owned
// by one Core.
#pragma once

#include <map>
#include <set>

#include "agent/core/core.hpp"
#include "agent/core/decide.hpp"
#include "agent/core/outbox.hpp"
#include "agent/core/past_runs.hpp"
#include "agent/core/readers.hpp"
#include "agent/core/session.hpp"
#include "agent/core/stored_runs.hpp"
#include "agent/core/tasks.hpp"
#include "strategies/composition.hpp"
#include "transport/base/usual_norms.hpp"

namespace atl::agent {

// A round between the trainer's publish and the applied result.
struct RoundInHand {
  enum class Phase : std::uint8_t {
    forming,    // the engine forms the contribution
    formed,     // Ready is said
    withdrawn,  // Withdrawn is said
    exchanging,
    exchanged,  // Exchanged is said; the result is held
    failed,     // ExchangeFailed is said
    applying,   // committed; the engine takes the outer step
  };
  Phase phase = Phase::forming;
  std::uint32_t fragment = 0;
  Attempt attempt;  // newest heard of
  bool withdrawn = false;
  bool checkpoint = false;  // asked for with the commit
  Epoch pair_epoch;         // in pairs: in which the partner was drawn
  atl::Ready ready;
  Withdrawn withdrawal;
  Exchanged exchanged;
  ExchangeFailed failure;
};

// What a publish says, in the message that tells of it.
inline void say_of(atl::Ready& ready, const PublishFacts& facts) {
  ready.tokens = facts.tokens;
  ready.steps = facts.steps;
  ready.training_loss = facts.training_loss;
  ready.data = facts.data;
}

enum class TrainerPhase : std::uint8_t {
  none,  // not started, or crashed and waiting to be started again
  starting,
  ready,     // arena mapped; has no orders
  loading,   // takes the outer parameters
  training,  // has orders
};

// A round that is applied, and that the trainer has not said that it merged it.
struct Merging {
  Digest digest;
  bool checkpoint = false;  // one is begun, and finished when it has
  bool adopting = false;    // in lockstep: it has taken its step, and the engine takes the parameters over
  bool saved = false;       // and its own state lies where the checkpoint is to be
};

struct RunInHand {
  RunId id;
  RunSpec spec;
  Composition composition;
  std::optional<Schedule> schedule;  // known once the arena is laid out
  Epoch epoch;
  std::vector<Member> members;
  Readers readers;
  std::map<Round, TimePoint> read_until;  // own checkpoints that somebody may be reading
  std::uint32_t part = 0;
  std::uint32_t parts = 1;
  StartFrom from = StartFrom::scratch;

  // The outer state.
  bool has_state = false;  // in memory, of `committed`, and agreed on
  Round committed;
  Digest digest;
  std::optional<Digest> initial;  // of round 0, formed and not yet agreed on
  bool initial_asked = false;
  bool active = false;  // in the epoch
  std::optional<CatchUp> catching_up;
  std::optional<Round> restoring;
  std::optional<CaughtUp> caught_up;  // said until it is answered

  // The trainer.
  TrainerPhase trainer = TrainerPhase::none;
  std::uint64_t incarnation = 0;
  std::optional<TimePoint> restart_at;
  unsigned crashes = 0;                 // since the last committed round
  std::optional<Round> trainer_round;   // whose outer parameters it holds
  Round planned;                        // newest round that it has orders for
  std::optional<Round> horizon_of;      // committed round that `planned` was last decided for
  std::uint64_t position = 0;           // of the trainer in its part of the data; newest known
  std::uint64_t counted = 0;            // the first sequence of the part that no committed round holds
  std::uint64_t assigned_position = 0;  // what that is once this island has the state that it was last assigned
  std::uint64_t sequences = 0;          // of an epoch of the part; 0: not known
  Step step;
  std::uint64_t tokens_before = 0;  // of earlier incarnations
  TrainerProgress progress;
  double compute_before = 0;
  double wait_before = 0;

  std::map<Round, RoundInHand> rounds;
  bool resuming = false;  // `rounds` came with a checkpoint: they are said once the trainer that goes on with them is up
  std::map<Round, Merging> merging;

  // In pairs.
  struct OwnRound {
    IslandId partner;  // empty: alone
    std::vector<float> projection;
  };
  std::map<Round, OwnRound> own_rounds;  // applied, until the trainer has merged them
  Epoch state_of;  // in which it took over the state that it goes on from: what it was in groups of older epochs is void
  std::set<std::pair<Epoch, Round>> met;  // that this island took with others: what it answers to one in doubt
  std::uint64_t tokens_published = 0;     // the weight of its outer parameters in the last merge
  UsualNorms norms;                       // of contributions that counted, its own and those that it met

  std::map<Round, double> local_losses;      // validation, of rounds that are not merged yet
  std::set<Round> writing;                   // checkpoints under way
  std::optional<Checkpointed> checkpointed;  // newest
  std::optional<TimePoint> lease;            // offering until then
  Round lease_from;                          // results of later rounds are kept
  bool lease_served = false;                 // a checkpoint was written or found since the lease began

  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  std::optional<RunEnded> ended;  // said until released
  bool finishes = false;          // the trainer can be told that a round is its last, and to skip steps
  std::optional<Round> cut;       // pace: the round that the others have come to; until the trainer was told
  std::optional<Round> pausing;   // the run is paused after this round, which is committed or about to be: the trainer takes no step beyond
  Epoch pause_epoch;              // in which that was said
  Epoch unpaused_in;              // the newest one of which it was said that the run is not being paused
  std::optional<Round> pause_after;  // the newest membership says that the run is being paused, after this round
  bool cut_short = false;            // leaving: the trainer was told to publish what it has
  bool released = false;             // leaving: the coordinator lets go; what is in hand is brought to the disk, then the end

  [[nodiscard]] bool alone() const { return composition.group == Group::nobody; }
  [[nodiscard]] bool pairs() const { return composition.group == Group::pairs; }
  [[nodiscard]] bool private_state() const { return composition.private_states(); }
  // The last round before those that merge all islands' outer parameters; without any, the last of all.
  [[nodiscard]] Round last_own() const { return Round(spec.rounds - spec.merge_rounds); }
  // A round that this island commits by itself.
  [[nodiscard]] bool own(Round round) const { return private_state() && round <= last_own(); }
  // Of a later one: what it merges.
  [[nodiscard]] std::uint32_t merged_fragment(Round round) const { return static_cast<std::uint32_t>(round.value - last_own().value - 1); }
  [[nodiscard]] bool lockstep() const { return composition.payload == PayloadKind::gradient; }
  [[nodiscard]] Round last() const { return Round(spec.rounds); }
  [[nodiscard]] bool at_end() const { return has_state && committed >= last(); }
};

struct Core::State {
  State(Identity identity, Settings limits, std::vector<StoredRun> found, TimePoint start)
      : settings(limits), stored(std::move(found)), session(std::move(identity), settings, start, out), now(start) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  Settings settings;
  StoredRuns stored;
  PastRuns past;
  Outbox out;
  Session session;
  Starts starts;
  std::optional<RunInHand> run;
  std::optional<Tasks> tasks;  // of a run of phases; both only where `run` is that of a group that works for it
  TimePoint now;
  Gauges gauges;
  std::optional<std::string> leaving;
  TimePoint leave_until;
  bool over = false;

  // ---- core.cpp
  void dispatch(const Event& event);
  void on_core(const LinkUp& event);
  void on_core(const LinkDown&) { session.lose(now); }
  void on_core(const FromCoordinator& event) { on_message(event.message); }
  void on_core(const Gauges& event) { gauges = event; }
  void on_core(const LeaveAsked& event) { begin_leaving(event.why); }
  void on_task(const TaskEnded& event);
  void on_task(const ContentMissed& event) { tasks->on(event, now); }
  template <typename E>
  void on_task(const E& event) {
    tasks->on(event);
  }
  void on_time();
  void drive();
  void send(Message message) { out.send(std::move(message)); }
  void effect(Effect value) { out.effect(std::move(value)); }
  void tell(std::string level, std::string kind, std::string text);
  void say_hello();
  void say_all();  // whatever is not answered
  void say(const RoundInHand& round);
  void beat();
  [[nodiscard]] const IslandId& island() const { return session.island(); }
  [[nodiscard]] IslandReport report() const;
  [[nodiscard]] Activity activity() const;
  void exit(std::optional<Error> error);
  void begin_leaving(const std::string& why);
  void say_leave();
  void finish_leaving();
  [[nodiscard]] bool settling() const;
  void close_run(const std::string& why);
  void give_up(Error error);

  // ---- orders.cpp: what the coordinator says
  void on_message(const Message& message);
  void on_welcome(const Welcome& message);
  void on_refused(const Refused& message);
  void on_invite(const Invite& message);
  void open_run(const Invite& message, RunSpec spec, Composition composition);
  void on_invite_again(const Invite& message);
  void on_new_epoch(const NewEpoch& message);
  void heed_pause(const NewEpoch& message);
  void end_pause();
  void on_exchange(const Exchange& message);
  void on_commit(const Commit& message);
  void on_abort(const Abort& message);
  void on_offer(const Offer& message);
  void on_catch_up(const CatchUp& message);
  void on_serve(const Serve& message);
  void on_cut(const Cut& message);
  void on_release(const Release& message);
  void use_epoch(Epoch epoch, const std::vector<Member>& members);
  void allow_peers();
  void join();
  void restore(const Invite& message);
  void own_up();
  void become_active();
  void drop_rounds();
  void take_part(const Invite& message);
  [[nodiscard]] std::uint64_t published() const;

  // ---- pair_side.cpp
  void on_pair_query(const PairQuery& message);
  void on_pair_answer(const PairAnswer& message);
  void on_engine(const PartnerAhead& event);
  void on_engine(const PairInDoubt& event);
  void on_engine(const PairRenounced& event);
  [[nodiscard]] std::optional<PairWord> word_on(Epoch epoch, Round round) const;
  [[nodiscard]] std::vector<IslandId> group_in(Round round) const;
  void prepare_pair();
  void meet_partner(Round round);
  void reject_own(Round round, const Error& error);
  void note_met(const RoundInHand& round, const ExchangeDone& event);
  void stand_after(Round round);
  void forget_stand();
  void pause_own_rounds();
  void go_on_after_pause();
  void leave_pairs();
  void drive_merges();

  // ---- runs of phases
  void on_assignment(const Assignment& message);
  void close_tasks(const std::string& why);
  [[nodiscard]] bool in_group() const;

  // ---- trainer_side.cpp
  void on_trainer(const TrainerReady& event);
  void on_trainer(const TrainerLoaded& event);
  void on_trainer(const TrainerPublished& event);
  void on_trainer(const TrainerMerged& event);
  void on_trainer(const TrainerEvaluated& event);
  void on_trainer(const TrainerProgress& event);
  void on_trainer(const TrainerExited& event);
  void drive_trainer();
  void start_trainer();
  void extend_plan();
  void continue_training();
  void go_on_with_pending();
  void cut_short();
  void keep_pace();
  void merged(Round round, bool saved);
  [[nodiscard]] Step step_of(Round round) const;

  // ---- sync_side.cpp
  void on_engine(const InitialState& event);
  void on_engine(const ContributionFormed& event);
  void on_engine(const ContributionFailed& event);
  void on_engine(const ExchangeDone& event);
  void on_engine(const ExchangeBroke& event);
  void on_engine(const ResultApplied& event);
  void on_engine(const ParametersAdopted& event);
  void on_engine(const CheckpointWritten& event);
  void on_engine(const CheckpointFailed& event);
  void on_engine(const CheckpointLoaded& event);
  void on_engine(const CheckpointBroken& event);
  void on_engine(const CatchUpDone& event);
  void on_engine(const CatchUpBroke& event);
  void withdraw(Round round, Error error);
  void go_own_way(Round round);
  void begin_alone(Round round);
  void apply(Round round);
  void agree_on_initial(const Digest& digest);
  void tell_checkpoint();
  void keep_for_reader(Round round, Duration time);
  void write_checkpoint();  // of the present outer state, without the trainer's
  void finish_checkpoint(Round round, const Digest& digest, bool trainer_state);
  void lose_state(const std::string& why);
  void finish_if_done();
};

}  // namespace atl::agent
