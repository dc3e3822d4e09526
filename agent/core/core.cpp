#include "agent/core/core.hpp"

#include <algorithm>
#include <limits>

#include "agent/core/core_state.hpp"

namespace atl::agent {
namespace {

constexpr std::size_t kHelloRuns = 32;
constexpr Duration kLongestMeasure = std::chrono::seconds(30);  // of one path
constexpr Duration kLastCheckpoint = std::chrono::minutes(2);   // of an island that leaves while the coordinator is away

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
  if (run) {
    run->rule->end_pause();
    run->rule->drive();
    run->rule->drive_trainer();
  }
  if (run) {
    run->trainer.tell_tokens();
  }
  if (tasks) {
    tasks->drive(now, stored, starts);
  }
  closed.clear();
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
  next = state.session.welcomed() ? std::min(next, state.next_holds) : next;
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
  const std::unique_ptr<RunInHand>& run = state_->run;
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

bool Core::belongs() const { return state_->run || state_->tasks; }

void Core::State::dispatch(const Event& event) {
  std::visit(
      [&](const auto& e) {
        constexpr Addressee kTo = std::decay_t<decltype(e)>::kTo;
        if constexpr (kTo == Addressee::core) {
          on_core(e);
        } else if constexpr (kTo == Addressee::tasks) {
          if (tasks && tasks->run() == e.run) {
            on_task(e);
          }
        } else if constexpr (kTo == Addressee::trainer) {
          if (run && run->terms.id == e.run && run->trainer.incarnation() == e.incarnation) {
            run->rule->on_trainer(e);
          }
        } else if (run && run->terms.id == e.run) {
          run->rule->on_engine(e);
        } else {
          note_stored(e);
        }
      },
      event);
}

// Messages for the run in hand, and for no older membership of it, reach the functions of the run; what only islands say reaches nobody.
struct Core::State::Router {
  State& state;

  void operator()(const Welcome& message) { state.on_welcome(message); }
  void operator()(const Refused& message) { state.on_refused(message); }
  void operator()(const Invite& message) { state.on_invite(message); }
  void operator()(const Serve& message) { state.on_serve(message); }
  void operator()(const Assignment& message) { state.on_assignment(message); }
  void operator()(const Release& message) { state.on_release(message); }
  void operator()(const Over& message) { state.on_over(message); }
  void operator()(const Drain& message) {
    if (!state.departure.asked()) {
      state.effect(Notice{"leaves: " + message.why + "; the round in hand is finished first", "info"});
    }
    state.begin_leaving(message.why);
  }
  void operator()(const Neighbours& message) { state.on_neighbours(message); }
  void operator()(const NewEpoch& message) { of_epoch(message, &Rule::on_new_epoch); }
  void operator()(const Exchange& message) { of_epoch(message, &Rule::on_exchange); }
  void operator()(const Commit& message) { of_epoch(message, &Rule::on_commit); }
  void operator()(const Abort& message) { of_epoch(message, &Rule::on_abort); }
  void operator()(const Cut& message) { of_epoch(message, &Rule::on_cut); }
  void operator()(const CatchUp& message) { of_epoch(message, &Rule::on_catch_up); }
  void operator()(const Offer& message) { of_run(message, &Rule::on_offer); }
  void operator()(const PairQuery& message) { of_run(message, &Rule::on_pair_query); }
  void operator()(const PairAnswer& message) { of_run(message, &Rule::on_pair_answer); }
  template <typename M>
  void operator()(const M&) {}

