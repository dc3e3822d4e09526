// Checkpoints of the outer state: written, told of, and offered to joiners and readers.
#include "agent/core/core_state.hpp"
#include "agent/core/retention.hpp"

namespace atl::agent {

void Core::State::on_offer(const Offer& message) {
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
  const std::optional<Round> paused_at = run->life.stands_after() ? run->life.stands_after()
                                         : run->life.pause_after() && !run->terms.has_own_outer_state()
                                             ? std::optional(run->outer.committed())
                                             : std::nullopt;
  const bool wanted = paused_at && (!run->checkpoints.newest() || run->checkpoints.newest()->round < *paused_at);
  if (run->checkpoints.serves(run->outer.committed(), run->outer.digest(), wanted)) {
    run->checkpoints.tell(now);
    return;
  }
  const Merging* merging = run->rounds.find_merging(run->outer.committed());
  const bool to_come = merging != nullptr && (merging->checkpoint || run->terms.lockstep());
  if (!applying && !run->checkpoints.writing() && !to_come) {
    write_checkpoint();
  }
}

void Core::State::on_serve(const Serve& message) {
  if (message.allowed && stored.knows(message.run)) {
    stored.read_until(message.run, now + kReadersTime);
  }
  if (run && run->terms.id == message.run) {
    if (message.allowed) {
      run->checkpoints.keep_for_reader(message.round, now);
    }
    run->members.heed(message);
  } else if (tasks && tasks->run() == message.run) {
    tasks->heed(message);
  } else if (std::optional<AllowPeers> allowed = stored.heed(message)) {
    effect(std::move(*allowed));
  }
}

void Core::State::write_checkpoint() { finish_checkpoint(run->outer.committed(), run->outer.digest(), false); }

void Core::State::finish_checkpoint(Round round, const Digest& digest, bool trainer_state) {
  WriteCheckpoint order;
  order.run = run->terms.id;
  order.epoch = run->members.epoch();
  order.round = round;
  order.digest = digest;
  order.trainer_state = trainer_state;
  order.step = run->trainer.step_of(round);
  order.position = run->trainer.position();
  order.part = run->members.part();
  order.generation = run->word.generation;
  run->checkpoints.write(std::move(order), now);
}

void Core::State::on_engine(const CheckpointWritten& event) {
  stored.add(run->terms.id,
             StoredCheckpoint{event.round, event.digest, run->members.epoch(), event.trainer_state, event.step, event.position, event.file,
                              event.file_bytes, event.part, run->word.generation},
             run->checkpoints.keep());
  run->checkpoints.on(event, run->life.stands_after(), now);
  run->checkpoints.begin_copy(event, run->members.epoch());
  finish_if_done();
  finish_leaving();
}

// It was being written when the run left this island's hands: it is on the disk, in place of the oldest.
void Core::State::note_stored(const CheckpointWritten& event) {
  const std::vector<StoredCheckpoint>& others = stored.checkpoints(event.run);
  const Epoch epoch = others.empty() ? Epoch(0) : others.back().epoch;
  const Generation generation = others.empty() ? Generation{} : others.back().generation;
  stored.add(event.run,
             StoredCheckpoint{event.round, event.digest, epoch, event.trainer_state, event.step, event.position, event.file,
                              event.file_bytes, event.part, generation},
             std::max<std::size_t>(others.size(), 1));
}

void Core::State::on_engine(const CheckpointFailed& event) {
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
  finish_leaving();
}

// After the last round: its checkpoint, then the end.
void Core::State::finish_if_done() {
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

}  // namespace atl::agent
