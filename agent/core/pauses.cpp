// Pauses: after which round this island stands, and how it goes on.
#include "agent/core/core_state.hpp"

namespace atl::agent {

void Core::State::heed_pause(const NewEpoch& message) {
  if (!message.pause_after) {
    run->life.note_unpaused(message.epoch);
  }
  end_pause();
  pause_own_rounds();
}

// It takes part in a later epoch: the pause is over, though nobody told. What it was doing is finished first.
void Core::State::end_pause() {
  if (run && run->life.pause_is_over() && run->outer.committed() >= *run->life.stands_after() && !settling()) {
    go_on_after_pause();
  }
}

// This round, whose result is about to be applied, is the last before the pause.
void Core::State::stand_after(Round round) {
  run->life.stand(round, run->members.epoch());
  run->rounds.find(round)->set_checkpoint(true);
  run->trainer.finish(round, false);
}

// Its state is, or goes back to, one before the round that it was to stand after: it comes to that round again.
void Core::State::forget_stand() {
  if (run->terms.has_own_outer_state() && run->life.standing() && *run->life.stands_after() > run->outer.committed()) {
    run->life.go_on();
  }
}

// The coordinator pauses a run whose islands commit their rounds themselves: all stand after one and the same round, so that they
// meet again as they would have met. An island that had come further before it heard stands there, and the coordinator names that round to
// all.
void Core::State::pause_own_rounds() {
  if (!run->terms.has_own_outer_state() || !run->life.active() || !run->outer.held() || run->outer.at_end() || !run->life.pause_after()) {
    return;
  }
  if (run->life.stands_after() && *run->life.pause_after() > *run->life.stands_after() &&
      run->outer.committed() >= *run->life.stands_after() && !settling()) {
    go_on_after_pause();
  }
  if (!run->life.standing() && run->outer.committed() >= *run->life.pause_after()) {
    run->life.stand(run->outer.committed(), run->members.epoch());
  }
  if (!run->life.standing() || run->outer.committed() < *run->life.stands_after() || settling()) {
    return;
  }
  if (run->checkpoints.has(run->outer.committed(), run->outer.digest())) {
    run->checkpoints.tell(now);
  } else {
    write_checkpoint();
  }
}

// The trainer was told to stand: it is loaded anew. What was exchanged with partners counts.
void Core::State::go_on_after_pause() {
  run->life.go_on();
  if (!run->terms.has_own_outer_state()) {
    drop_rounds();
    return;
  }
  run->trainer.drop_orders();
  const Round next = run->outer.committed().next();
  if (run->rounds.is(next, RoundInHand::Phase::exchanged) && run->terms.islands_commit(next)) {
    if (run->life.pause_after() && next >= *run->life.pause_after()) {
      stand_after(next);
    }
    run->rounds.apply(next);
  }
}

}  // namespace atl::agent
