// Leaving: the agent goes, or the run is over here.
#include <algorithm>

#include "agent/core/core_state.hpp"
#include "strategies/specification/run_rules.hpp"

namespace atl::agent {
namespace {

constexpr Duration kAskAfterARun = std::chrono::minutes(1);

}  // namespace

void Core::State::begin_leaving(const std::string& why) {
  if (departure.ask(why, now + settings.leave_limit)) {
    if (!session.welcomed()) {
      miss_coordinator();
    }
    cut_short();
  }
  say_leave();
  if (!run && !tasks) {
    exit(std::nullopt);
  }
}

// An agent that leaves does not wait for a coordinator that is away for as long as for one that is at work.
void Core::State::miss_coordinator() { departure.expect_nobody(now + settings.hello_again * 5); }

// A contribution comes where the trainer was cut short for it, or where one is being formed and not said yet.
void Core::State::say_leave() {
  const bool comes = run && run->life.active() && (departure.cut_short() || run->rounds.forming());
  send(Leave{departure.why(), comes});
}

// The island leaves: the steps that the trainer has done since the last round are its contribution to the next. Where steps are in a round
// in hand already, that round is the last.
void Core::State::cut_short() {
  const bool can = run && run->life.active() && run->trainer.can_finish() && !run->terms.has_own_outer_state() && !run->terms.lockstep();
  if (!can) {
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

// Something of the last round is not on the disk yet.
bool Core::State::settling() const { return run->rounds.applying() || run->rounds.merging() || run->checkpoints.writing(); }

// The coordinator does not let go, being away perhaps: the state in memory may be the only copy of the newest rounds.
// True if something is on its way to the disk.
bool Core::State::keep_state() {
  if (!run || !run->outer.held() || run->outer.committed() == Round(0)) {
    return false;
  }
  const bool whole = !run->rounds.applying() && !(run->terms.lockstep() && run->rounds.merging());
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

void Core::State::finish_leaving() {
  if (run && departure.released() && !settling()) {
    if (departure.unheard() && keep_state()) {
      return;
    }
    close_run(departure.why());
    exit(std::nullopt);
  }
}

void Core::State::exit(std::optional<Error> error) {
  if (!departure.gone()) {
    departure.go();
    effect(Exit{std::move(error)});
  }
}

void Core::State::on_release(const Release& message) {
  const auto is_late = [&](Epoch told) { return message.epoch != Epoch(0) && message.epoch < told; };
  if (tasks && tasks->run() == message.run) {
    if (is_late(tasks->epoch())) {
      return;
    }
    close_tasks(message.why);
    if (departure.asked()) {
      exit(std::nullopt);
    }
    return;
  }
  if (!run || run->terms.id != message.run || is_late(run->members.epoch())) {
    return;
  }
  if (departure.asked() && settling()) {
    departure.release();
    return;
  }
  close_run(message.why, end_of_run(message));
  if (departure.asked()) {
    exit(std::nullopt);
  }
}

// A trainer of one's own ends with the run's parameters in its model, wherever its merges have left it: what stands behind its loop writes
// and evaluates them. Elsewhere the trainer is not asked again.
RunEnd Core::State::end_of_run(const Release& message) {
  const bool whole = run->outer.held() && (run->life.ended() || run->life.stands_after() == run->outer.committed());
  if (!message.completed || message.place == 0 || !whole || !run->trainer.up() || !has_own_trainer(run->terms.spec)) {
    return RunEnd::none;
  }
  const Step step = std::max(run->trainer.step_of(run->outer.committed()), run->trainer.step());
  run->trainer.load(run->outer.committed(), step, run->trainer.position());
  return message.place == 1 ? RunEnd::completed_first : RunEnd::completed;
}

void Core::State::close_run(const std::string& why, RunEnd end) {
  if (!run) {
    return;
  }
  if (in_group()) {
    tasks->add_group_work(report());  // it counts in the run that it was done for
  }
  effect(StopTrainer{run->terms.id, why, end});
  effect(CloseRun{run->terms.id});
  past.add(run->terms.id, run->members.epoch());
  departure.close_run();
  run.reset();
  next_holds = std::min(next_holds, now + kAskAfterARun);  // it may be over
}

// This island cannot take part; it says so until it is released.
void Core::State::give_up(Error error) {
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
