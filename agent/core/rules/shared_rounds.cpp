#include "agent/core/rules/shared_rounds.hpp"

#include "agent/core/core_state.hpp"

namespace atl::agent {

void SharedRounds::on_formed(RoundInHand& round) {
  departure.contributed();
  say(round);
}

void SharedRounds::withdraw(RoundInHand& round, Error error) {
  round.withdraw(run->members.epoch(), std::move(error));
  departure.contributed();
  say(round);
}

void SharedRounds::on_exchanged(RoundInHand& round, const ExchangeDone&) { say(round); }

void SharedRounds::go_on_with_pending() {
  if (run->rounds.stop_resuming()) {
    say_all();
  }
}

void SharedRounds::cut_short() {
  if (!run->life.active() || !run->trainer.can_finish()) {
    return;
  }
  const Round next = run->outer.committed().next();
  if (run->rounds.empty() && !run->rounds.merging() && run->trainer.planned() >= next && !run->outer.at_end()) {
    departure.cut();
    run->trainer.finish(next, true);
  } else if (run->rounds.all().size() == 1 && run->rounds.applying()) {
    run->trainer.finish(run->rounds.all().begin()->first, false);  // its commit came before; no step after it would count
  }
}

// ---- the state that all have

void SharedRounds::agree_on(const Digest&) { say_all(); }

// The coordinator hears that it lacks them, and once others have agreed on them it joins them with a copy.
void SharedRounds::lack_parameters(const std::string& why) {
  tell("warning", "parameters_lacking", "it copies the parameters that the run begins with from an island that has them: " + why);
  say_all();
}

void SharedRounds::on_loaded() { say_all(); }

void SharedRounds::replace_checkpoint(const CheckpointBroken& event) {
  // The coordinator may never have heard of those that are there: what an island says of a checkpoint can be lost with its membership.
  for (const StoredCheckpoint& other : stored.checkpoints(run->terms.id)) {
    send(Checkpointed{run->terms.id, other.round, other.digest, other.file, other.file_bytes, std::nullopt});
  }
  run->outer.say_failure(run->members.epoch(), event.round, event.error);
  say_all();
  run->outer.unsay();
}

// If not, the order that gives the island this part is on its way; this one comes again.
bool SharedRounds::is_for_part(const CatchUp& message) const { return message.part == run->members.part(); }

// A copy in the run's store is as good as a checkpoint of its own.
void SharedRounds::read_checkpoint(const Invite& message) {
  const std::string& copies = run->terms.spec.checkpoint.copy;
  if (!copies.empty() && stored.find(run->terms.id, message.committed, message.digest) == nullptr) {
    effect(FetchCopy{run->terms.id, copies, message.committed, message.digest});
    return;
  }
  effect(LoadCheckpoint{run->terms.id, message.committed, message.digest});
}

// ---- the epoch

// Every copy of the run's state is gone, and what is here is of rounds that were given up, or of none.
bool SharedRounds::starts_over() const { return run->outer.held() || run->outer.from() != StartFrom::scratch; }

// Nobody is assigned while a run is being paused: it was paused meanwhile, and is resumed.
void SharedRounds::be_invited_again() {
  if (run->life.standing()) {
    go_on_after_pause();
  }
}

void SharedRounds::go_on_from_memory(const Invite& message) {
  use_epoch(message.epoch, message.members, message.avoid);
  const CommittedState& outer = run->outer;
  if (outer.held() && outer.committed() == message.committed) {
    take_part(message);
  }
  if (outer.suits(message.committed, message.digest)) {
    if (!outer.restoring()) {  // else what is here is being replaced, and the coordinator hears of what came of it
      become_active();
    }
    return;
  }
  // The coordinator counts on a state that is not here: it hears of it until it assigns another one.
  run->outer.miss(run->members.epoch(), outer.committed(),
                  Error{Code::conflict, "this island's state is not that of round " + std::to_string(message.committed.value)});
  say_all();
}

void SharedRounds::be_let_in(Round committed) {
  const bool result_held = run->rounds.is(committed, RoundInHand::Phase::exchanged);
  if (run->outer.committed() >= committed || result_held) {
    become_active();
    return;
  }
  send(run->outer.report(run->members.epoch(),
                         Error{Code::conflict, "this island has the state of round " + std::to_string(run->outer.committed().value) +
                                                   ", not of round " + std::to_string(committed.value)}));
}

// ---- pauses

std::optional<Round> SharedRounds::paused_at() const {
  const bool asked = !run->life.stands_after() && run->life.pause_after();
  return asked ? std::optional(run->outer.committed()) : run->life.stands_after();
}

// The trainer was told to stand: it is loaded anew.
void SharedRounds::go_on_after_pause() {
  run->life.go_on();
  drop_rounds();
}

}  // namespace atl::agent
