#include "agent/core/core.hpp"

#include <algorithm>
#include <limits>

#include "agent/core/core_state.hpp"

namespace atl::agent {
namespace {

constexpr std::size_t kHelloRuns = 32;

}  // namespace

Core::Core(Identity identity, Settings settings, std::vector<StoredRun> stored, TimePoint now)
    : state_(std::make_unique<State>(std::move(identity), settings, std::move(stored), now)) {}
Core::~Core() = default;
Core::Core(Core&&) noexcept = default;
Core& Core::operator=(Core&&) noexcept = default;

void Core::step(TimePoint now, const Event& event) {
  state_->now = std::max(now, state_->now);
  if (!state_->departure.gone()) {
    state_->dispatch(event);
    state_->drive();
  }
}

void Core::tick(TimePoint now) {
  state_->now = std::max(now, state_->now);
  if (!state_->departure.gone()) {
    state_->on_time();
    state_->drive();
  }
}

// Whatever can go on now, does. Called after everything that happens.
void Core::State::drive() {
  end_pause();
  drive_merges();
  drive_trainer();
  if (tasks) {
    tasks->drive(now, stored, starts);
  }
}

Ready Core::take_ready() { return state_->out.take(); }

std::optional<TimePoint> Core::next_deadline() const {
  const State& state = *state_;
  if (state.departure.gone()) {
    return std::nullopt;
  }
  if (state.departure.released()) {
    return state.departure.until();
  }
  TimePoint next = state.session.next_deadline();
  if (state.departure.asked()) {
    next = std::min(next, state.departure.until());
  }
  if (state.run) {
    next = std::min(next, state.run->trainer.restart_at().value_or(next));
    next = std::min(next, state.run->checkpoints.next_deadline().value_or(next));
  }
  if (state.tasks) {
    next = std::min(next, state.tasks->next_deadline().value_or(next));
  }
  return next;
}

Standing Core::standing() const {
  Standing standing;
  const std::optional<RunInHand>& run = state_->run;
  if (run) {
    const Activity activity = state_->activity();
    standing = Standing{run->terms.id,       activity.state,       activity.reason,   run->outer.committed(),
                        run->outer.digest(), run->members.epoch(), run->life.active()};
  }
  if (state_->tasks) {
    const AssignmentReport& report = state_->tasks->report();
    standing = Standing{report.run, report.state, report.task, Round(0), Digest{}, Epoch(0), true};
  }
  return standing;
}

void Core::State::dispatch(const Event& event) {
  std::visit(
      [&](const auto& e) {
        constexpr Addressee to = std::decay_t<decltype(e)>::kTo;
        if constexpr (to == Addressee::core) {
          on_core(e);
        } else if constexpr (to == Addressee::tasks) {
          if (tasks && tasks->run() == e.run) {
            on_task(e);
          }
        } else if constexpr (to == Addressee::trainer) {
          if (run && run->terms.id == e.run && run->trainer.incarnation() == e.incarnation) {
            on_trainer(e);
          }
        } else if (run && run->terms.id == e.run) {
          on_engine(e);
        }
      },
      event);
}

void Core::State::on_core(const LinkUp&) {
  session.reset();
  say_hello();
}

void Core::State::on_task(const TaskEnded& event) {
  if (const std::optional<Error> refused = tasks->on(event, now)) {
    close_tasks(refused->why);
    send(RunEnded{event.run, Round(0), Digest{}, *refused});
  }
}

void Core::State::on_time() {
  if (departure.overdue(now)) {
    if (departure.cut_short()) {
      departure.contributed();
      say_leave();
    }
    close_run(departure.why());
    close_tasks(departure.why());
    exit(std::nullopt);
    return;
  }
  if (run) {
    run->checkpoints.expire(now);
  }
  if (departure.released()) {
    return;  // it has said all
  }
  if (session.hello_due(now)) {
    say_hello();
  }
  if (session.heartbeat_due(now)) {
    beat();
  }
  if (session.resend_due(now)) {
    say_all();
  }
}

void Core::State::tell(std::string level, std::string kind, std::string text) {
  out.tell(run ? run->terms.id : tasks ? tasks->run() : RunId{}, std::move(level), std::move(kind), std::move(text));
}

void Core::State::say_hello() {
  std::vector<HeldRun> held;
  if (run) {
    held.push_back(HeldRun{run->terms.id, run->members.epoch(), run->outer.held(), run->outer.committed(), run->outer.digest(),
                           stored.held(run->terms.id), run->members.part(), run->outer.counted()});
  }
  const std::vector<HeldRun> others = stored.held_runs(run ? std::optional(run->terms.id) : std::nullopt, kHelloRuns - held.size());
  held.insert(held.end(), others.begin(), others.end());
  session.say_hello(now, std::move(held));
}

// Everything that has not been answered, so that any of it may be lost.
void Core::State::say_all() {
  session.note_resend(now);
  if (!session.welcomed() || departure.released()) {
    return;
  }
  if (departure.asked()) {
    say_leave();
  }
  if (!run) {
    return;
  }
  if (run->life.ended()) {
    run->checkpoints.repeat();
    send(*run->life.ended());
    return;
  }
  if (run->outer.said() && (!run->life.active() || run->outer.said()->error)) {
    CaughtUp said = *run->outer.said();
    said.epoch = run->members.epoch();
    send(std::move(said));
  }
  if (!run->life.active()) {
    if (!run->outer.said() && run->outer.held() && !run->terms.own_states() && !run->outer.coming()) {
      // Left out for now. It says what it has until it takes part again: the order that lets it in may be lost.
      send(run->outer.report(run->members.epoch()));
    }
    return;
  }
  if (run->life.standing() && run->checkpoints.newest() && run->checkpoints.newest()->round == run->life.stands_after()) {
    run->checkpoints.repeat();
  }
  if (!run->terms.own_states() && run->outer.initial() && !run->outer.held()) {
    atl::Ready ready;
    ready.run = run->terms.id;
    ready.epoch = run->members.epoch();
    ready.digest = *run->outer.initial();
    send(ready);
  }
  for (const auto& [number, round] : run->rounds) {
    say(round);
  }
}

void Core::State::say(const RoundInHand& round) {
  const auto present = [&](auto message) {
    message.epoch = run->members.epoch();
    send(std::move(message));
  };
  if (!run->life.active() || run->terms.commits_itself(round.ready.round) || !session.welcomed() || run->resuming) {
    return;
  }
  switch (round.phase) {
    case RoundInHand::Phase::formed: {
      atl::Ready ready = round.ready;
      ready.digest = run->outer.digest();
      present(std::move(ready));
      break;
    }
    case RoundInHand::Phase::withdrawn:
      present(round.withdrawal);
      break;
    case RoundInHand::Phase::exchanged:
      present(round.exchanged);
      break;
    case RoundInHand::Phase::failed:
      present(round.failure);
      break;
    case RoundInHand::Phase::forming:
    case RoundInHand::Phase::exchanging:
    case RoundInHand::Phase::applying:
      break;
  }
}

void Core::State::beat() {
  std::vector<IslandReport> reports;
  if (run) {
    reports.push_back(report());
  }
  if (tasks) {
    reports.push_back(tasks->island_report(in_group() ? std::optional(report()) : std::nullopt));
  }
  for (IslandReport& value : reports) {
    value.agent_memory_bytes = gauges.agent_memory_bytes;
    value.trainer_memory_bytes = gauges.trainer_memory_bytes;
  }
  session.beat(now, std::move(reports));
  if (tasks) {
    tasks->say();
  }
}

Activity Core::State::activity() const {
  ActivityInput input;
  input.failed = run->life.ended() && run->life.ended()->error;
  input.ended = run->life.ended().has_value();
  input.catching_up = run->outer.catching_up().has_value();
  input.restoring = run->outer.restoring().has_value();
  input.active = run->life.active();
  input.has_state = run->outer.held();
  input.trainer_up = run->trainer.up();
  input.trainer_crashed = run->trainer.restart_at().has_value();
  input.checkpointing = run->checkpoints.writing();
  input.link = session.welcomed();
  bool blocked = false;  // the trainer waits for a result
  for (const auto& [number, round] : run->rounds) {
    if (round.phase == RoundInHand::Phase::exchanging) {
      input.exchanging = number.value;
    } else {
      input.waiting = number.value;
    }
    blocked = blocked || (run->trainer.schedule() && run->trainer.step() >= run->trainer.step_of(number));
  }
  input.training = run->trainer.training() && !blocked && !run->outer.at_end();
  return decide_activity(input);
}

IslandReport Core::State::report() const {
  const Activity doing = activity();
  IslandReport value;
  value.run = run->terms.id;
  value.state = doing.state;
  value.reason = doing.reason;
  run->trainer.describe(value);
  value.bytes_sent = run->bytes_sent;
  value.bytes_received = run->bytes_received;
  return value;
}

void Core::State::begin_leaving(const std::string& why) {
  if (departure.ask(why, now + (session.welcomed() ? settings.leave_limit : settings.hello_again * 5))) {
    cut_short();
  }
  say_leave();
  if (!run && !tasks) {
    exit(std::nullopt);
  }
}

void Core::State::say_leave() { send(Leave{departure.why(), run && run->life.active() && departure.cut_short()}); }

// Something of the last round is not on the disk yet.
bool Core::State::settling() const {
  const bool applying = std::any_of(run->rounds.begin(), run->rounds.end(),
                                    [](const auto& round) { return round.second.phase == RoundInHand::Phase::applying; });
  return applying || !run->merging.empty() || run->checkpoints.writing();
}

void Core::State::finish_leaving() {
  if (run && departure.released() && !settling()) {
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

void Core::State::close_run(const std::string& why) {
  if (!run) {
    return;
  }
  if (in_group()) {
    tasks->add_group_work(report());  // it counts in the run that it was done for
  }
  effect(StopTrainer{run->terms.id, why});
  effect(CloseRun{run->terms.id});
  past.add(run->terms.id, run->members.epoch());
  departure.close_run();
  run.reset();
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

// ---- runs of phases

void Core::State::on_assignment(const Assignment& message) {
  if (departure.asked()) {
    say_leave();
    return;
  }
  if (tasks && tasks->run() == message.run && message.number <= tasks->number()) {
    if (message.number == tasks->number()) {
      tasks->say();
    }
    return;
  }
  if (!tasks || tasks->run() != message.run) {
    Result<RunSpec> spec = run_spec_from_json(message.spec);
    if (!spec) {
      send(RunEnded{message.run, Round(0), Digest{}, with_context(spec.error(), "the run's settings")});
      return;
    }
    if (!(run && run->terms.spec.work.run == message.run.text)) {
      close_run("the coordinator gave another run's assignment");
    }
    close_tasks("the coordinator gave another run's assignment");
    tasks.emplace(message.run, std::move(*spec), settings, out);
  }
  tasks->take(message);
}

// What lies on the disk stays, and may be served.
void Core::State::close_tasks(const std::string& why) {
  if (tasks) {
    tasks->stop(why);
    stored.keep(tasks->run(), tasks->readers());
    tasks.reset();
  }
}

// This island trains an expert with others at the moment.
bool Core::State::in_group() const { return run && tasks && run->terms.spec.work.run == tasks->run().text; }

}  // namespace atl::agent
