// The trainer: started, given the outer parameters and orders ahead, started again when it ends.
#include <algorithm>
#include <cmath>
#include <limits>

#include "agent/core/core_state.hpp"
#include "transport/base/planted.hpp"

namespace atl::agent {

void Core::State::start_trainer() {
  const StoredCheckpoint* saved =
      run->outer.from() == StartFrom::scratch && !run->outer.held()
          ? nullptr
          : stored.newest_trainer_state(run->terms.id, run->outer.held() ? std::optional(run->outer.committed()) : std::nullopt);
  const bool current = saved != nullptr && run->outer.is(saved->round, saved->digest) && saved->part == run->members.part();
  run->outer.forget_asking();
  run->trainer.start(run->members.part(), run->members.parts(), saved, current);
}

// Brings it forward by one order if nothing is in the way. Called after everything that happens.
void Core::State::drive_trainer() {
  if (!run || departure.gone()) {
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
    extend_plan();
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
void Core::State::give_orders() {
  Trainer& trainer = run->trainer;
  // One that went on from a checkpoint, unless samples that it would train on next are committed already.
  if (trainer.holds() == run->outer.committed() && (run->terms.own_states() || trainer.position() >= published())) {
    trainer.go_on(run->outer.committed());
    extend_plan();
    go_on_with_pending();
    return;
  }
  go_on_with_pending();
  // A retained contribution may lie in the arena: the outer parameters are loaded when its round is over.
  if (run->rounds.empty()) {
    // What was trained on and not committed comes again.
    trainer.load(trainer.step_of(run->outer.committed()), ATOLL_PLANTED(samples_left_out) ? trainer.position() : run->outer.counted());
  }
}

// The contributions of the checkpoint are said from now on.
void Core::State::go_on_with_pending() {
  if (!std::exchange(run->resuming, false)) {
    return;
  }
  if (!run->terms.own_states()) {
    say_all();
    return;
  }
  for (const auto& [number, round] : run->rounds) {
    go_own_way(number);
  }
}

void Core::State::extend_plan() {
  if (run->life.standing() || departure.asked() || !run->trainer.wants_plan(run->outer.committed())) {
    return;
  }
  // In lockstep the arena holds the parameters until the engine has taken them over: the next gradient, which goes to the same place, is
  // not ordered before.
  if (run->terms.lockstep() && !run->merging.empty() && !ATOLL_PLANTED(arena_in_use)) {
    return;
  }
  std::set<Round> formed;
  for (const auto& [number, round] : run->rounds) {
    formed.insert(number);
  }
  run->trainer.extend_plan(run->outer.committed(), formed);
}

// The island leaves: the steps that the trainer has done since the last round are its contribution to the next. Where steps are in a round
// in hand already, that round is the last.
void Core::State::cut_short() {
  const bool can = run && run->life.active() && run->trainer.can_finish() && !run->terms.own_states() && !run->terms.lockstep();
  if (can && run->rounds.empty() && run->merging.empty() && run->trainer.planned() > run->outer.committed() && !run->outer.at_end()) {
    departure.cut();
    run->trainer.finish(run->outer.committed().next(), true);
  } else if (can && run->rounds.size() == 1 && run->rounds.begin()->second.phase == RoundInHand::Phase::applying) {
    run->trainer.finish(run->rounds.begin()->first, false);  // its commit came before; no step after it would count
  }
}

void Core::State::on_trainer(const TrainerReady& event) {
  if (run->trainer.phase() != Trainer::Phase::starting) {
    return;
  }
  if (Status ready = run->trainer.on(event, session.identity().name); !ready) {
    give_up(ready.error());
    return;
  }
  prepare_pair();
}

void Core::State::on_trainer(const TrainerPublished& event) {
  if (!run->trainer.training() || event.round <= run->outer.committed() || event.round > run->trainer.planned() ||
      run->rounds.count(event.round) > 0) {
    return;
  }
  run->trainer.on(event);
  if (departure.cut_short() && event.steps == 0) {
    departure.contributed();  // it had only just begun: there is nothing to contribute
    say_leave();
    return;
  }
  run->tokens_published += event.tokens;
  const DataRange data{run->members.part(), published(), event.position};
  RoundInHand& round = run->rounds[event.round];
  round.fragment = event.fragment;
  round.ready.fragment = event.fragment;
  round.ready.run = run->terms.id;
  round.ready.round = event.round;
  round.ready.sequences = run->trainer.sequences();
  const PublishFacts facts{event.tokens, event.steps, event.training_loss, data};
  say_of(round.ready, facts);
  if (!std::isnan(event.local_loss)) {
    run->local_losses[event.round] = event.local_loss;
  }
  if (event.nonfinite) {
    withdraw(event.round, Error{Code::corrupt, "a loss or gradient before step " + std::to_string(event.step.value) + " was not finite"});
  } else {
    effect(FormContribution{run->terms.id, event.round, event.fragment, facts});
  }
}

void Core::State::on_trainer(const TrainerMerged& event) {
  if (!run->trainer.training() || event.round > run->outer.committed()) {
    return;
  }
  run->trainer.on(event);
  double local_loss = std::numeric_limits<double>::quiet_NaN();
  if (const auto measured = run->local_losses.find(event.round); measured != run->local_losses.end()) {
    local_loss = measured->second;
    run->local_losses.erase(run->local_losses.begin(), std::next(measured));
  }
  Merged said{run->terms.id, event.round, event.step, event.outer_loss, local_loss, event.wait_seconds};
  if (const auto own = run->own_rounds.find(event.round); own != run->own_rounds.end()) {
    said.partner = own->second.partner;
    said.projection = std::move(own->second.projection);
    run->own_rounds.erase(run->own_rounds.begin(), std::next(own));
  }
  send(std::move(said));
  if (!event.save_error.empty()) {
    tell("warning", "trainer_state_not_saved",
         "the trainer could not save its state at round " + std::to_string(event.round.value) + ": " + event.save_error);
  }
  const auto merging = run->merging.find(event.round);
  if (merging == run->merging.end()) {
    return;
  }
  if (run->terms.lockstep()) {
    merging->second.adopting = true;
    merging->second.saved = event.saved;
    effect(AdoptParameters{run->terms.id, event.round});
  } else {
    merged(event.round, event.saved);
  }
}

// The trainer has taken a round's result, or will not any more.
void Core::State::merged(Round round, bool saved) {
  const Merging merging = run->merging.extract(round).mapped();
  if (merging.checkpoint) {
    finish_checkpoint(round, merging.digest, saved);
  }
  finish_if_done();
  finish_leaving();
}

void Core::State::on_trainer(const TrainerEvaluated& event) {
  if (event.step == Step(0) && !std::isnan(event.loss)) {
    send(Merged{run->terms.id, Round(0), Step(0), event.loss, std::numeric_limits<double>::quiet_NaN(), 0.0});
  }
}

void Core::State::on_trainer(const TrainerProgress& event) { run->trainer.on(event, run->outer.committed()); }

void Core::State::on_trainer(const TrainerExited& event) {
  run->trainer.on(event);
  if (run->life.ended()) {
    return;
  }
  const bool stepped = !run->merging.empty() && run->merging.begin()->second.adopting;
  if (!run->merging.empty() && run->terms.lockstep() && !stepped) {
    lose_state("the trainer ended before it took the step of round " + std::to_string(run->merging.begin()->first.value));
  }
  while (!run->merging.empty() && !stepped) {
    merged(run->merging.begin()->first, false);  // the outer state is whole; the trainer's own is that of an older checkpoint
    if (!run) {
      return;  // it was only waited for before leaving
    }
  }
  if (run->outer.at_end()) {
    return;  // nothing is left to train
  }
  const RestartDecision decision = run->trainer.restart(event.permanent, now);
  if (!decision.restart) {
    give_up(event.permanent ? event.error : with_context(event.error, "the trainer keeps failing (" + decision.why + ")"));
    return;
  }
  tell("error", "trainer_crashed", "the trainer ended: " + event.error.why + "; it is started again in " + human_duration(decision.delay));
}

}  // namespace atl::agent
