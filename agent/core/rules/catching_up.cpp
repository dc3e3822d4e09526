// How this island comes to an outer state: from the seed, its own checkpoint or its peers; and what it says when it has lost it.
#include "agent/core/core_state.hpp"
#include "agent/core/rules/rule.hpp"

namespace atl::agent {

void Rule::on_engine(const InitialState& event) {
  if (!run->outer.form_initial(event.digest)) {
    return;
  }
  if (event.digest.empty()) {
    lack_parameters(event.lacks);
    return;
  }
  if (run->terms.spec.model.from.empty()) {
    run->trainer.note_initial();  // else it has the seed's still, and loads the given ones
  }
  agree_on(event.digest);
}

void Rule::agree_on_initial(const Digest& digest) {
  run->outer.agree(digest);
  run->trainer.note_progress();
  write_checkpoint();
  prepare_next();
}

void Rule::on_engine(const CheckpointLoaded& event) {
  if (run->outer.restoring() != event.round) {
    return;
  }
  run->outer.loaded(event.round, event.digest, run->members.epoch());
  note_word();  // the coordinator knows this round
  run->trainer.set_planned(event.round);
  forget_stand();
  run->rounds.resume(event.pending, event.round, run->members.part(), run->outer.counted());
  const StoredCheckpoint* own = stored.find(run->terms.id, event.round, event.digest);
  if (own != nullptr) {
    run->outer.count_own(own->position);
    run->checkpoints.note(*own);
  }
  run->outer.say(run->members.epoch());
  run->trainer.stop("its state is older than the run's");
  start_trainer();
  on_loaded();
}

void Rule::on_engine(const CheckpointBroken& event) {
  stored.remove(run->terms.id, event.round);
  tell("error", "checkpoint_broken",
       "the checkpoint of round " + std::to_string(event.round.value) + " does not verify: " + event.error.why);
  if (run->outer.restoring() != event.round) {
    return;
  }
  run->outer.stop_restoring();
  replace_checkpoint(event);
}

// The copy of a checkpoint that this island had not becomes its own, and is loaded like one.
void Rule::on_engine(const CopyFetched& event) {
  if (run->outer.restoring() != event.round) {
    return;
  }
  if (event.error) {
    tell("warning", "copy_not_fetched",
         "the copy of the checkpoint of round " + std::to_string(event.round.value) + " was not fetched: " + event.error->why);
    run->outer.stop_restoring();
    run->outer.say_failure(run->members.epoch(), event.round, *event.error);
    say_all();
    run->outer.unsay();
    return;
  }
  const FetchedCopy fetched{run->members.epoch(), run->trainer.step_of(event.round), run->members.part(), run->outer.assigned(), event.file,
                            event.file_bytes,     session.identity().generation};
  stored.add(run->terms.id,
             StoredCheckpoint{event.round, event.digest, fetched.epoch, false, fetched.step, fetched.position, fetched.file,
                              fetched.file_bytes, fetched.part, fetched.generation},
             run->checkpoints.keep());
  effect(LoadCheckpoint{run->terms.id, event.round, event.digest, fetched});
}

void Rule::on_catch_up(const CatchUp& message) {
  if (run->life.active() || run->outer.restoring()) {
    return;
  }
  if (!is_for_part(message)) {
    return;  // the order that gives it this part is on its way; this one comes again
  }
  advance_epoch(message.epoch);
  if (!run->outer.catching_up() && run->outer.is(message.committed, message.digest)) {
    run->outer.count(message.position);
    run->outer.say(run->members.epoch());
    send(*run->outer.said());
    return;
  }
  if (!run->outer.needs(message)) {
    return;
  }
  drop_rounds();
  run->checkpoints.end_offer();  // the results that were kept for joiners do not lead to the state that comes
  effect(run->outer.catch_up(message, core.starts.next()));
}

void Rule::on_engine(const CatchUpDone& event) {
  if (!run->outer.awaits(event.number) || run->outer.catching_up()->committed != event.round) {
    return;
  }
  run->outer.caught_up(event.round, event.digest, run->members.epoch(), run->members.part());
  note_word();
  forget_stand();
  run->trainer.outdate(event.round);  // it is loaded anew when the island is let in
  run->outer.say(run->members.epoch());
  say_all();
}

void Rule::on_engine(const CatchUpBroke& event) {
  if (!run->outer.awaits(event.number)) {
    return;
  }
  run->outer.stop_catching_up();
  run->outer.say_failure(run->members.epoch(), run->outer.committed(), event.error);
  say_all();
  run->outer.unsay();
}

// What is in memory is not the state of a committed round: the coordinator hears of it until it assigns the peers' state.
void Rule::lose_state(const std::string& why) {
  drop_rounds();
  run->outer.lose(run->members.epoch(), Error{Code::unavailable, why});
  say_all();
}

}  // namespace atl::agent
