// The sync engine: contributions, exchanges, the outer step, checkpoints and catching up.
#include <algorithm>

#include "agent/core/core_state.hpp"

namespace atl::agent {

void Core::State::on_engine(const InitialState& event) {
  if (!run->outer.form_initial(event.digest)) {
    return;
  }
  run->trainer.note_initial();
  if (run->terms.own_states()) {
    agree_on_initial(event.digest);
  } else {
    say_all();
  }
}

void Core::State::agree_on_initial(const Digest& digest) {
  run->outer.agree(digest);
  run->trainer.note_progress();
  write_checkpoint();
  prepare_pair();
}

void Core::State::on_engine(const ContributionFormed& event) {
  const auto found = run->rounds.find(event.round);
  if (found == run->rounds.end() || found->second.phase != RoundInHand::Phase::forming) {
    return;
  }
  RoundInHand& round = found->second;
  round.phase = RoundInHand::Phase::formed;
  round.ready.norm = event.norm;
  departure.contributed();
  if (run->terms.commits_itself(event.round)) {
    const NormGuard guard{run->terms.in_groups() ? run->terms.spec.guards.norm_factor : 0, run->norms.median(round.fragment)};
    if (const std::optional<std::string> exploded = guard.verdict(event.norm)) {
      reject_own(event.round, Error{Code::corrupt, *exploded});
      return;
    }
    round.ready.epoch = run->members.epoch();
    round.ready.digest = run->outer.digest();
    send(round.ready);
    go_own_way(event.round);
  } else {
    say(round);
  }
}

// A round that this island commits by itself.
void Core::State::go_own_way(Round round) {
  if (run->terms.in_groups()) {
    meet_partner(round);
  } else {
    begin_alone(round);
  }
}

void Core::State::on_engine(const ContributionFailed& event) { withdraw(event.round, event.error); }

void Core::State::withdraw(Round number, Error error) {
  const auto found = run->rounds.find(number);
  if (found == run->rounds.end() || found->second.phase != RoundInHand::Phase::forming) {
    return;
  }
  if (run->terms.in_groups() && run->terms.commits_itself(number) && error.code == Code::corrupt) {
    reject_own(number, error);
    return;
  }
  if (run->terms.own_states()) {
    give_up(with_context(std::move(error), "round " + std::to_string(number.value)));
    return;
  }
  RoundInHand& round = found->second;
  round.phase = RoundInHand::Phase::withdrawn;
  round.withdrawn = true;
  round.withdrawal = Withdrawn{run->terms.id, run->members.epoch(), number, std::move(error), round.ready.data};
  departure.contributed();
  say(round);
}

// A group of one: the exchange has one member, and nobody else commits it.
void Core::State::begin_alone(Round number) {
  RoundInHand& round = run->rounds.at(number);
  round.attempt = Attempt(1);
  round.phase = RoundInHand::Phase::exchanging;
  const Identity& identity = session.identity();
  const Member self{identity.island, identity.name, "", identity.bulk_address};
  effect(BeginExchange{run->terms.id,
                       run->members.epoch(),
                       number,
                       round.attempt,
                       round.fragment,
                       {self},
                       {std::max<std::uint64_t>(round.ready.tokens, 1)},
                       session.stall_after()});
}

void Core::State::on_engine(const ExchangeDone& event) {
  const auto found = run->rounds.find(event.round);
  if (found == run->rounds.end() || found->second.attempt != event.attempt || found->second.phase != RoundInHand::Phase::exchanging) {
    return;
  }
  RoundInHand& round = found->second;
  round.phase = RoundInHand::Phase::exchanged;
  round.exchanged = Exchanged{run->terms.id,    run->members.epoch(), event.round,   event.attempt, event.digest,
                              event.bytes_sent, event.bytes_received, event.seconds, event.slowest, event.arrived_seconds};
  run->bytes_sent += event.bytes_sent;
  run->bytes_received += event.bytes_received;
  if (run->terms.commits_itself(event.round)) {
    round.checkpoint = checkpoint_due(event.round, run->terms.last_trained(), run->terms.spec.checkpoint.every_rounds);
    if (run->terms.in_groups()) {
      note_met(round, event);
    }
    if (run->life.pause_after() && !run->life.standing() && event.round >= *run->life.pause_after()) {
      stand_after(event.round);
    }
    if (!run->life.standing() || event.round <= *run->life.stands_after()) {
      apply(event.round);  // else it is held: it is of after the pause
    }
  } else {
    say(round);
  }
}

void Core::State::on_engine(const ExchangeBroke& event) {
  const auto found = run->rounds.find(event.round);
  if (found == run->rounds.end() || found->second.attempt != event.attempt || found->second.phase != RoundInHand::Phase::exchanging) {
    return;
  }
  if (run->terms.commits_itself(event.round)) {
    give_up(with_context(event.error, "round " + std::to_string(event.round.value)));
    return;
  }
  RoundInHand& round = found->second;
  round.phase = RoundInHand::Phase::failed;
  round.failure = ExchangeFailed{run->terms.id, run->members.epoch(), event.round, event.attempt, event.accused, event.error};
  say(round);
}

void Core::State::apply(Round number) {
  RoundInHand& round = run->rounds.at(number);
  round.phase = RoundInHand::Phase::applying;
  effect(ApplyResult{run->terms.id, number, round.attempt, round.fragment, round.exchanged.digest});
}

void Core::State::on_engine(const ResultApplied& event) {
  const auto found = run->rounds.find(event.round);
  if (found == run->rounds.end() || found->second.phase != RoundInHand::Phase::applying) {
    return;
  }
  if (event.error) {
    give_up(with_context(*event.error, "the outer step of round " + std::to_string(event.round.value)));
    return;
  }
  const RoundInHand round = found->second;
  run->rounds.erase(found);
  run->outer.advance(event.round, round.exchanged.digest, round.ready.data.to);
  run->trainer.note_progress();
  const bool checkpoint = round.checkpoint || checkpoint_due(event.round, run->terms.last(), run->terms.spec.checkpoint.every_rounds);
  run->merging[event.round] = Merging{run->outer.digest(), checkpoint};
  if (run->terms.in_groups()) {
    run->own_rounds[event.round].projection = event.projection;
    prepare_pair();
  }
  if (checkpoint && !run->terms.lockstep()) {
    effect(BeginCheckpoint{run->terms.id, event.round, run->outer.digest()});  // in lockstep the outer state comes with the merge
  }
  if (run->trainer.give(event.round, round.fragment)) {
    return;
  }
  if (!run->terms.lockstep()) {
    // Its trainer ended meanwhile. The next one is loaded with the outer parameters.
    merged(event.round, false);
  } else {
    // The parameters of this round would have come from an optimiser's step that only the trainer could take.
    lose_state("the trainer ended before it took the step of round " + std::to_string(event.round.value));
  }
}

void Core::State::on_engine(const ParametersAdopted& event) {
  const auto merging = run->merging.find(event.round);
  if (merging == run->merging.end() || !merging->second.adopting) {
    return;
  }
  if (event.error) {
    lose_state(with_context(*event.error, "the parameters after round " + std::to_string(event.round.value)).why);
    return;
  }
  merged(event.round, merging->second.saved);
}

// What is in memory is not the state of a committed round: the coordinator hears of it until it assigns the peers' state.
void Core::State::lose_state(const std::string& why) {
  drop_rounds();
  run->outer.lose(run->members.epoch(), Error{Code::unavailable, why});
  say_all();
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
  run->checkpoints.write(std::move(order), now);
}

void Core::State::on_engine(const CheckpointWritten& event) {
  stored.add(run->terms.id,
             StoredCheckpoint{event.round, event.digest, run->members.epoch(), event.trainer_state, event.step, event.position, event.file,
                              event.file_bytes, event.part},
             run->checkpoints.keep());
  run->checkpoints.on(event, run->life.stands_after(), now);
  finish_if_done();
  finish_leaving();
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
  finish_leaving();
}

void Core::State::on_engine(const CheckpointLoaded& event) {
  if (run->outer.restoring() != event.round) {
    return;
  }
  run->outer.loaded(event.round, event.digest, run->members.epoch());
  run->trainer.set_planned(event.round);
  forget_stand();
  for (const PendingRound& pending : event.pending) {
    if (run->terms.lockstep()) {
      break;  // the gradient of a step that only a trainer inside it could take: it makes that step again
    }
    if (pending.round.value != event.round.value + run->rounds.size() + 1 ||
        (run->terms.own_states() && !run->terms.commits_itself(pending.round))) {
      break;  // after one that was withdrawn: the rounds from there on are published again. What merges all islands is formed again
    }
    const DataRange& data = pending.facts.data;
    if (!run->terms.own_states() && (data.part != run->members.part() || data.from != published())) {
      break;  // of samples that are not this island's any more
    }
    RoundInHand& round = run->rounds[pending.round];
    round.phase = RoundInHand::Phase::formed;
    round.fragment = pending.fragment;
    round.ready.fragment = pending.fragment;
    round.ready.run = run->terms.id;
    round.ready.round = pending.round;
    round.ready.norm = pending.norm;
    say_of(round.ready, pending.facts);
  }
  run->resuming = !run->rounds.empty();
  const StoredCheckpoint* own = stored.find(run->terms.id, event.round, event.digest);
  if (own != nullptr) {
    if (run->terms.own_states()) {
      run->outer.set_counted(own->position);  // nobody else counts
    }
    run->checkpoints.note(*own);
  }
  run->outer.say(run->members.epoch());
  run->trainer.stop("its state is older than the run's");
  start_trainer();
  if (run->terms.own_states()) {
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
  if (run->terms.own_states()) {
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
  run->outer.say_failure(run->members.epoch(), event.round, event.error);
  say_all();
  run->outer.unsay();
}

void Core::State::on_engine(const CatchUpDone& event) {
  if (!run->outer.catching_up() || run->outer.catching_up()->committed != event.round) {
    return;
  }
  run->outer.caught_up(event.round, event.digest, run->members.epoch());
  forget_stand();
  run->trainer.outdate(event.round);  // it is loaded anew when the island is let in
  run->outer.say(run->members.epoch());
  say_all();
}

void Core::State::on_engine(const CatchUpBroke& event) {
  if (!run->outer.catching_up()) {
    return;
  }
  run->outer.stop_catching_up();
  run->outer.say_failure(run->members.epoch(), run->outer.committed(), event.error);
  say_all();
  run->outer.unsay();
}

// After the last round: its checkpoint, then the end.
void Core::State::finish_if_done() {
  if (!run->outer.at_end() || run->life.ended() || !run->life.active() || !run->merging.empty() || run->checkpoints.writing()) {
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