  template <typename M>
  void of_run(const M& message, void (Rule::*heard)(const M&)) {
    if (state.run && state.run->terms.id == message.run && !state.run->life.ended()) {
      (*state.run->rule.*heard)(message);
    }
  }
  template <typename M>
  void of_epoch(const M& message, void (Rule::*heard)(const M&)) {
    if (state.run && message.epoch >= state.run->members.epoch()) {
      of_run(message, heard);
    }
  }
};

void Core::State::on_message(const Message& message) { std::visit(Router{*this}, message); }

void Core::State::on_welcome(const Welcome& message) {
  if (!session.heeds(message.generation)) {
    if (session.first_oddity()) {
      effect(Notice{"the coordinator that answers is " + message.generation.text() + " of its store, and this island has met " +
                    session.identity().generation.text() + ": it is told so and stops, and this island waits for the newer one"});
    }
    session.lose(now);
    return;
  }
  if (session.note(message.generation)) {
    effect(RememberGeneration{message.generation});
  }
  if (session.welcome(message)) {
    departure.expect_answer();
    beat();
    say_all();
    say_holds();
    for (const auto& [from, report] : tried_paths) {
      send(report);
    }
  }
}

void Core::State::on_refused(const Refused& message) {
  session.reset();
  if (departure.released()) {
    return;
  }
  if (worth_retrying(message.error.code)) {
    say_hello();
    return;
  }
  if (message.error.code == Code::not_found && session.identity().generation.known()) {
    // Its coordinator led this island before and does not know it now: its store may be an older copy, which somebody may put right.
    if (session.first_oddity()) {
      effect(
          Notice{"the coordinator knows this island no more: its store may be older than this island's place in it, or the key in "
                 "keys/island is not the one with which this island was enrolled. It is asked again every minute; " +
                 message.error.why});
    }
    session.postpone_hello(now + std::chrono::minutes(1));
    return;
  }
  close_run("the coordinator refused this island: " + message.error.why);
  close_tasks("the coordinator refused this island: " + message.error.why);
  exit(message.error.code == Code::not_found ? Error{Code::unauthorized, message.error.why} : message.error);
}

void Core::State::on_core(const LinkUp& event) {
  if (!event.bulk_address.empty()) {
    session.move_to(event.bulk_address);
  }
  session.reset();
  say_hello();
}

// A hello says it, as at every new connection.
void Core::State::on_core(const SelfChanged& event) {
  if (event.uplink_bits_per_second) {
    session.set_uplink(*event.uplink_bits_per_second);
  }
  if (event.kernels) {
    session.set_kernels(*event.kernels);
  }
  if (session.welcomed()) {
    session.reset();
    say_hello();
  }
}

void Core::State::on_core(const LinkDown&) {
  session.lose(now);
  miss_coordinator();
}

// Every coordinator that is new hears what is broken, and what is whole among neighbours.
void Core::State::on_core(const PathTried& event) {
  PathReport report{event.from, event.whole, event.why};
  if (session.welcomed()) {
    send(report);
  }
  if (event.whole && !neighbours.contains(event.from)) {
    tried_paths.erase(event.from);
  } else {
    tried_paths.insert_or_assign(event.from, std::move(report));
  }
}

// Not kept for a coordinator that is away: the next finding says all that this one did.
void Core::State::on_core(const PathWatched& event) {
  if (session.welcomed()) {
    PathReport report{event.from, event.available.steady > Duration(), "", 0, 0, 0, event.available};
    send(report);
  }
}

// Said once: what a coordinator that is away does not hear, its operator asks for again.
void Core::State::on_core(const PathMeasured& event) {
  if (session.welcomed()) {
    send(PathReport{event.from, event.round_trip > Duration::zero(), "", event.measurement,
                    static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(event.round_trip).count()),
                    static_cast<std::uint64_t>(event.bytes_per_second)});
  }
}

void Core::State::on_neighbours(const Neighbours& message) {
  neighbours.clear();
  for (const Member& member : message.islands) {
    neighbours.insert(member.island);
  }
  std::erase_if(tried_paths, [&](const auto& path) { return path.second.whole && !neighbours.contains(path.first); });
  effect(
      TryPaths{message.islands, message.measurement, std::min<Duration>(std::chrono::milliseconds(message.measure_ms), kLongestMeasure)});
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
    if (!departure.released() && run && run->rule->keep_state()) {
      departure.release_itself(now + kLastCheckpoint);
      return;
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
  if (session.welcomed() && now >= next_holds) {
    say_holds();
  }
}

void Core::State::tell(std::string level, std::string kind, std::string text) {
  out.tell(run ? run->terms.id : tasks ? tasks->run() : RunId{}, std::move(level), std::move(kind), std::move(text));
}

void Core::State::say_hello() {
  std::vector<HeldRun> held;
  if (run) {
    held.push_back(HeldRun{run->terms.id, run->members.epoch(), run->outer.held(), run->outer.committed(), run->outer.digest(),
                           stored.held(run->terms.id), run->members.part(), run->outer.counted(), run->word.generation, run->word.epoch});
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
  if (run) {
    run->rule->say_of_run();
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
  for (const auto& [number, round] : run->rounds.all()) {
    if (round.is(RoundInHand::Phase::exchanging)) {
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
  value.awaits_trainer = !run->trainer.up() && !run->outer.at_end() && !run->life.ended() && !run->life.standing();
  value.bytes_sent = run->rounds.bytes_sent();
  value.bytes_received = run->rounds.bytes_received();
  return value;
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
