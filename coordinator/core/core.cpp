#include "coordinator/core/core.hpp"

#include <algorithm>

#include "coordinator/core/core_state.hpp"
#include "transport/base/planted.hpp"

namespace atl::coordinator {
bool Run::merging() const { return lineage.committed() >= last_own() && !at_end(); }

void Run::adopt_spec(RunSpec value) {
  spec = std::move(value);
  data.belong_to(record.id, spec.data.parts > 0 ? spec.data.parts : spec.islands.max);
  guards.set(spec.guards.norm_factor, spec.guards.quarantine_after);
}

RunRecord Run::to_record() const {
  RunRecord value = record;
  lineage.write_to(value);
  return value;
}

Round Run::furthest() const {
  Round newest;
  for (const IslandId& id : members) {
    const Membership& membership = memberships.at(id);
    newest = std::max({newest, membership.merged, membership.last.round});
  }
  return newest;
}

bool Run::is_member(const IslandId& island) const { return std::find(members.begin(), members.end(), island) != members.end(); }

Core::Core(Settings settings, Recovered recovered, TimePoint now) : state_(std::make_unique<State>(std::move(settings), now)) {
  state_->recover(std::move(recovered));
  state_->advance_all();
}
Core::~Core() = default;
Core::Core(Core&&) noexcept = default;
Core& Core::operator=(Core&&) noexcept = default;

void Core::step(TimePoint now, const IslandId& island, std::uint64_t boot, const Message& message) {
  state_->out.advance_to(now);
  const bool routine = state_->is_routine(island, message);
  const std::size_t said = state_->out.said();
  state_->hear(island, boot, message);
  if (!routine || state_->out.said() != said) {
    state_->advance_all();
  }
}

void Core::tick(TimePoint now) {
  state_->out.advance_to(now);
  state_->advance_all();
}

std::optional<TimePoint> Core::next_deadline() const { return state_->out.wake(); }

Ready Core::take_ready() { return state_->out.take(); }

void Core::State::recover(Recovered recovered) {
  islands.recover(std::move(recovered.islands), std::move(recovered.former_names), now());
  for (RunRecord& value : recovered.runs) {
    Run& run = runs[value.id];
    run.record = std::move(value);
    run.lineage.recover(run.record);
    run.last_commit = now();
    run.nobody_since = now();
    if (Result<RunSpec> spec = run_spec_from_json(run.record.spec)) {
      run.adopt_spec(std::move(*spec));
    } else if (!has_ended(run.record.state)) {
      run.record.error = with_context(spec.error(), "the ledger's copy of the run file");
      set_state(run, RunState::failed, run.record.error->why);
    }
  }
  for (MembershipRecord& value : recovered.memberships) {
    if (const auto run = runs.find(value.run); run != runs.end()) {
      Membership& membership = run->second.memberships[value.island];
      membership.from = value.state == MembershipState::starting                                 ? StartFrom::scratch
                        : run->second.private_states() && value.state == MembershipState::active ? StartFrom::memory
                                                                                                 : StartFrom::peers;
      run->second.guards.recover(value.island, value.offences);
      membership.record = std::move(value);
    }
  }
  for (PartRecord& value : recovered.parts) {
    if (const auto run = runs.find(value.run); run != runs.end()) {
      run->second.data.recover(std::move(value));
    }
  }
  std::map<RunId, Epoch> newest;
  for (EpochRecord& value : recovered.epochs) {
    const auto run = runs.find(value.run);
    if (run != runs.end() && value.epoch >= newest[value.run]) {
      newest[value.run] = value.epoch;
      run->second.members = std::move(value.members);
    }
  }
  std::sort(recovered.rounds.begin(), recovered.rounds.end(), [](const RoundRecord& a, const RoundRecord& b) { return a.round < b.round; });
  for (RoundRecord& value : recovered.rounds) {
    const auto found = runs.find(value.run);
    if (found == runs.end() || value.lineage != found->second.lineage.number()) {
      continue;
    }
    Run& run = found->second;
    if (value.committed && value.round <= run.lineage.committed()) {
      run.lineage.recover(Committed{value.round, value.attempt, value.digest, value.checkpoint, value.members, {}, value.parts});
    } else if (!value.committed && run.lineage.initialised() && value.round > run.lineage.committed()) {
      RoundInFlight& round = run.rounds[value.round];
      round.attempt = value.attempt;
      round.exchanging = value.epoch == run.record.epoch && !value.members.empty();
      round.recovered = true;
      round.planned = now();
      if (round.exchanging) {
        round.first_answer = now();
      }
      restart(round.resend);
      // Of an older membership only the attempt's number counts: a member may have left since, and come back with nothing.
      for (std::size_t i = 0; round.exchanging && i < value.members.size() && i < value.tokens.size(); ++i) {
        const DataRange data = i < value.data.size() ? value.data[i] : DataRange{};
        round.contributions[value.members[i]] = Contribution{value.tokens[i] == 0, value.tokens[i], 0, 0, data, 0};
      }
      round.members = std::move(value.members);
      round.tokens = std::move(value.tokens);
    }
  }
  for (TaskRecord& value : recovered.tasks) {
    if (const auto run = runs.find(value.run); run != runs.end()) {
      const std::string name = value.task;
      run->second.tasks[name].record = std::move(value);
    }
  }
  for (auto& [id, run] : runs) {
    recover_parts(run, recovered.rounds);
    if (run.record.restored && run.lineage.initialised()) {
      // Of a backup: who takes part, and with what, is asked anew.
      run.members.clear();
      run.rounds.clear();
      for (auto& [island, membership] : run.memberships) {
        if (membership.record.state == MembershipState::active || membership.record.state == MembershipState::joining) {
          membership.record.state = MembershipState::absent;
          membership.record.cause = "the ledger was restored from a backup";
        }
      }
    }
    for (auto& [island, membership] : run.memberships) {
      restart(membership.resend);
      const MembershipState state = membership.record.state;
      const bool there = state == MembershipState::active || state == MembershipState::joining || state == MembershipState::starting;
      if (run.of_group() && !is_idle(run.record.state) && there) {
        islands.lend(island, id);
      }
    }
  }
}

// How far the parts were after each of the newest rounds.
void Core::State::recover_parts(Run& run, const std::vector<RoundRecord>& rounds) {
  std::map<Round, const RoundRecord*> committed;
  for (const RoundRecord& round : rounds) {
    if (round.run == run.record.id && round.lineage == run.lineage.number() && round.committed && round.round <= run.lineage.committed()) {
      committed[round.round] = &round;
    }
  }
  for (auto& [round, parts] : run.data.history(committed, run.lineage.committed())) {
    run.lineage.recover_parts(round, parts);
  }
}

void Core::State::dispatch(const IslandId& island, const Message& message) {
  const auto about = [&](const RunId& id, auto&& handle) {
    const auto found = runs.find(id);
    if (found == runs.end()) {
      return;
    }
    Run& run = found->second;
    const auto membership = run.memberships.find(island);
    if (membership == run.memberships.end() || is_idle(run.record.state) || membership->second.record.state == MembershipState::refused) {
      release(island, run);
    } else {
      handle(run, membership->second);
    }
  };
  const auto with = [&](auto member) {
    return [this, member](const auto& m) {
      return [this, member, &m](Run& run, Membership& membership) { (this->*member)(run, membership, m); };
    };
  };
  std::visit(
      [&](const auto& m) {
        using M = std::decay_t<decltype(m)>;
        if constexpr (std::is_same_v<M, Heartbeat>) {
          on_heartbeat(island, m);
        } else if constexpr (std::is_same_v<M, Leave>) {
          islands.leave(island, m, out);
        } else if constexpr (std::is_same_v<M, atl::Ready>) {
          about(m.run, with(&State::on_ready)(m));
        } else if constexpr (std::is_same_v<M, Withdrawn>) {
          about(m.run, with(&State::on_withdrawn)(m));
        } else if constexpr (std::is_same_v<M, Exchanged>) {
          about(m.run, with(&State::on_exchanged)(m));
        } else if constexpr (std::is_same_v<M, ExchangeFailed>) {
          about(m.run, with(&State::on_exchange_failed)(m));
        } else if constexpr (std::is_same_v<M, Merged>) {
          about(m.run, with(&State::on_merged)(m));
        } else if constexpr (std::is_same_v<M, PairQuery>) {
          about(m.run, with(&State::on_pair_query)(m));
        } else if constexpr (std::is_same_v<M, PairAnswer>) {
          about(m.run, with(&State::on_pair_answer)(m));
        } else if constexpr (std::is_same_v<M, Checkpointed>) {
          about(m.run, with(&State::on_checkpointed)(m));
        } else if constexpr (std::is_same_v<M, CaughtUp>) {
          about(m.run, with(&State::on_caught_up)(m));
        } else if constexpr (std::is_same_v<M, RunEnded>) {
          about(m.run, with(&State::on_run_ended)(m));
        } else if constexpr (std::is_same_v<M, AssignmentReport>) {
          about(m.run, with(&State::on_assignment_report)(m));
        } else if constexpr (std::is_same_v<M, IslandEvent>) {
          if (m.run.empty() || runs.count(m.run) > 0) {
            const std::string level = m.level == "error" || m.level == "warning" ? m.level : "info";
            event(m.run, island, level, bounded(m.kind, 64), bounded(m.text));
          }
        }
        // Anything else is not for an island to say.
      },
      message);
}

void Core::State::advance_all() {
  out.sleep();
  watch_islands();
  std::set<RunId> advanced;
  for (std::vector<Run*> going = runs_in_order(advanced); !going.empty(); going = runs_in_order(advanced)) {
    for (Run* run : going) {
      advanced.insert(run->record.id);
      if (!is_idle(run->record.state)) {  // another may have ended it
        advance(*run);
      }
    }
  }
}

// Runs that want the same islands take them in the order of their submission. A run may bring others about: those come in the next turn.
std::vector<Run*> Core::State::runs_in_order(const std::set<RunId>& without) {
  std::vector<Run*> going;
  for (auto& [id, run] : runs) {
    if (!is_idle(run.record.state) && !without.contains(id)) {
      going.push_back(&run);
    }
  }
  std::ranges::stable_sort(going, {}, [](const Run* run) { return run->record.submitted; });
  return going;
}

// The ledger keeps milliseconds, and runs start in the order of their submission: no two are submitted in the same one.
TimePoint Core::State::time_of_submission(TimePoint wanted) const {
  const auto taken = [&](const auto& run) { return unix_ms(run.second.record.submitted) == unix_ms(wanted); };
  while (std::any_of(runs.begin(), runs.end(), taken)) {
    wanted += std::chrono::milliseconds(1);
  }
  return wanted;
}

NewEpoch Core::State::new_epoch_of(const Run& run) const {
  return NewEpoch{run.record.id, run.record.epoch, run.lineage.committed(), islands.members_of(run.members), run.record.pause_after};
}

}  // namespace atl::coordinator
