// How this island comes to an outer state: from the seed, its own checkpoint or its peers; and what it says when it has lost it.
#include "agent/core/core_state.hpp"

namespace atl::agent {

void Core::State::on_engine(const InitialState& event) {
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
  if (run->terms.has_own_outer_state()) {
    agree_on_initial(event.digest);
  } else {
    say_all();
  }
}

// The coordinator hears that it lacks them, and once others have agreed on them it joins them with a copy.
void Core::State::lack_parameters(const std::string& why) {
  if (run->terms.has_own_outer_state()) {
    give_up({Code::not_found, "the parameters that the run begins with: " + why});
    return;
  }
  tell("warning", "parameters_lacking", "it copies the parameters that the run begins with from an island that has them: " + why);
  say_all();
}

void Core::State::agree_on_initial(const Digest& digest) {
  run->outer.agree(digest);
  run->trainer.note_progress();
  write_checkpoint();
  prepare_pair();
}

void Core::State::on_engine(const CheckpointLoaded& event) {
  if (run->outer.restoring() != event.round) {
    return;
  }
  run->outer.loaded(event.round, event.digest, run->members.epoch());
  run->word = {session.identity().generation, run->members.epoch()};  // the coordinator knows this round
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
  if (run->terms.has_own_outer_state()) {
    become_active();
  } else {
    say_all();
  }
}

void Core::State::on_engine(const CheckpointBroken& event) {
  stored.remove(run->terms.id, event.round);
  tell("error", "checkpoint_broken",
       "the checkpoint of round " + std::to_string(event.round.value) + " does not verify: " + event.error.why);
  if (run->outer.restoring() != event.round) {
    return;
  }
  run->outer.stop_restoring();
  if (run->terms.has_own_outer_state()) {
    if (!stored.checkpoints(run->terms.id).empty()) {
      const StoredCheckpoint& older = stored.checkpoints(run->terms.id).back();
      run->outer.restore_older(older.round);
      effect(LoadCheckpoint{run->terms.id, older.round, older.digest});
    } else {
      run->outer.begin_anew();
      run->life.enter();
      start_trainer();
    }
    return;
  }
  // The coordinator may never have heard of those that are there: what an island says of a checkpoint can be lost with its membership.
  for (const StoredCheckpoint& other : stored.checkpoints(run->terms.id)) {
    send(Checkpointed{run->terms.id, other.round, other.digest, other.file, other.file_bytes, std::nullopt});
  }
  run->outer.say_failure(run->members.epoch(), event.round, event.error);
  say_all();
  run->outer.unsay();
}

// The copy of a checkpoint that this island had not becomes its own, and is loaded like one.
void Core::State::on_engine(const CopyFetched& event) {
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

void Core::State::on_catch_up(const CatchUp& message) {
  if (run->life.active() || run->outer.restoring()) {
    return;
  }
  if (!run->terms.has_own_outer_state() && message.part != run->members.part()) {
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
  effect(run->outer.catch_up(message, starts.next()));
}

void Core::State::on_engine(const CatchUpDone& event) {
  if (!run->outer.awaits(event.number) || run->outer.catching_up()->committed != event.round) {
    return;
  }
  run->outer.caught_up(event.round, event.digest, run->members.epoch(), run->members.part());
  run->word = {session.identity().generation, run->members.epoch()};
  forget_stand();
  run->trainer.outdate(event.round);  // it is loaded anew when the island is let in
  run->outer.say(run->members.epoch());
  say_all();
}

void Core::State::on_engine(const CatchUpBroke& event) {
  if (!run->outer.awaits(event.number)) {
    return;
  }
  run->outer.stop_catching_up();
  run->outer.say_failure(run->members.epoch(), run->outer.committed(), event.error);
  say_all();
  run->outer.unsay();
}

// What is in memory is not the state of a committed round: the coordinator hears of it until it assigns the peers' state.
void Core::State::lose_state(const std::string& why) {
  drop_rounds();
  run->outer.lose(run->members.epoch(), Error{Code::unavailable, why});
  say_all();
}

}  // namespace atl::agent
