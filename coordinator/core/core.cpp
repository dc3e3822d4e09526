#include "coordinator/core/core.hpp"

#include <algorithm>

#include "coordinator/core/core_state.hpp"
#include "strategies/specification/run_rules.hpp"
#include "transport/base/planted.hpp"

namespace atl::coordinator {
namespace {

// Which round is of which fragment, where that follows from the specification: the number of its rounds shows whether there are as many
// fragments as it says. (The embeddings may be one more.)
std::optional<Schedule> schedule_in(const RunSpec& spec) {
  const Result<Composition> composition = compose(spec.strategy);
  if (!composition) {
    return std::nullopt;
  }
  const Result<Schedule> schedule = schedule_of(*composition, spec.training.steps, std::max<std::uint32_t>(1, spec.strategy.fragments));
  return schedule && schedule->rounds() + spec.merge_rounds == spec.rounds ? std::optional(*schedule) : std::nullopt;
}

}  // namespace

bool Run::merging() const { return lineage.committed() >= last_trained() && !at_end(); }

void Run::adopt_spec(RunSpec value) {
  spec = std::move(value);
  data.belong_to(about.id, classes_of_data(spec), sequences_of_a_round(spec));
  guards.set(spec.guards.norm_factor, spec.guards.quarantine_after);
  if (has_tasks()) {
    work = Tasks{};
  } else if (spec.strategy.group == Group::all) {
    schedule = schedule_in(spec);
  }
}

RunRecord Run::to_record() const {
  RunRecord value;
  value.id = about.id;
  value.name = about.name;
  value.file = about.file;
  value.spec = about.spec;
  value.epoch = epoch;
  life.write_to(value);
  lineage.write_to(value);
  value.copied = copies.newest();
  if (value.state == RunState::cancelled && ATOLL_PLANTED(cancel_unwritten)) {
    value.state = RunState::running;
  }
  return value;
}

void Run::give_up_rounds() {
  if (!has_tasks()) {
    rounds().start_anew();
  }
}

void Run::give_up_work(Outbox& out) {
  give_up_rounds();
  if (has_tasks()) {
    tasks().give_up(out);
  }
}

void Run::start_work_anew() {
  give_up_rounds();
  if (has_tasks()) {
    tasks().forget_assignments();
  }
}

std::vector<RunId> Run::groups(bool unfinished) const {
  std::vector<RunId> groups;
  if (has_tasks()) {
    for (const auto& [name, task] : tasks().all()) {
      if (!task.record().group.empty() && !(unfinished && task.done())) {
        groups.push_back(task.record().group);
      }
    }
  }
  return groups;
}

Round Run::furthest() const {
  Round newest;
  for (const IslandId& id : members) {
    const Membership& membership = memberships.at(id);
    newest = std::max({newest, membership.progress.merged, membership.progress.last.round});
  }
  return newest;
}

Round Run::present_round() const {
  return !lineage.initialised() ? Round(0) : has_own_outer_state() ? std::max(furthest(), lineage.committed()).next() : lineage.next();
}

bool Run::is_member(const IslandId& island) const { return std::find(members.begin(), members.end(), island) != members.end(); }

Core::Core(Settings settings, Recovered recovered, TimePoint now) : state_(std::make_unique<State>(std::move(settings), now)) {
  state_->recover(std::move(recovered));
  state_->advance_all();
}
Core::~Core() = default;
Core::Core(Core&&) noexcept = default;
Core& Core::operator=(Core&&) noexcept = default;

void Core::see(const IslandId& island, const std::string& host) { state_->islands.see(island, host); }

void Core::step(TimePoint now, const IslandId& island, std::uint64_t boot, const Message& message) {
  state_->out.advance_to(now);
  constexpr Duration kSoon = std::chrono::milliseconds(100);  // one look for all answers that decide nothing
  const Stir stir = state_->stir_of(island, message);
  const std::size_t said = state_->out.said();
  state_->hear(island, boot, message);
  if (stir == Stir::all || (stir != Stir::numbers && state_->out.said() != said)) {
    state_->advance_all();
  } else if (stir == Stir::little) {
    state_->wake_at(state_->now() + kSoon);
  }
}

void Core::was_away(Duration away) { state_->islands.excuse(away); }

void Core::tick(TimePoint now) {
  state_->out.advance_to(now);
  state_->advance_all();
}

std::optional<TimePoint> Core::next_deadline() const { return state_->out.wake(); }

Ready Core::take_ready() { return state_->out.take(); }

const std::optional<Superseded>& Core::superseded() const { return state_->superseded; }

// A run has rounds or tasks; what is said of the others is no business of its islands.
template <typename M>
void Core::State::route(const IslandId& island, const M& message, void (State::*handle)(Run&, Membership&, const M&)) {
  const auto found = runs.find(message.run);
  if (found == runs.end()) {
    return;
  }
  Run& run = found->second;
  const auto membership = run.memberships.find(island);
  if constexpr (std::is_same_v<M, Withdrawn>) {
    if (membership != run.memberships.end() && !run.has_tasks() && !run.has_own_outer_state() && message.round.value <= run.spec.rounds) {
      record(DroppedRecord{message.run, run.lineage.number(), island, message.fragment, message.round, message.data, message.fate,
                           message.tokens, message.overwritten});
    }
    if (message.fate == Fate::dropped) {
      return;  // an account of what its island has no more
    }
  }
  if (membership == run.memberships.end() || run.life.idle() || membership->second.record.state == MembershipState::refused) {
    if constexpr (std::is_same_v<M, Checkpointed>) {
      // Of rounds in which it took part. Nobody else may have one as new.
      if (!message.error && !run.has_own_outer_state() && !run.has_tasks() && run.lineage.confirms(message.round, message.digest)) {
        islands.keeps(island, run.about.id, HeldCheckpoint{message.round, message.digest});
      }
    }
    release(island, run);
  } else if (std::is_same_v<M, RunEnded> || run.has_tasks() == std::is_same_v<M, AssignmentReport>) {
    (this->*handle)(run, membership->second, message);
  }
}

void Core::State::dispatch(const IslandId& island, const Message& message) {
  std::visit(
      [&](const auto& m) {
        using M = std::decay_t<decltype(m)>;
        if constexpr (std::is_same_v<M, Heartbeat>) {
          on_heartbeat(island, m);
        } else if constexpr (std::is_same_v<M, Leave>) {
          islands.leave(island, m, out);
        } else if constexpr (std::is_same_v<M, atl::Ready>) {
          route(island, m, &State::on_ready);
        } else if constexpr (std::is_same_v<M, Withdrawn>) {
          route(island, m, &State::on_withdrawn);
        } else if constexpr (std::is_same_v<M, Exchanged>) {
          route(island, m, &State::on_exchanged);
        } else if constexpr (std::is_same_v<M, ExchangeFailed>) {
          route(island, m, &State::on_exchange_failed);
        } else if constexpr (std::is_same_v<M, Merged>) {
          route(island, m, &State::on_merged);
        } else if constexpr (std::is_same_v<M, PairQuery>) {
          route(island, m, &State::on_pair_query);
        } else if constexpr (std::is_same_v<M, PairAnswer>) {
          route(island, m, &State::on_pair_answer);
        } else if constexpr (std::is_same_v<M, Checkpointed>) {
          route(island, m, &State::on_checkpointed);
        } else if constexpr (std::is_same_v<M, CaughtUp>) {
          route(island, m, &State::on_caught_up);
        } else if constexpr (std::is_same_v<M, RunEnded>) {
          route(island, m, &State::on_run_ended);
        } else if constexpr (std::is_same_v<M, AssignmentReport>) {
          route(island, m, &State::on_assignment_report);
        } else if constexpr (std::is_same_v<M, IslandEvent>) {
          on_event(island, m);
        } else if constexpr (std::is_same_v<M, Copied>) {
          on_copied(island, m);
        } else if constexpr (std::is_same_v<M, Holds>) {
          on_holds(island, m);
        } else if constexpr (std::is_same_v<M, PathReport>) {
          on_path_report(island, m);
        }
        // Anything else is not for an island to say.
      },
      message);
}

void Core::State::on_event(const IslandId& island, const IslandEvent& message) {
  if (!message.run.empty() && !runs.contains(message.run)) {
    return;
  }
  if (const std::optional<std::string> text = islands.pass_event(island, bounded(message.text), now())) {
    const std::string level = message.level == "error" || message.level == "warning" ? message.level : "info";
    event(message.run, island, level, bounded(message.kind, 64), *text);
  }
}

void Core::State::advance_all() {
  constexpr int kPasses = 16;  // over one run; then it is looked at again in a moment
  out.sleep();
  if (superseded) {
    return;
  }
  work.begin();
  watch_islands();
  settle_paths();
  for (const auto& [id, run] : runs) {
    if (!run.life.idle()) {
      touch(run);
    }
  }
  while (const std::optional<RunId> id = work.take()) {
    Run& run = runs.at(*id);
    if (run.life.idle()) {
      continue;  // another may have ended it
    }
    if (work.taken(*id) > kPasses) {
      wake_at(now());
      continue;
    }
    advance(run);
    const bool again = work.has(*id, run.spec.priority, run.life.submitted()) && work.taken(*id) < kPasses;
    if (!run.life.idle() && !again) {
      settle(run);
    }
  }
}

// The ledger keeps milliseconds, and runs start in the order of their submission: no two are submitted in the same one.
TimePoint Core::State::time_of_submission(TimePoint wanted) const {
  const auto taken = [&](const auto& run) { return unix_ms(run.second.life.submitted()) == unix_ms(wanted); };
  while (std::any_of(runs.begin(), runs.end(), taken)) {
    wanted += std::chrono::milliseconds(1);
  }
  return wanted;
}

NewEpoch Core::State::new_epoch_of(const Run& run, const IslandId& to) const {
  NewEpoch message{run.about.id,        run.epoch, run.lineage.committed(), islands.members_of(run.members), run.life.pauses_after(),
                   run.lineage.tokens()};
  if (run.is_member(to)) {
    message.share = run.data.share(run.memberships.at(to).record.part);
  }
  return message;
}

}  // namespace atl::coordinator
