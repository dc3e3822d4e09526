#include "coordinator/core/core.hpp"

#include <algorithm>

#include "coordinator/core/core_state.hpp"
#include "coordinator/core/recovery.hpp"
#include "transport/base/planted.hpp"

namespace atl::coordinator {
namespace {

constexpr std::size_t kUnmerged = 64;  // contributions of an island; a trainer merges within a few rounds

}  // namespace

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

Round Run::furthest() const {
  Round newest;
  for (const IslandId& id : members) {
    const Membership& membership = memberships.at(id);
    newest = std::max({newest, membership.progress.merged, membership.progress.contributed});
  }
  return newest;
}

void Progress::contribute(Round round, const ContributionFacts& facts) {
  contributed = round;
  unmerged[round] = Contributed{facts};
  if (unmerged.size() > kUnmerged) {
    unmerged.erase(unmerged.begin());
  }
}

bool Run::is_member(const IslandId& island) const { return std::find(members.begin(), members.end(), island) != members.end(); }

Core::Core(Settings settings, Recovered recovered, TimePoint now) : state_(std::make_unique<State>(std::move(settings), now)) {
  Recovery(*state_).recover(std::move(recovered));
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
  state_->presence.hear(island, boot, message);
  if (stir == Stir::all || (stir != Stir::numbers && state_->out.said() != said)) {
    state_->advance_all();
  } else if (stir == Stir::little) {
    state_->wake_at(state_->now() + kSoon);
  }
}

// What changes no decision: a heartbeat of an island that is known to live, with a report where there was one; and what the run's rule
// says.
Stir Core::State::stir_of(const IslandId& id, const Message& message) const {
  const auto of_run = [&](const auto& said) {
    const Island* island = islands.find(id);
    const auto run = runs.find(said.run);
    const bool known = island != nullptr && island->greeted && !island->probe && run != runs.end();
    return known ? run->second.rule->stir_of(run->second, id, said) : Stir::all;
  };
  if (const auto* ready = std::get_if<atl::Ready>(&message)) {
    return of_run(*ready);
  }
  if (const auto* exchanged = std::get_if<Exchanged>(&message)) {
    return of_run(*exchanged);
  }
  if (const auto* merged = std::get_if<Merged>(&message)) {
    return of_run(*merged);
  }
  if (const auto* report = std::get_if<AssignmentReport>(&message)) {
    return of_run(*report);
  }
  const auto* heartbeat = std::get_if<Heartbeat>(&message);
  const bool routine = heartbeat != nullptr && islands.is_routine(id, *heartbeat);
  return routine || std::holds_alternative<Holds>(message) ? Stir::nothing : Stir::all;
}

void Core::was_away(Duration away) { state_->islands.excuse(away); }

void Core::tick(TimePoint now) {
  state_->out.advance_to(now);
  state_->advance_all();
}

std::optional<TimePoint> Core::next_deadline() const { return state_->out.wake(); }

Ready Core::take_ready() { return state_->out.take(); }

const std::optional<Superseded>& Core::superseded() const { return state_->superseded; }

// What a member's island says of a run is its rule's business.
template <typename M>
void Core::State::route(const IslandId& island, const M& message) {
  const auto found = runs.find(message.run);
  if (found == runs.end()) {
    return;
  }
  Run& run = found->second;
  const auto membership = run.memberships.find(island);
  if constexpr (std::is_same_v<M, Withdrawn>) {
    if (membership != run.memberships.end()) {
      run.rule->account(run, island, message);
    }
    if (message.fate == Fate::dropped) {
      return;  // an account of what its island has no more
    }
  }
  if (membership == run.memberships.end() || run.life.idle() || membership->second.record.state == MembershipState::refused) {
    if constexpr (std::is_same_v<M, Checkpointed>) {
      run.rule->account(run, island, message);
    }
    release(island, run);
  } else if constexpr (std::is_same_v<M, RunEnded>) {
    on_run_ended(run, membership->second, message);
  } else {
    run.rule->hear(run, membership->second, message);
  }
}

// What an island says of its place in a run.
template <typename M>
constexpr bool kOfRun =
    std::is_same_v<M, atl::Ready> || std::is_same_v<M, Withdrawn> || std::is_same_v<M, Exchanged> || std::is_same_v<M, ExchangeFailed> ||
    std::is_same_v<M, Merged> || std::is_same_v<M, PairQuery> || std::is_same_v<M, PairAnswer> || std::is_same_v<M, Checkpointed> ||
    std::is_same_v<M, CaughtUp> || std::is_same_v<M, RunEnded> || std::is_same_v<M, AssignmentReport>;

void Core::State::dispatch(const IslandId& island, const Message& message) {
  std::visit(
      [&](const auto& m) {
        using M = std::decay_t<decltype(m)>;
        if constexpr (std::is_same_v<M, Heartbeat>) {
          presence.on_heartbeat(island, m);
        } else if constexpr (std::is_same_v<M, Leave>) {
          islands.leave(island, m, out);
        } else if constexpr (kOfRun<M>) {
          route(island, m);
        } else if constexpr (std::is_same_v<M, IslandEvent>) {
          on_event(island, m);
        } else if constexpr (std::is_same_v<M, Copied>) {
          on_copied(island, m);
        } else if constexpr (std::is_same_v<M, Holds>) {
          on_holds(island, m);
        } else if constexpr (std::is_same_v<M, PathReport>) {
          data_paths.hear(island, m);
        } else if constexpr (std::is_same_v<M, Ways>) {
          data_paths.hear(island, m);
        }
        // Anything else is not for an island to say.
      },
      message);
}

void Core::State::on_event(const IslandId& island, const IslandEvent& message) {
  if (!message.run.empty() && !runs.contains(message.run)) {
    return;
  }
  const std::string level = message.level == "error" || message.level == "warning" ? message.level : "info";
  islands.tell(message.run, island, level, bounded(message.kind, 64), bounded(message.text), {}, out);
}

void Core::State::advance_all() {
  constexpr int kPasses = 16;  // over one run; then it is looked at again in a moment
  out.sleep();
  if (superseded) {
    return;
  }
  work.begin();
  presence.watch();
  data_paths.settle();
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
  message.avoid = run.avoid;
  if (run.is_member(to)) {
    message.share = run.data.share(run.memberships.at(to).record.part);
  }
  return message;
}

}  // namespace atl::coordinator
