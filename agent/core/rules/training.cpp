// The trainer: started, given the outer parameters and orders ahead, started again when it ends.
#include <algorithm>
#include <cmath>
#include <limits>

#include "agent/core/core_state.hpp"
#include "agent/core/rules/rule.hpp"
#include "strategies/specification/model_kind.hpp"
#include "transport/base/planted.hpp"

namespace atl::agent {

void Rule::start_trainer() {
  const StoredCheckpoint* saved =
      run->outer.from() == StartFrom::scratch && !run->outer.held()
          ? nullptr
          : stored.newest_trainer_state(run->terms.id, run->outer.held() ? std::optional(run->outer.committed()) : std::nullopt);
  // Where the exchange takes a whole period the trainer's state goes with what its island alone knows of the rounds in flight.
  const bool apart = run->terms.composition.whole_period() && saved != nullptr && run->outer.copied(saved->round);
  const bool current = saved != nullptr && run->outer.is(saved->round, saved->digest) && saved->part == run->members.part() && !apart;
  run->outer.forget_asking();
  run->trainer.start(run->members.part(), run->members.share(), saved, current);
}

// Brings it forward by one order if nothing is in the way. Called after everything that happens.
void Rule::drive_trainer() {
  if (departure.gone()) {
    return;
  }
  Trainer& trainer = run->trainer;
  if (run->life.ended()) {
    trainer.cancel_restart();  // one that crashed after its last step is not needed again
    return;
  }
  if (trainer.restart_at()) {
    if (now < *trainer.restart_at()) {
      return;
    }
    start_trainer();
  }
  if (trainer.training()) {
    order_work();
    hand_over();
    return;
  }
  if (trainer.phase() != Trainer::Phase::ready) {
    return;
  }
  if (!run->outer.held()) {
    if (run->outer.ask_initial()) {
      effect(FormInitialState{run->terms.id, trainer.incarnation()});
    }
    return;
  }
  if (run->life.active() && !run->outer.at_end()) {
    give_orders();
  }
}

// It stands, and the outer state is there.
void Rule::give_orders() {
  Trainer& trainer = run->trainer;
  // One that went on from a checkpoint, unless samples that it would train on next are committed already.
  if (trainer.holds() == run->outer.committed() && run->rounds.continue_at(trainer.position(), run->outer.counted())) {
    trainer.go_on(run->outer.committed());
    order_work();
    go_on_with_pending();
    return;
  }
  go_on_with_pending();
  load_trainer();
}

void Rule::load_trainer() {
  Trainer& trainer = run->trainer;
  // A retained contribution may lie in the arena: the outer parameters are loaded when its round is over.
  if (!run->rounds.contributing()) {
    // What was trained on and not committed comes again.
    trainer.load(run->outer.committed(), trainer.step_of(run->outer.committed()),
                 ATOLL_PLANTED(samples_left_out) ? trainer.position() : run->outer.counted());
  }
}

void Rule::extend_plan() {
  if (run->life.standing() || departure.asked() || !run->trainer.wants_plan(run->outer.committed())) {
    return;
  }
  // In lockstep the arena holds the parameters until the engine has taken them over: the next gradient, which goes to the same place, is
  // not ordered before.
  if (run->rounds.awaits_step() && !ATOLL_PLANTED(arena_in_use)) {
    return;
  }
  run->trainer.extend_plan(run->outer.committed(), run->rounds.numbers(), run->rounds.formed());
}

void Rule::on_trainer(const TrainerReady& event) {
  if (run->trainer.phase() != Trainer::Phase::starting) {
    return;
  }
  if (Status ready = run->trainer.on(event, session.identity().name); !ready) {
    give_up(ready.error());
    return;
  }
  beat();  // it is let in now, if that is what the coordinator waits for
  prepare_next();
}

void Rule::on_trainer(const TrainerLoaded& event) { run->trainer.on(event, run->outer.committed()); }

void Rule::on_trainer(const TrainerSaved& event) {
  if (!event.error.empty()) {
    tell_not_saved(event.round, event.error);
  }
  run->checkpoints.end_trainer_state(event.round, event.error.empty());
}

void Rule::tell_not_saved(Round round, const std::string& why) {
  tell("warning", "trainer_state_not_saved", "the trainer could not save its state at round " + std::to_string(round.value) + ": " + why);
}

void Rule::on_trainer(const TrainerEvaluated& event) {
  if (event.step == Step(0) && !std::isnan(event.loss)) {
    send(Merged{run->terms.id, Round(0), Step(0), event.loss, std::numeric_limits<double>::quiet_NaN(), 0.0});
  }
}

void Rule::on_trainer(const TrainerProgress& event) { run->trainer.on(event, run->outer.committed()); }

void Rule::on_trainer(const TrainerSaid& event) {
  const bool news = !event.enough.empty();
  run->trainer.on(event);
  if (!event.data.empty()) {
    tell("info", "data_read", event.data);
  }
  if (news) {
    beat();  // the others train on until the coordinator hears of it
  }
}

void Rule::on_trainer(const TrainerExited& event) {
  if (!lose_trainer(event)) {
    return;
  }
  const RestartDecision decision = run->trainer.restart(event.permanent, now);
  if (!decision.restart) {
    give_up(event.permanent ? event.error : with_context(event.error, "the trainer keeps failing (" + decision.why + ")"));
    return;
  }
  tell("error", "trainer_crashed", "the trainer ended: " + event.error.why + "; it is started again in " + human_duration(decision.delay));
  beat();  // the others do not wait for a round that it begins anew
}

// What an optimiser took in from a step that was not finite stays in it for ever. A trainer of one's own begins again from the state that
// it saved last, and with the run's newest parameters.
void Rule::go_back(const std::string& why) {
  if (closed() || !has_own_trainer(run->terms.spec) || !can_go_back() || !run->trainer.up() || run->outer.at_end()) {
    return;
  }
  tell("warning", "trainer_goes_back", why + ": the trainer begins again from the state that it saved last");
  effect(StopTrainer{run->terms.id, "it goes back to its last good state"});
  if (lose_trainer(TrainerExited{run->terms.id, run->trainer.incarnation(), false, Error{Code::corrupt, why}, ""})) {
    run->trainer.forgive_crash();
    start_trainer();
    beat();
  }
}

// It is gone. True: it is wanted again.
bool Rule::lose_trainer(const TrainerExited& event) {
  run->trainer.on(event);
  run->checkpoints.lose_trainer();
  if (run->life.ended()) {
    return false;
  }
  const bool stepped = run->rounds.merging() && run->rounds.oldest_merging().adopting;
  if (run->rounds.awaits_step() && !stepped) {
    lose_state("the trainer ended before it took the step of round " + std::to_string(run->rounds.oldest_merging().round.value));
  }
  while (run->rounds.merging() && !stepped) {
    merged(run->rounds.oldest_merging().round,
           TrainerSave::none);  // the outer state is whole; the trainer's own is that of an older checkpoint
    if (closed()) {
      return false;  // it was only waited for before leaving
    }
  }
  return !run->outer.at_end();  // then nothing is left to train
}

void Rule::on_cut(const Cut& message) {
  if (run->life.active() && message.round > run->outer.committed() && !run->rounds.contains(message.round)) {
    hurry(message.round);
  }
}

void Rule::hurry(Round round) { run->trainer.hurry(round, run->outer.committed()); }

}  // namespace atl::agent
