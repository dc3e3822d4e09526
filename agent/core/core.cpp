#include "agent/core/core.hpp"

#include <algorithm>
#include <limits>

#include "agent/core/core_state.hpp"

namespace atl::agent {
namespace {

constexpr std::size_t kUnsaidEvents = 64;
constexpr std::size_t kHelloRuns = 32;

}  // namespace

Core::Core(Identity identity, Settings settings, std::vector<StoredRun> stored, TimePoint now) : state_(std::make_unique<State>()) {
  state_->identity = std::move(identity);
  state_->settings = settings;
  state_->now = now;
  state_->next_hello = now;
  state_->next_heartbeat = now;
  state_->next_resend = now;
  for (StoredRun& run : stored) {
    state_->stored[run.run] = std::move(run);
  }
}
Core::~Core() = default;
Core::Core(Core&&) noexcept = default;
Core& Core::operator=(Core&&) noexcept = default;

void Core::step(TimePoint now, const Event& event) {
  state_->now = std::max(now, state_->now);
  if (!state_->over) {
    state_->dispatch(event);
    state_->end_pause();
    state_->drive_merges();
    state_->drive_trainer();
    state_->drive_assignment();
  }
}

void Core::tick(TimePoint now) {
  state_->now = std::max(now, state_->now);
  if (!state_->over) {
    state_->on_time();
    state_->end_pause();
    state_->drive_merges();
    state_->drive_trainer();
    state_->drive_assignment();
  }
}

Ready Core::take_ready() { return std::exchange(state_->out, Ready{}); }

std::optional<TimePoint> Core::next_deadline() const {
  const State& state = *state_;
  if (state.over) {
    return std::nullopt;
  }
  if (state.run && state.run->released) {
    return state.leave_until;
  }
  TimePoint next = state.welcomed ? std::min(state.next_heartbeat, state.next_resend) : state.next_hello;
  if (state.leaving) {
    next = std::min(next, state.leave_until);
  }
  if (state.run) {
    if (state.run->restart_at) {
      next = std::min(next, *state.run->restart_at);
    }
    if (state.run->lease) {
      next = std::min(next, *state.run->lease);
    }
  }
  if (state.assignment) {
    if (state.assignment->restart_at) {
      next = std::min(next, *state.assignment->restart_at);
    }
    for (const auto& [digest, again] : state.assignment->fetching) {
      next = std::min(next, again);
    }
  }
  return next;
}

Standing Core::standing() const {
  Standing standing;
  const std::optional<RunInHand>& run = state_->run;
  if (run) {
    const Activity activity = state_->activity();
    standing = Standing{run->id, activity.state, activity.reason, run->committed, run->digest, run->epoch, run->active};
  }
  if (state_->assignment) {
    const AssignmentReport& report = state_->assignment->report;
    standing = Standing{state_->assignment->assignment.run, report.state, report.task, Round(0), Digest{}, Epoch(0), true};
  }
  return standing;
}

void Core::State::dispatch(const Event& event) {
  std::visit(
      [&](const auto& e) {
        using E = std::decay_t<decltype(e)>;
        if constexpr (std::is_same_v<E, LinkUp>) {
          welcomed = false;
          say_hello();
        } else if constexpr (std::is_same_v<E, LinkDown>) {
          welcomed = false;
          next_hello = now + settings.hello_again;
        } else if constexpr (std::is_same_v<E, FromCoordinator>) {
          on_message(e.message);
        } else if constexpr (std::is_same_v<E, Gauges>) {
          gauges = e;
        } else if constexpr (std::is_same_v<E, LeaveAsked>) {
          begin_leaving(e.why);
        } else if constexpr (requires { on_task(e); }) {
          if (assignment && assignment->assignment.run == e.run) {
            on_task(e);
          }
        } else if constexpr (requires { e.incarnation; }) {
          if (run && run->id == e.run && run->incarnation == e.incarnation) {
            on_trainer(e);
          }
        } else {
          if (run && run->id == e.run) {
            on_engine(e);
          }
        }
      },
      event);
}

void Core::State::on_time() {
  if (leaving && now >= leave_until) {
    if (run && run->cut_short) {
      run->cut_short = false;
      say_leave();
    }
    close_run(*leaving);
    close_assignment(*leaving);
    exit(std::nullopt);
    return;
  }
  if (run && run->lease && now >= *run->lease) {
    run->lease.reset();
    effect(KeepResults{run->id, false});
  }
  if (run && run->released) {
    return;  // it has said all
  }
  if (!welcomed) {
    if (now >= next_hello) {
      say_hello();
    }
    return;
  }
  if (now >= next_heartbeat) {
    beat();
  }
  if (now >= next_resend) {
    say_all();
  }
}

void Core::State::send(Message message) { out.messages.push_back(std::move(message)); }

void Core::State::tell(std::string level, std::string kind, std::string text) {
  IslandEvent event{run ? run->id : assignment ? assignment->assignment.run : RunId{}, std::move(level), std::move(kind), std::move(text)};
  if (welcomed) {
    send(std::move(event));
    return;
  }
  unsaid.push_back(std::move(event));
  if (unsaid.size() > kUnsaidEvents) {
    unsaid.pop_front();
  }
}

void Core::State::say_hello() {
  next_hello = now + settings.hello_again;
  Hello hello;
  hello.version = identity.version;
  hello.name = identity.name;
  hello.boot = identity.boot;
  hello.bulk_address = identity.bulk_address;
  hello.platform = identity.platform;
  hello.data_sets = identity.data_sets;
  hello.codec_version = identity.codec_version;
  hello.uplink_bits_per_second = identity.uplink_bits_per_second;
  hello.kernels = identity.kernels;
  const auto checkpoints_of = [](const StoredRun& stored_run) {
    std::vector<HeldCheckpoint> held;
    for (const StoredCheckpoint& checkpoint : stored_run.checkpoints) {
      held.push_back(HeldCheckpoint{checkpoint.round, checkpoint.digest});
    }
    return held;
  };
  if (run) {
    HeldRun held{run->id, run->epoch, run->has_state, run->committed, run->digest, {}, run->part, run->counted};
    if (const auto found = stored.find(run->id); found != stored.end()) {
      held.checkpoints = checkpoints_of(found->second);
    }
    hello.runs.push_back(std::move(held));
  }
  for (const auto& [id, stored_run] : stored) {
    if ((run && run->id == id) || stored_run.checkpoints.empty() || hello.runs.size() >= kHelloRuns) {
      continue;
    }
    const StoredCheckpoint& newest = stored_run.checkpoints.back();
    hello.runs.push_back(HeldRun{id, newest.epoch, false, Round(0), Digest{}, checkpoints_of(stored_run), newest.part, newest.position});
  }
  send(std::move(hello));
}

// Everything that has not been answered, so that any of it may be lost.
void Core::State::say_all() {
  next_resend = now + settings.resend;
  if (!welcomed || (run && run->released)) {
    return;
  }
  if (leaving) {
    say_leave();
  }
  if (!run) {
    return;
  }
  if (run->ended) {
    if (run->checkpointed) {
      send(*run->checkpointed);
    }
    send(*run->ended);
    return;
  }
  if (run->caught_up && (!run->active || run->caught_up->error)) {
    run->caught_up->epoch = run->epoch;
    send(*run->caught_up);
  }
  if (!run->active) {
    if (!run->caught_up && run->has_state && !run->private_state() && !run->catching_up && !run->restoring) {
      // Left out for now. It says what it has until it takes part again: the order that lets it in may be lost.
      send(CaughtUp{run->id, run->epoch, run->committed, run->digest, std::nullopt});
    }
    return;
  }
  if (run->pausing && run->checkpointed && run->checkpointed->round == *run->pausing) {
    send(*run->checkpointed);
  }
  if (!run->private_state() && run->initial && !run->has_state) {
    atl::Ready ready;
    ready.run = run->id;
    ready.epoch = run->epoch;
    ready.digest = *run->initial;
    send(ready);
  }
  for (const auto& [number, round] : run->rounds) {
    say(round);
  }
}

void Core::State::say(const RoundInHand& round) {
  const auto present = [&](auto message) {
    message.epoch = run->epoch;
    send(std::move(message));
  };
  if (!run->active || run->own(round.ready.round) || !welcomed || run->resuming) {
    return;
  }
  switch (round.phase) {
    case RoundInHand::Phase::formed: {
      atl::Ready ready = round.ready;
      ready.digest = run->digest;
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
  next_heartbeat = now + heartbeat;
  Heartbeat message;
  message.boot = identity.boot;
  if (run) {
    message.reports.push_back(report());
  }
  if (assignment) {
    message.reports.push_back(assignment_report());
  }
  send(std::move(message));
  if (assignment) {
    say_assignment();
  }
}

Activity Core::State::activity() const {
  ActivityInput input;
  input.failed = run->ended && run->ended->error;
  input.ended = run->ended.has_value();
  input.catching_up = run->catching_up.has_value();
  input.restoring = run->restoring.has_value();
  input.active = run->active;
  input.has_state = run->has_state;
  input.trainer_up = run->trainer != TrainerPhase::none && run->trainer != TrainerPhase::starting;
  input.trainer_crashed = run->restart_at.has_value();
  input.checkpointing = !run->writing.empty();
  input.link = welcomed;
  bool blocked = false;  // the trainer waits for a result
  for (const auto& [number, round] : run->rounds) {
    if (round.phase == RoundInHand::Phase::exchanging) {
      input.exchanging = number.value;
    } else {
      input.waiting = number.value;
    }
    blocked = blocked || (run->schedule && run->step >= step_of(number));
  }
  input.training = run->trainer == TrainerPhase::training && !blocked && !run->at_end();
  return decide_activity(input);
}

IslandReport Core::State::report() const {
  const Activity doing = activity();
  IslandReport value;
  value.run = run->id;
  value.state = doing.state;
  value.reason = doing.reason;
  value.step = run->step;
  value.tokens = run->tokens_before + run->progress.tokens;
  value.tokens_per_second = run->progress.tokens_per_second;
  value.compute_seconds = run->compute_before + run->progress.compute_seconds;
  value.wait_seconds = run->wait_before + run->progress.wait_seconds;
  value.training_loss = run->progress.training_loss;
  value.bytes_sent = run->bytes_sent;
  value.bytes_received = run->bytes_received;
  value.agent_memory_bytes = gauges.agent_memory_bytes;
  value.trainer_memory_bytes = gauges.trainer_memory_bytes;
  return value;
}

void Core::State::begin_leaving(const std::string& why) {
  if (!leaving) {
    leaving = why;
    leave_until = now + (welcomed ? settings.leave_limit : settings.hello_again * 5);
    cut_short();
  }
  say_leave();
  if (!run && !assignment) {
    exit(std::nullopt);
  }
}

void Core::State::say_leave() { send(Leave{*leaving, run && run->active && run->cut_short}); }

// Something of the last round is not on the disk yet.
bool Core::State::settling() const {
  const bool applying = std::any_of(run->rounds.begin(), run->rounds.end(),
                                    [](const auto& round) { return round.second.phase == RoundInHand::Phase::applying; });
  return applying || !run->merging.empty() || !run->writing.empty();
}

void Core::State::finish_leaving() {
  if (run && run->released && !settling()) {
    close_run(*leaving);
    exit(std::nullopt);
  }
}

void Core::State::exit(std::optional<Error> error) {
  if (!over) {
    over = true;
    effect(Exit{std::move(error)});
  }
}

void Core::State::close_run(const std::string& why) {
  if (!run) {
    return;
  }
  note_group_work();
  constexpr std::size_t kReleased = 64;
  effect(StopTrainer{run->id, why});
  effect(CloseRun{run->id});
  if (released.insert_or_assign(run->id, run->epoch).second) {
    released_order.push_back(run->id);
  }
  if (released_order.size() > kReleased) {
    released.erase(released_order.front());
    released_order.pop_front();
  }
  run.reset();
}

// This island cannot take part; it says so until it is released.
void Core::State::give_up(Error error) {
  if (run->ended) {
    return;
  }
  tell("error", "island_gives_up", error.why);
  run->ended = RunEnded{run->id, run->committed, run->digest, std::move(error)};
  run->restart_at.reset();
  if (run->trainer != TrainerPhase::none) {
    effect(StopTrainer{run->id, "the island gives up the run"});
    run->trainer = TrainerPhase::none;
  }
  drop_rounds();
  say_all();
}

}  // namespace atl::agent
