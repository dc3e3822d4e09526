// The inside of the agent's core: its link, its run, its trainer and its rounds in hand, and the functions that change them.
//
// Only core.cpp, orders.cpp, pair_side.cpp, trainer_side.cpp and sync_side.cpp include this. Everything here is owned
// by one Core.
#pragma once

#include <map>
#include <set>

#include "agent/core/checkpoints.hpp"
#include "agent/core/committed_state.hpp"
#include "agent/core/core.hpp"
#include "agent/core/decide.hpp"
#include "agent/core/departure.hpp"
#include "agent/core/lifecycle.hpp"
#include "agent/core/membership.hpp"
#include "agent/core/outbox.hpp"
#include "agent/core/past_runs.hpp"
#include "agent/core/run_terms.hpp"
#include "agent/core/session.hpp"
#include "agent/core/stored_runs.hpp"
#include "agent/core/tasks.hpp"
#include "agent/core/trainer.hpp"
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

// A round that is applied, and that the trainer has not said that it merged it.
struct Merging {
  Digest digest;
  bool checkpoint = false;  // one is begun, and finished when it has
  bool adopting = false;    // in lockstep: it has taken its step, and the engine takes the parameters over
  bool saved = false;       // and its own state lies where the checkpoint is to be
};

struct RunInHand {
  RunInHand(RunTerms of, const Invite& invite, const Settings& settings, Starts& starts, Outbox& out)
      : terms(std::move(of)),
        trainer(terms, settings, starts, out),
        outer(terms, invite.from, invite.epoch, invite.position),
        checkpoints(terms, out),
        members(invite, out) {}
  RunInHand(const RunInHand&) = delete;
  RunInHand& operator=(const RunInHand&) = delete;

  const RunTerms terms;
  Trainer trainer;
  CommittedState outer;
  Checkpoints checkpoints;
  Membership members;
  Lifecycle life;

  std::map<Round, RoundInHand> rounds;
  bool resuming = false;  // `rounds` came with a checkpoint: they are said once the trainer that goes on with them is up
  std::map<Round, Merging> merging;

  // In pairs.
  struct OwnRound {
    IslandId partner;  // empty: alone
    std::vector<float> projection;
  };
  std::map<Round, OwnRound> own_rounds;   // applied, until the trainer has merged them
  std::set<std::pair<Epoch, Round>> met;  // that this island took with others: what it answers to one in doubt
  std::uint64_t tokens_published = 0;     // the weight of its outer parameters in the last merge
  UsualNorms norms;                       // of contributions that counted, its own and those that it met

  std::map<Round, double> local_losses;  // validation, of rounds that are not merged yet
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
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
  Departure departure;

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
  void open_run(const Invite& message, RunTerms terms);
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
  void on_trainer(const TrainerLoaded& event) { run->trainer.on(event, run->outer.committed()); }
  void on_trainer(const TrainerPublished& event);
  void on_trainer(const TrainerMerged& event);
  void on_trainer(const TrainerEvaluated& event);
  void on_trainer(const TrainerProgress& event);
  void on_trainer(const TrainerExited& event);
  void drive_trainer();
  void start_trainer();
  void give_orders();
  void extend_plan();
  void go_on_with_pending();
  void cut_short();
  void merged(Round round, bool saved);

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
  void write_checkpoint();  // of the present outer state, without the trainer's
  void finish_checkpoint(Round round, const Digest& digest, bool trainer_state);
  void lose_state(const std::string& why);
  void finish_if_done();
};

}  // namespace atl::agent
