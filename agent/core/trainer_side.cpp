// The trainer: started, given the outer parameters and orders ahead, started again when it ends.
#include <algorithm>
#include <cmath>
#include <limits>

#include "agent/core/core_state.hpp"
#include "strategies/specification/run_rules.hpp"
#include "transport/base/planted.hpp"

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
  start.incarnation = starts.next();
  start.spec = run->spec;
  start.part = run->part;
  start.parts = run->parts;
  run->trainer_round.reset();
  const StoredCheckpoint* saved = run->from == StartFrom::scratch && !run->has_state
                                      ? nullptr
                                      : stored.newest_trainer_state(run->id, run->has_state ? std::optional(run->committed) : std::nullopt);
  if (saved != nullptr) {
    start.checkpoint = saved->round;
    start.step = saved->step;
    start.position = saved->position;
    if (run->has_state && saved->round == run->committed && saved->digest == run->digest && saved->part == run->part) {
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
  if (!run || over) {
    return;
  }
  if (run->ended) {
    run->restart_at.reset();  // one that crashed after its last step is not needed again
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
  if (!run->active || run->at_end()) {
    return;
  }
  // One that went on from a checkpoint, unless samples that it would train on next are committed already.
  if (run->trainer_round == run->committed && (run->private_state() || run->position >= published())) {
    continue_training();
    return;
  }
  go_on_with_pending();
  // A retained contribution may lie in the arena: the outer parameters are loaded when its round is over.
  if (!run->rounds.empty()) {
    return;
  }
  run->step = step_of(run->committed);
  if (!ATOLL_PLANTED(samples_left_out)) {
    run->position = run->counted;  // what was trained on and not committed comes again
  }
  run->trainer = TrainerPhase::loading;
  effect(LoadTrainer{run->id, run->incarnation, run->step, run->position});
}

// It holds the outer parameters of the newest round, and what it trained since: it takes orders. Rounds in flight came with its checkpoint.
void Core::State::continue_training() {
  run->step = step_of(run->committed);
  run->trainer = TrainerPhase::training;
  run->planned = run->committed;
  run->horizon_of.reset();
  extend_plan();
  go_on_with_pending();
}

// The contributions of the checkpoint are said from now on.
void Core::State::go_on_with_pending() {
  if (!std::exchange(run->resuming, false)) {
    return;
  }
  if (!run->private_state()) {
    say_all();
    return;
  }
  for (const auto& [number, round] : run->rounds) {
    go_own_way(number);
  }
}

void Core::State::extend_plan() {
  if (!run->schedule || run->horizon_of == run->committed || run->pausing || leaving) {
    return;
  }
  // In lockstep the arena holds the parameters until the engine has taken them over: the next gradient, which goes to the same place, is
  // not ordered before.
  if (run->lockstep() && !run->merging.empty() && !ATOLL_PLANTED(arena_in_use)) {
    return;
  }
  run->horizon_of = run->committed;
  Round until = decide_horizon(*run->schedule, run->committed, run->lockstep() && !ATOLL_PLANTED(arena_in_use) ? 0 : settings.rounds_ahead);
  if (until == run->last_own()) {
    until = run->last();  // those that merge all islands' outer parameters need nothing of the trainer before
  }
  if (run->planned >= until) {
    return;
  }
  const PlanSettings plan{run->spec.training.evaluate_every, run->spec.checkpoint.every_rounds, run->composition.merge_alpha,
                          run->lockstep()};
  std::set<Round> formed;
  for (const auto& [number, round] : run->rounds) {
    formed.insert(number);
  }
  PlanDecision decision = decide_plan(*run->schedule, run->planned, until, plan, formed);
  for (Round round(std::max(run->planned.value, run->schedule->rounds()) + 1); round <= until; round = round.next()) {
    const bool last = round == run->last();
    const Step end(run->spec.training.steps);
    decision.merge.push_back(MergeOrder{round, run->merged_fragment(round), end, 0, last, false, last});
    decision.until = end;
  }
  run->planned = until;
  effect(PlanTrainer{run->id, run->incarnation, decision.until, std::move(decision.publish), std::move(decision.merge)});
}

// The others wait at the synchronisation point: the trainer comes to it with the steps that it has done, once those are enough.
void Core::State::keep_pace() {
  if (!run->cut || run->trainer != TrainerPhase::training || !run->schedule || !run->finishes || *run->cut > run->planned) {
    return;
  }
  const Result<RoundPlan> round = run->schedule->round_at(*run->cut);
  const Step since = step_of(run->committed);
  if (!round || *run->cut != run->committed.next() || run->step.value < since.value + run->spec.strategy.min_inner_steps) {
    return;  // looked at again with the trainer's next progress
  }
  run->cut.reset();
  if (round->start > run->step) {
    effect(SkipTrainer{run->id, run->incarnation, round->start});
  }
}

// The island leaves: the steps that the trainer has done since the last round are its contribution to the next. Where steps are in a round
// in hand already, that round is the last.
void Core::State::cut_short() {
  const bool can =
      run && run->active && run->finishes && run->trainer == TrainerPhase::training && !run->private_state() && !run->lockstep();
  if (can && run->rounds.empty() && run->merging.empty() && run->planned > run->committed && !run->at_end()) {
    run->cut_short = true;
    effect(FinishTrainer{run->id, run->incarnation, run->committed.next(), true});
  } else if (can && run->rounds.size() == 1 && run->rounds.begin()->second.phase == RoundInHand::Phase::applying) {
    effect(FinishTrainer{run->id, run->incarnation, run->rounds.begin()->first,
                         false});  // its commit came before; no step after it would count
  }
}

void Core::State::on_trainer(const TrainerReady& event) {
  if (run->trainer != TrainerPhase::starting) {
    return;
  }
  Result<Schedule> schedule = schedule_of(run->composition, run->spec.training.steps, event.fragments);
  const std::uint64_t merges = schedule ? run->composition.merge_rounds(schedule->fragments()) : 0;
  if (!schedule || schedule->rounds() + merges != run->spec.rounds || merges != run->spec.merge_rounds) {
    const std::string why = schedule ? "its schedule has " + std::to_string(schedule->rounds() + merges) + " rounds, the run has " +
                                           std::to_string(run->spec.rounds)
                                     : schedule.error().why;
    give_up(Error{Code::invalid_argument, "the run's schedule is impossible with this trainer: " + why});
    return;
  }
  const Result<Schedule> own = schedule->merged_after(own_overlap(run->spec, session.identity().name));
  if (!own) {
    give_up(with_context(own.error(), "[islands].overlap_steps of this island"));
    return;
  }
  run->schedule = *own;
  run->finishes = event.finishes;
  run->sequences = event.sequences;
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
  run->horizon_of.reset();
  run->trainer = TrainerPhase::training;
}

void Core::State::on_trainer(const TrainerPublished& event) {
  if (run->trainer != TrainerPhase::training || event.round <= run->committed || event.round > run->planned ||
      run->rounds.count(event.round) > 0) {
    return;
  }
  run->step = event.step;
  run->position = event.position;
  if (run->cut_short && event.steps == 0) {
    run->cut_short = false;  // it had only just begun: there is nothing to contribute
    say_leave();
    return;
  }
  if (run->cut && event.round >= *run->cut) {
    run->cut.reset();
  }
  run->tokens_published += event.tokens;
  const DataRange data{run->part, published(), event.position};
  RoundInHand& round = run->rounds[event.round];
  round.fragment = event.fragment;
  round.ready.fragment = event.fragment;
  round.ready.run = run->id;
  round.ready.round = event.round;
  round.ready.sequences = run->sequences;
  const PublishFacts facts{event.tokens, event.steps, event.training_loss, data};
  say_of(round.ready, facts);
  if (!std::isnan(event.local_loss)) {
    run->local_losses[event.round] = event.local_loss;
  }
  if (event.nonfinite) {
    withdraw(event.round, Error{Code::corrupt, "a loss or gradient before step " + std::to_string(event.step.value) + " was not finite"});
  } else {
    effect(FormContribution{run->id, event.round, event.fragment, facts});
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
    tell("warning", "trainer_state_not_saved",
         "the trainer could not save its state at round " + std::to_string(event.round.value) + ": " + event.save_error);
  }
  const auto merging = run->merging.find(event.round);
  if (merging == run->merging.end()) {
    return;
  }
  if (run->lockstep()) {
    merging->second.adopting = true;
    merging->second.saved = event.saved;
    effect(AdoptParameters{run->id, event.round});
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
    send(Merged{run->id, Round(0), Step(0), event.loss, std::numeric_limits<double>::quiet_NaN(), 0.0});
  }
}

void Core::State::on_trainer(const TrainerProgress& event) {
  run->progress = event;
  run->step = std::max(run->step, event.step);
  keep_pace();
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
  const bool stepped = !run->merging.empty() && run->merging.begin()->second.adopting;
  if (!run->merging.empty() && run->lockstep() && !stepped) {
    lose_state("the trainer ended before it took the step of round " + std::to_string(run->merging.begin()->first.value));
  }
  while (!run->merging.empty() && !stepped) {
    merged(run->merging.begin()->first, false);  // the outer state is whole; the trainer's own is that of an older checkpoint
    if (!run) {
      return;  // it was only waited for before leaving
    }
  }
  if (run->at_end()) {
    return;  // nothing is left to train
  }
  const RestartDecision decision =
      decide_restart(run->crashes, settings.crashes, event.permanent, settings.restart_delay, "a committed round");
  if (!decision.restart) {
    give_up(event.permanent ? event.error : with_context(event.error, "the trainer keeps failing (" + decision.why + ")"));
    return;
  }
  tell("error", "trainer_crashed", "the trainer ended: " + event.error.why + "; it is started again in " + human_duration(decision.delay));
  run->restart_at = now + decision.delay;
}

}  // namespace atl::agent
