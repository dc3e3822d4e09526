// Invitations: how a run comes into this island's hands.
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
  run = std::make_unique<RunInHand>(std::move(terms), message, settings, starts, out, *this);
  effect(OpenRun{run->terms.id, run->terms.spec});
  run->members.announce();
  switch (message.from) {
    case StartFrom::scratch:
      run->life.enter();
      run->rule->start_trainer();
      break;
    case StartFrom::checkpoint:
      run->rule->restore(message);
      break;
    case StartFrom::memory:
      run->rule->join();
      run->outer.miss(run->members.epoch(), message.committed, Error{Code::unavailable, "this island has the run's state no more"});
      say_all();
      break;
    case StartFrom::peers:
      run->rule->join();
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
  run->rule->be_invited_again();
  switch (message.from) {
    case StartFrom::scratch:
      if (run->rule->starts_over()) {
        const RunTerms terms = run->terms;
        close_run("the run starts over");
        open_run(message, terms);
      } else {
        run->rule->begin_from_seed(message, newer);
      }
      break;
    case StartFrom::memory:
      run->rule->go_on_from_memory(message);
      break;
    case StartFrom::checkpoint:
      run->rule->go_on_from_checkpoint(message, newer);
      break;
    case StartFrom::peers:
      run->rule->copy_from_peers(message, newer);
      break;
  }
  run->rule->own_up();
  run->rule->end_pause();
}

}  // namespace atl::agent
