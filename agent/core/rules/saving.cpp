// The run's checkpoints on this island, and what an island brings to the disk before it ends its part in the run.
#include "agent/core/core_state.hpp"
#include "agent/core/rules/rule.hpp"

namespace atl::agent {

void Rule::on_offer(const Offer& message) {
  if (!message.offering) {
    if (run->checkpoints.end_offer()) {
      run->members.forget_readers();
    }
    return;
  }
  if (!run->life.active() || !run->outer.held()) {
    return;
  }
  const bool applying = run->rounds.applying();
  run->checkpoints.offer(applying ? run->outer.committed().next() : run->outer.committed(), now);
  // For a pause: it could not be written, or nobody heard; or this island came in after the commit that said so.
  const std::optional<Round> paused = paused_at();
  const bool wanted = paused && (!run->checkpoints.newest() || run->checkpoints.newest()->round < *paused);
  if (run->checkpoints.serves(run->outer.committed(), run->outer.digest(), wanted)) {
    run->checkpoints.tell(now);
    return;
  }
  const Merging* merging = run->rounds.find_merging(run->outer.committed());
  const bool to_come = merging != nullptr && (merging->checkpoint || run->rounds.awaits_step());
  if (!applying && !run->checkpoints.writing() && !to_come) {
    write_checkpoint();
  }
}

void Rule::write_checkpoint() { finish_checkpoint(run->outer.committed(), run->outer.digest(), TrainerSave::none); }

void Rule::finish_checkpoint(Round round, const Digest& digest, TrainerSave save) {
  WriteCheckpoint order;
  order.run = run->terms.id;
  order.epoch = run->members.epoch();
  order.round = round;
  order.digest = digest;
  order.trainer_save = save;
  order.step = run->trainer.step_of(round);
  order.position = run->trainer.position();
  order.part = run->members.part();
  order.generation = run->word.generation;
  run->checkpoints.write(std::move(order), now);
}

void Rule::on_engine(const CheckpointWritten& event) {
  stored.add(run->terms.id,
             StoredCheckpoint{event.round, event.digest, run->members.epoch(), event.trainer_state, event.step, event.position, event.file,
                              event.file_bytes, event.part, run->word.generation},
             run->checkpoints.keep());
  run->checkpoints.on(event, run->life.stands_after(), now);
  run->checkpoints.begin_copy(event, run->members.epoch());
  finish_if_done();
  core.finish_leaving();
}

void Rule::on_engine(const CheckpointFailed& event) {
  run->checkpoints.on(event);
  tell("warning", "checkpoint_failed",
       "the checkpoint of round " + std::to_string(event.round.value) + " was not written: " + event.error.why +
           "; the older ones are still good");
  if (run->outer.at_end() && event.round == run->outer.committed() && !run->life.ended() && run->life.active()) {
    run->life.end(RunEnded{run->terms.id, run->outer.committed(), run->outer.digest(), std::nullopt});
    beat();  // the run's last figures, before its end
    say_all();
  }
  finish_if_done();
  core.finish_leaving();
}

// After the last round: its checkpoint, then the end.
void Rule::finish_if_done() {
  if (!run->outer.at_end() || run->life.ended() || !run->life.active() || run->rounds.merging() || run->checkpoints.writing()) {
    return;
  }
  const StoredCheckpoint* last = stored.find(run->terms.id, run->outer.committed(), run->outer.digest());
  if (last == nullptr) {
    write_checkpoint();
    return;
  }
  run->life.end(RunEnded{run->terms.id, run->outer.committed(), run->outer.digest(), std::nullopt});
  beat();  // the run's last figures, before its end
  say_all();
}

bool Rule::keep_state() {
  if (!run->outer.held() || run->outer.committed() == Round(0)) {
    return false;
  }
  const bool whole = !run->rounds.applying() && !run->rounds.awaits_step();
  if (!run->checkpoints.writing() && whole) {
    const bool there = stored.find(run->terms.id, run->outer.committed(), run->outer.digest()) != nullptr;
    if (there || !departure.keep(run->outer.committed())) {
      return false;
    }
    run->rounds.checkpoint_early(run->outer.committed());  // the trainer has had its time to merge it
    write_checkpoint();
  }
  return true;
}

void Rule::give_up(Error error) {
  if (run->life.ended()) {
    return;
  }
  tell("error", "island_gives_up", error.why);
  run->life.end(RunEnded{run->terms.id, run->outer.committed(), run->outer.digest(), std::move(error)});
  run->trainer.stop("the island gives up the run");
  drop_rounds();
  say_all();
}

}  // namespace atl::agent
