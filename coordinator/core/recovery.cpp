// A core that is constructed from the ledger's records goes on where the old one was.
#include "coordinator/core/recovery.hpp"

#include <algorithm>

#include "coordinator/core/core_state.hpp"
#include "strategies/specification/model_kind.hpp"

namespace atl::coordinator {

void Recovery::recover(Recovered recovered) {
  islands_.recover(std::move(recovered.islands), std::move(recovered.former_names), now());
  for (RemovedRecord& removed : recovered.removed) {
    core_.removals.recover(std::move(removed));
  }
  for (const RunRecord& value : recovered.runs) {
    recover_run(value);
  }
  recover_memberships(recovered);
  for (PartRecord& value : recovered.parts) {
    if (const auto run = runs_.find(value.run); run != runs_.end()) {
      run->second.data.recover(std::move(value));
    }
  }
  for (StretchRecord& value : recovered.stretches) {
    if (const auto run = runs_.find(value.run); run != runs_.end()) {
      run->second.data.recover(std::move(value));
    }
  }
  std::ranges::sort(recovered.rounds, {}, &RoundRecord::round);
  for (const RoundRecord& value : recovered.rounds) {
    recover_round(value);
  }
  for (TaskRecord& value : recovered.tasks) {
    if (const auto run = runs_.find(value.run); run != runs_.end()) {
      run->second.rule->recover(run->second, std::move(value));
    }
  }
  for (auto& [id, run] : runs_) {
    run.data.recovered();
    recover_data(run, recovered.rounds);
    settle_recovered(run);
  }
}

void Recovery::recover_run(const RunRecord& value) {
  Run& run = runs_[value.id];
  run.about = RunIdentity{value.id, value.name, value.file, value.spec};
  run.epoch = value.epoch;
  run.life.recover(value);
  run.lineage.recover(value);
  run.copies = Copies(value.copied);
  run.last_commit = now();
  run.nobody_since = now();
  Result<RunSpec> spec = run_spec_from_json(run.about.spec);
  if (spec) {
    core_.rules.adopt(run, std::move(*spec));
    return;
  }
  core_.rules.adopt(run, run.spec);  // of nothing
  if (!run.life.over()) {
    const Error error = with_context(spec.error(), "the ledger's copy of the run file");
    run.life.end(RunState::failed, error.why, error, now());
    record(run.to_record());
  }
}

void Recovery::recover_memberships(Recovered& recovered) {
  for (MembershipRecord& value : recovered.memberships) {
    const auto found = runs_.find(value.run);
    if (found == runs_.end()) {
      continue;
    }
    Membership& membership = found->second.memberships[value.island];
    membership.entry.recover(found->second.rule->recovered_start(value.state), out_);
    found->second.guards.recover(value.island, value.offences);
    membership.record = std::move(value);
  }
  std::map<RunId, Epoch> newest;
  for (EpochRecord& value : recovered.epochs) {
    const auto run = runs_.find(value.run);
    if (run != runs_.end() && value.epoch >= newest[value.run]) {
      newest[value.run] = value.epoch;
      run->second.members = std::move(value.members);
      run->second.avoid = std::move(value.avoid);
    }
  }
}

void Recovery::recover_round(const RoundRecord& value) {
  const auto found = runs_.find(value.run);
  if (found == runs_.end() || value.lineage > found->second.lineage.number()) {
    return;
  }
  Run& run = found->second;
  // Checkpoints of the lineages before are good, as far as the run's history goes through them.
  if (value.lineage < run.lineage.number() && (!value.committed || !value.checkpoint || !run.lineage.initialised())) {
    return;
  }
  run.rule->recover(run, value);
}

// How far the parts were after each of the newest rounds, and the tokens: what the rounds after it counted is taken back.
void Recovery::recover_data(Run& run, const std::vector<RoundRecord>& rounds) {
  std::map<Round, const RoundRecord*> committed;
  for (const RoundRecord& round : rounds) {
    if (round.run == run.about.id && round.lineage == run.lineage.number() && round.committed && round.round <= run.lineage.committed()) {
      committed[round.round] = &round;
    }
  }
  std::map<Round, std::vector<DataRange>> history = run.data.history(committed, run.lineage.committed());
  std::uint64_t tokens = run.lineage.tokens();
  for (auto at = history.rbegin(); at != history.rend(); ++at) {
    run.lineage.recover_data(at->first, std::move(at->second), tokens);
    tokens -= std::min(tokens, bounded_product(sequences_held(*committed.at(at->first)), tokens_per_sequence(run.spec), kMaxCount));
  }
}

void Recovery::settle_recovered(Run& run) {
  if (run.lineage.restored() && run.lineage.initialised()) {
    // Of a backup: who takes part, and with what, is asked anew.
    run.members.clear();
    run.data.deal_anew();
    for (auto& [island, membership] : run.memberships) {
      if (membership.record.state == MembershipState::active || membership.record.state == MembershipState::joining) {
        membership.record.state = MembershipState::absent;
        membership.record.cause = "the ledger was restored from a backup";
      }
    }
    run.rule->settle_backup(run);
  }
  run.rule->settle_recovered(run);
  for (auto& [island, membership] : run.memberships) {
    const MembershipState state = membership.record.state;
    const bool there = state == MembershipState::active || state == MembershipState::joining || state == MembershipState::starting;
    if (!run.life.idle() && there) {
      core_.lend(run, island);
    }
  }
}

}  // namespace atl::coordinator
