// The trainer: started, given the outer parameters and orders ahead, started again when it ends.
#include <algorithm>
#include <cmath>
#include <limits>

#include "agent/core_state.hpp"

namespace atl::agent {

Step Core::State::step_of(Round round) const {
  if (round == Round(0) || !run->schedule) {
    return Step(0);
  }
  const Result<RoundPlan> plan = run->schedule->round_at(round);
  return plan ? plan->apply : Step(run->spec.training.steps);
}

// Starts it where its own newest saved state is; the outer parameters are loaded afterwards if they are newer.
void Core::State::start_trainer() {
  StartTrainer start;
  start.run = run->id;
  start.incarnation = ++incarnations;
  start.spec = run->spec;
  start.part = run->part;
  start.parts = run->parts;
  run->trainer_round.reset();
  const StoredCheckpoint* saved = run->from == StartFrom::scratch && !run->has_state ? nullptr : newest_trainer_state();
  if (saved != nullptr) {
    start.checkpoint = saved->round;
    start.step = saved->step;
    start.position = saved->position;
    run->position = std::max(run->position, saved->position);
    if (run->has_state && saved->round == run->committed && saved->chain == run->chain) {
      run->trainer_round = saved->round;
      run->position = saved->position;
    }
  }
  run->incarnation = start.incarnation;
  run->trainer = TrainerPhase::starting;
  run->restart_at.reset();
  run->initial_asked = false;
  effect(std::move(start));
}

// Brings it forward by one order if nothing is in the way. Called after everything that happens.
void Core::State::drive_trainer() {
  if (!run || run->ended || over) {
    return;
  }
  if (run->restart_at) {
    if (now < *run->restart_at) {
      return;
    }
    start_trainer();
  }
  if (run->trainer == TrainerPhase::training) {
    extend_plan();
    return;
  }
  if (run->trainer != TrainerPhase::ready) {
    return;
  }
  if (!run->has_state) {
    if (run->from == StartFrom::scratch && !run->initial && !run->initial_asked) {
      run->initial_asked = true;
      effect(FormInitialState{run->id, run->incarnation});
    }
    return;
  }
  // A retained contribution may lie in the arena: the outer parameters are loaded when its round is over.
  if (!run->active || !run->rounds.empty() || run->at_end()) {
    return;
  }
  run->step = step_of(run->committed);
  if (run->trainer_round == run->committed) {
    run->trainer = TrainerPhase::training;
    run->planned = run->committed;
    extend_plan();
  } else {
    run->trainer = TrainerPhase::loading;
    effect(LoadTrainer{run->id, run->incarnation, run->step, run->position});
  }
}

void Core::State::extend_plan() {
  const Round until(std::min(run->committed.value + 1 + settings.rounds_ahead, run->last().value));
  if (!run->schedule || run->planned >= until) {
    return;
  }
  const PlanSettings plan{run->spec.training.evaluate_every, run->spec.checkpoint.every_rounds, run->composition.merge_alpha, run->lockstep()};
  PlanDecision decision = decide_plan(*run->schedule, run->planned, until, plan);
  for (Round round(std::max(run->planned.value, run->schedule->rounds()) + 1); round <= until; round = round.next()) {
    const bool last = round == run->last();  // of those that merge all islands' outer parameters
    decision.merge.push_back(MergeOrder{round, static_cast<std::uint32_t>(round.value - run->schedule->rounds() - 1), Step(run->spec.training.steps), 0, last, false, last});
    decision.until = Step(run->spec.training.steps);
  }
  run->planned = until;
  effect(PlanTrainer{run->id, run->incarnation, decision.until, std::move(decision.publish), std::move(decision.merge)});
}

void Core::State::on_trainer(const TrainerReady& event) {
  if (run->trainer != TrainerPhase::starting) {
    return;
  }
  Result<Schedule> schedule = schedule_of(run->composition, run->spec.training.steps, event.fragments);
  const std::uint64_t merges = schedule ? run->composition.merge_rounds(schedule->fragments()) : 0;
  if (!schedule || schedule->rounds() + merges != run->spec.rounds || merges != run->spec.merge_rounds) {
    const std::string why = schedule ? "its schedule has " + std::to_string(schedule->rounds() + merges) + " rounds, the run has " + std::to_string(run->spec.rounds)
                                     : schedule.error().why;
    give_up(Error{Code::invalid_argument, "the run's schedule is impossible with this trainer: " + why});
    return;
  }
  run->schedule = *schedule;
  run->trainer = TrainerPhase::ready;
  run->step = event.step;
  prepare_pair();
}

void Core::State::on_trainer(const TrainerLoaded& event) {
  if (run->trainer != TrainerPhase::loading) {
    return;
  }
  if (event.step != step_of(run->committed)) {
    run->trainer = TrainerPhase::ready;  // the state moved on meanwhile: once more
    return;
  }
  run->step = event.step;
  run->position = event.position;
  run->trainer_round = run->committed;
  run->planned = run->committed;
  run->trainer = TrainerPhase::training;
}

void Core::State::on_trainer(const TrainerPublished& event) {
  if (run->trainer != TrainerPhase::training || event.round <= run->committed || event.round > run->planned || run->rounds.count(event.round) > 0) {
    return;
  }
  run->step = event.step;
  run->position = event.position;
  run->tokens_published += event.tokens;
  RoundInHand& round = run->rounds[event.round];
  round.fragment = event.fragment;
  round.ready.run = run->id;
  round.ready.round = event.round;
  round.ready.tokens = event.tokens;
  round.ready.steps = event.steps;
  round.ready.training_loss = event.training_loss;
  if (!std::isnan(event.local_loss)) {
    run->local_losses[event.round] = event.local_loss;
  }
  if (event.nonfinite) {
    withdraw(event.round, Error{Code::corrupt, "a loss or gradient before step " + std::to_string(event.step.value) + " was not finite"});
  } else {
    effect(FormContribution{run->id, event.round, event.fragment});
  }
}

void Core::State::on_trainer(const TrainerMerged& event) {
  if (run->trainer != TrainerPhase::training || event.round > run->committed) {
    return;
  }
  run->step = std::max(run->step, event.step);
  run->position = std::max(run->position, event.position);
  run->trainer_round = event.round;
  double local_loss = std::numeric_limits<double>::quiet_NaN();
  if (const auto measured = run->local_losses.find(event.round); measured != run->local_losses.end()) {
    local_loss = measured->second;
    run->local_losses.erase(run->local_losses.begin(), std::next(measured));
  }
  Merged said{run->id, event.round, event.step, event.outer_loss, local_loss, event.wait_seconds};
  if (const auto own = run->own_rounds.find(event.round); own != run->own_rounds.end()) {
    said.partner = own->second.partner;
    said.projection = std::move(own->second.projection);
    run->own_rounds.erase(run->own_rounds.begin(), std::next(own));
  }
  send(std::move(said));
  if (!event.save_error.empty()) {
    tell("warning", "trainer_state_not_saved", "the trainer could not save its state at round " + std::to_string(event.round.value) + ": " + event.save_error);
  }
  if (run->merging == event.round) {
    merged(event.round, event.saved);
  }
}

// The trainer has taken the newest round's result, or will not any more.
void Core::State::merged(Round round, bool saved) {
  const bool checkpoint = run->merging_checkpoint;
  run->merging.reset();
  run->merging_checkpoint = false;
  if (run->lockstep() && run->trainer == TrainerPhase::training) {
    effect(AdoptParameters{run->id, round});
  }
  if (checkpoint || saved || round == run->last()) {
    write_checkpoint(saved);
  }
  finish_if_done();
}

void Core::State::on_trainer(const TrainerEvaluated& event) {
  if (event.step == Step(0) && !std::isnan(event.loss)) {
    send(Merged{run->id, Round(0), Step(0), event.loss, std::numeric_limits<double>::quiet_NaN(), 0.0});
  }
}

void Core::State::on_trainer(const TrainerProgress& event) {
  run->progress = event;
  run->step = std::max(run->step, event.step);
}

void Core::State::on_trainer(const TrainerExited& event) {
  run->tokens_before += run->progress.tokens;
  run->compute_before += run->progress.compute_seconds;
  run->wait_before += run->progress.wait_seconds;
  run->progress = TrainerProgress{};
  run->trainer = TrainerPhase::none;
  run->trainer_round.reset();
  run->crashes += 1;
  if (run->ended) {
    return;
  }
  if (run->merging && run->lockstep()) {
    lose_state("the trainer ended before it took the step of round " + std::to_string(run->merging->value));
  } else if (run->merging) {
    merged(*run->merging, false);  // the outer state is whole; the trainer's own is that of an older checkpoint
  }
  if (run->at_end()) {
    return;  // nothing is left to train
  }
  const RestartDecision decision = decide_restart(run->crashes, settings.crashes, event.permanent, settings.restart_delay);
  if (!decision.restart) {
    give_up(event.permanent ? event.error : with_context(event.error, "the trainer keeps failing (" + decision.why + ")"));
    return;
  }
  tell("error", "trainer_crashed", "the trainer ended: " + event.error.why + "; it is started again in " + human_duration(decision.delay));
  run->restart_at = now + decision.delay;
}

}  // namespace atl::agent
