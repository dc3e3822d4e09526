// Leaving: the agent goes, or the run is over here.
#include <algorithm>

#include "agent/core/core_state.hpp"
#include "strategies/specification/model_kind.hpp"

namespace atl::agent {
namespace {

constexpr Duration kAskAfterARun = std::chrono::minutes(1);

}  // namespace

void Core::State::begin_leaving(const std::string& why) {
  if (departure.ask(why, now + settings.leave_limit)) {
    if (!session.welcomed()) {
      miss_coordinator();
    }
    if (run) {
      run->rule->cut_short();
    }
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

void Core::State::finish_leaving() {
  if (run && departure.released() && !run->rule->settling()) {
    if (departure.unheard() && run->rule->keep_state()) {
      return;
    }
    close_run(departure.why());
    exit(std::nullopt);
  }
}

void Core::State::exit(std::optional<Error> error) {
  if (!departure.gone()) {
    const std::optional<TimePoint> until = departure.limit();
    departure.go();
    effect(Exit{std::move(error), until});
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
  if (departure.asked() && run->rule->settling()) {
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
  closed.push_back(std::move(run));
  next_holds = std::min(next_holds, now + kAskAfterARun);  // it may be over
}

}  // namespace atl::agent
