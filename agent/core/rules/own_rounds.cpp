#include "agent/core/rules/own_rounds.hpp"

#include <algorithm>

#include "agent/core/core_state.hpp"

namespace atl::agent {

using Phase = RoundInHand::Phase;

void OwnStateRounds::withdraw(RoundInHand& round, Error error) {
  give_up(with_context(std::move(error), "round " + std::to_string(round.number().value)));
}

void OwnStateRounds::on_exchanged(RoundInHand& round, const ExchangeDone& event) {
  if (!commits(event.round)) {
    say(round);
    return;
  }
  round.set_checkpoint(checkpoint_due(event.round, run->terms.last_trained(), rounds_between_checkpoints(run->terms.spec)));
  note_exchange(round, event);
  if (run->life.pause_after() && !run->life.standing() && event.round >= *run->life.pause_after()) {
    stand_after(event.round);
  }
  if (!run->life.standing() || event.round <= *run->life.stands_after()) {
    run->rounds.apply(event.round);  // else it is held: it is of after the pause
  }
}

void OwnStateRounds::go_on_with_pending() {
  if (!run->rounds.stop_resuming()) {
    return;
  }
  for (const Round number : run->rounds.numbers()) {
    begin_commit(*run->rounds.find(number));
  }
}

// ---- the state

void OwnStateRounds::lack_parameters(const std::string& why) {
  give_up({Code::not_found, "the parameters that the run begins with: " + why});
}

// Nobody else has this state: it goes on from an older checkpoint, or begins anew.
void OwnStateRounds::replace_checkpoint(const CheckpointBroken&) {
  if (!stored.checkpoints(run->terms.id).empty()) {
    const StoredCheckpoint& older = stored.checkpoints(run->terms.id).back();
    run->outer.restore_older(older.round);
    effect(LoadCheckpoint{run->terms.id, older.round, older.digest});
  } else {
    run->outer.begin_anew();
    run->life.enter();
    start_trainer();
  }
}

void OwnStateRounds::read_checkpoint(const Invite& message) { effect(LoadCheckpoint{run->terms.id, message.committed, message.digest}); }

bool OwnStateRounds::has_gone_on() const { return run->life.active(); }

void OwnStateRounds::go_on_from_memory(const Invite& message) {
  use_epoch(message.epoch, message.members, message.avoid);
  if (!run->outer.held()) {
    return;
  }
  take_part(message);
  if (run->outer.held() && !run->outer.restoring()) {  // else what is here is being replaced
    become_active();
  }
}

// ---- pauses

void OwnStateRounds::stand_after(Round round) {
  run->life.stand(round, run->members.epoch());
  run->rounds.find(round)->set_checkpoint(true);
  run->trainer.finish(round, false);
}

void OwnStateRounds::forget_stand() {
  if (run->life.standing() && *run->life.stands_after() > run->outer.committed()) {
    run->life.go_on();
  }
}

void OwnStateRounds::heed_pause(const NewEpoch& message) {
  Rule::heed_pause(message);
  pause();
}

// The coordinator pauses a run whose islands commit their rounds themselves: all stand after one and the same round, so that they
// meet again as they would have met. An island that had come further before it heard stands there, and the coordinator names that round to
// all.
void OwnStateRounds::pause() {
  if (!run->life.active() || !run->outer.held() || run->outer.at_end() || !run->life.pause_after()) {
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
void OwnStateRounds::go_on_after_pause() {
  run->life.go_on();
  run->trainer.drop_orders();
  const Round next = run->outer.committed().next();
  if (run->rounds.is(next, Phase::exchanged) && commits(next)) {
    if (run->life.pause_after() && next >= *run->life.pause_after()) {
      stand_after(next);
    }
    run->rounds.apply(next);
  }
}

// ---- alone

void OwnRounds::on_formed(RoundInHand& round) {
  departure.contributed();
  send(*round.said(run->members.epoch(), run->outer.digest()));
  begin_commit(round);
}

// A group of one: the exchange has one member, and nobody else commits it.
void OwnRounds::begin_commit(RoundInHand& round) {
  round.begin_exchange(Attempt(1));
  const Identity& identity = session.identity();
  BeginExchange order;
  order.run = run->terms.id;
  order.epoch = run->members.epoch();
  order.round = round.number();
  order.attempt = round.attempt();
  order.fragment = round.fragment();
  order.members = {Member{identity.island, identity.name, "", identity.bulk_address}};
  order.terms.tokens = {std::max<std::uint64_t>(round.facts().tokens, 1)};
  order.terms.steps = {round.facts().steps};
  order.stall_after = session.stall_after();
  effect(std::move(order));
}

}  // namespace atl::agent
