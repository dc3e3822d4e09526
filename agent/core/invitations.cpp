// Invitations and epochs: how this island comes into a run, and what its place in it is.
#include <algorithm>

#include "agent/core/core_state.hpp"

namespace atl::agent {

void Core::State::on_invite(const Invite& message) {
  if (run && run->terms.id == message.run) {
    on_invite_again(message);
    return;
  }
  if (past.was_over(message.run, message.epoch)) {
    return;
  }
  if (departure.asked()) {
    send(Leave{departure.why()});
    return;
  }
  close_run("the coordinator assigned another run");
  Result<RunSpec> spec = run_spec_from_json(message.spec);
  if (tasks && !(spec && spec->work.run == tasks->run().text)) {
    close_tasks("the coordinator assigned another run");
  }
  Result<Composition> composition = spec ? compose(spec->strategy) : Result<Composition>(spec.error());
  if (!composition) {
    send(RunEnded{message.run, Round(0), Digest{}, with_context(composition.error(), "the run's settings")});
    return;
  }
  open_run(message, RunTerms(message.run, std::move(*spec), *composition));
}

void Core::State::open_run(const Invite& message, RunTerms terms) {
  run.emplace(std::move(terms), message, settings, starts, out);
  effect(OpenRun{run->terms.id, run->terms.spec});
  run->members.announce();
  switch (message.from) {
    case StartFrom::scratch:
      run->life.enter();
      start_trainer();
      break;
    case StartFrom::checkpoint:
      restore(message);
      break;
    case StartFrom::memory:
      join();
      run->outer.miss(run->members.epoch(), message.committed, Error{Code::unavailable, "this island has the run's state no more"});
      say_all();
      break;
    case StartFrom::peers:
      join();
      break;
  }
  beat();
}

// The same run again: a repeated order, or a new place in it.
void Core::State::on_invite_again(const Invite& message) {
  if (message.epoch < run->members.epoch() || run->life.ended()) {
    return;
  }
  const bool newer = message.epoch > run->members.epoch();
  run->outer.enter(message.entry);
  if (newer) {
    // A pause that it stands for is of an earlier epoch. Whether the run is being paused in this one is said with the epoch.
    run->life.heed(std::nullopt);
    run->life.note_unpaused(message.epoch);
  }
  if (run->life.standing() && !run->terms.has_own_outer_state()) {
    go_on_after_pause();  // nobody is assigned while a run is being paused: it was paused meanwhile, and is resumed
  }
  switch (message.from) {
    case StartFrom::scratch:
      invite_from_seed(message, newer);
      break;
    case StartFrom::memory:
      invite_with_memory(message);
      break;
    case StartFrom::checkpoint:
      invite_with_checkpoint(message, newer);
      break;
    case StartFrom::peers:
      if (!run->life.active() || newer) {
        use_epoch(message.epoch, message.members);
        take_part(message);
        join();
      }
      break;
  }
  own_up();
  end_pause();
}

void Core::State::invite_from_seed(const Invite& message, bool newer) {
  const bool begun = run->outer.from() != StartFrom::scratch;
  if (run->terms.gossips() ? !run->outer.held() && begun : !run->terms.alone() && (run->outer.held() || begun)) {
    // Every copy of the run's state is gone: it starts over, and what is here is of rounds that were given up, or of none.
    const RunTerms terms = run->terms;
    close_run("the run starts over");
    open_run(message, terms);
    return;
  }
  use_epoch(message.epoch, message.members);
  if (!run->outer.held() && (newer || !run->life.active())) {
    run->outer.begin_anew();
    run->life.enter();
    take_part(message);
    say_all();
  }
}

void Core::State::invite_with_memory(const Invite& message) {
  use_epoch(message.epoch, message.members);
  const CommittedState& outer = run->outer;
  if (run->terms.gossips() && outer.catching_up()) {
    return;  // an older order: it takes over another's state
  }
  if (outer.held() && (run->terms.has_own_outer_state() || outer.committed() == message.committed)) {
    take_part(message);
  }
  if (run->terms.gossips() && outer.held() && outer.committed() > std::max(run->terms.last_trained(), message.committed)) {
    lose_state("what this island has is of a merge that was given up");
  } else if (outer.suits(message.committed, message.digest)) {
    if (!outer.restoring()) {  // else what is here is being replaced, and the coordinator hears of what came of it
      become_active();
    }
  } else if (!run->terms.has_own_outer_state()) {
    // The coordinator counts on a state that is not here: it hears of it until it assigns another one.
    run->outer.miss(run->members.epoch(), outer.committed(),
                    Error{Code::conflict, "this island's state is not that of round " + std::to_string(message.committed.value)});
    say_all();
  }
}

void Core::State::invite_with_checkpoint(const Invite& message, bool newer) {
  const bool anew = !run->life.active() || newer;
  if (anew) {
    use_epoch(message.epoch, message.members);
  }
  if (run->terms.has_own_outer_state() && run->life.active()) {
    return;  // repeated: it has gone on from there
  }
  const std::optional<CaughtUp>& said = run->outer.said();
  const bool there = said && said->round == message.committed && !said->error;
  if (anew && !run->outer.restoring() && !there) {
    take_part(message);
    restore(message);
  }
}

// In pairs: the coordinator counts on this island, which has not heard that it is let in, or has not the state for it.
void Core::State::own_up() {
  const bool member = run->members.includes(island());
  if (!run->terms.gossips() || !member || run->outer.coming()) {
    return;
  }
  if (run->outer.held() && !run->life.active()) {
    become_active();
  } else if (!run->outer.held() && !run->outer.said() && !(run->life.active() && run->outer.from() == StartFrom::scratch)) {
    lose_state("this island has the run's state no more");
  }
}

// Its part of the data, and how far that is committed. On another part than before the trainer starts anew; what it has formed is of the
// old one.
void Core::State::take_part(const Invite& message) {
  const bool same = !run->members.take_part(message.part);
  deal(message.share);
  run->outer.assign(message, same);
  if (same) {
    // A contribution that was counted without this island's hearing of it would be refused again and again.
    if (run->rounds.overlap(run->members.part(), run->outer.counted())) {
      drop_rounds();
    }
    return;
  }
  drop_rounds();
  if (run->trainer.runs()) {
    start_trainer();
    beat();
  }
}

// Who is in the run trains on all of the data: what of them is this island's changes as others come and go.
void Core::State::deal(const DataShare& share) {
  if (share.stretches.empty()) {
    return;  // nothing is dealt until it is let in
  }
  run->members.deal(share);
  run->trainer.deal(run->members.share());
}

// Not active any more, or not yet: it needs the state that the others have. What it has in memory stays.
void Core::State::join() {
  run->outer.join(run->life.active());
  run->life.put_out();
  if (!run->trainer.runs() && !run->trainer.restart_at()) {
    start_trainer();
  }
}

void Core::State::restore(const Invite& message) {
  run->life.put_out();
  drop_rounds();
  run->checkpoints.end_offer();  // as where it copies them from its peers
  run->outer.restore(message.committed);
  const std::string& copies = run->terms.spec.checkpoint.copy;
  if (!run->terms.has_own_outer_state() && !copies.empty() && stored.find(run->terms.id, message.committed, message.digest) == nullptr) {
    effect(FetchCopy{run->terms.id, copies, message.committed, message.digest});
    return;
  }
  effect(LoadCheckpoint{run->terms.id, message.committed, message.digest});
}

void Core::State::use_epoch(Epoch epoch, const std::vector<Member>& members) {
  if (run->members.use(epoch, members)) {
    change_groups();
  }
}

// Of which only the number was said.
void Core::State::advance_epoch(Epoch epoch) {
  if (run->members.advance(epoch)) {
    change_groups();
  }
}

void Core::State::on_new_epoch(const NewEpoch& message) {
  const bool newer = message.epoch > run->members.epoch();
  run->life.heed(message.pause_after);
  run->trainer.hear_tokens(message.tokens);
  use_epoch(message.epoch, message.members);
  if (message.share && message.epoch >= run->members.epoch()) {
    deal(*message.share);
  }
  if (run->terms.alone()) {
    heed_pause(message);
    return;  // nobody waits for anybody
  }
  if (!run->members.includes(island())) {
    be_left_out();
    return;
  }
  own_up();
  heed_pause(message);
  if (!run->life.active() && run->outer.held() && !run->outer.coming()) {
    be_let_in(message.committed);
  } else if (newer) {
    if (run->life.active()) {
      run->word = {session.identity().generation, run->members.epoch()};
    }
    say_all();
  }
}

void Core::State::be_left_out() {
  run->life.put_out();
  if (!run->terms.gossips()) {
    return;
  }
  if (!run->members.members().empty()) {
    drop_rounds();  // what it decided with others may be void: it comes back with the state of one of them
    run->outer.drop();
    run->outer.unsay();
  } else if (run->outer.held()) {
    run->outer.say(run->members.epoch());  // nobody is left: it goes on from where it is
  }
}

// Into an epoch whose members have the state of this round, if this island has that too.
void Core::State::be_let_in(Round committed) {
  const bool result_held = run->rounds.is(committed, RoundInHand::Phase::exchanged);
  if (run->terms.has_own_outer_state() || run->outer.committed() >= committed || result_held) {
    become_active();
    return;
  }
  send(run->outer.report(run->members.epoch(),
                         Error{Code::conflict, "this island has the state of round " + std::to_string(run->outer.committed().value) +
                                                   ", not of round " + std::to_string(committed.value)}));
}

void Core::State::become_active() {
  if (!run->life.active()) {
    run->life.enter();
    run->word = {session.identity().generation, run->members.epoch()};
    run->outer.unsay();
    prepare_pair();
    finish_if_done();
  }
  say_all();
}

}  // namespace atl::agent
