// What a run of rounds answers as a rule, whoever has its outer state.
#include "coordinator/core/rules/round_rule.hpp"

#include <algorithm>

#include "coordinator/core/core_state.hpp"

namespace atl::coordinator {

void RoundRule::invite(Run& run, Membership& membership) {
  Invite message;
  message.run = run.about.id;
  message.spec = run.about.spec;
  message.epoch = run.epoch;
  message.part = membership.record.part;
  message.share = run.data.share(message.part);
  message.from = membership.entry.from();
  message.committed = membership.entry.from_checkpoint() ? membership.entry.assigned() : run.lineage.committed();
  message.digest = digest_at(run, membership, message.committed);
  message.members = islands_.members_of(run.members);
  message.avoid = run.avoid;
  message.position = position_of(run, message.part, message.committed);
  message.entry = membership.entry.number();
  membership.entry.invited_in(run.epoch);
  send(membership.record.island, std::move(message));
}

Digest RoundRule::digest_at(const Run& run, const Membership& /*membership*/, Round round) const {
  return round == run.lineage.committed() ? run.lineage.digest() : run.lineage.digest_of(round).value_or(Digest{});
}

std::uint64_t RoundRule::position_of(const Run& run, std::uint32_t part, Round round) const {
  return run.data.position(part, run.lineage.parts_after(round));
}

// The data are dealt among the members of an epoch.
void RoundRule::deal_data(Run& run) {
  std::vector<std::uint32_t> among;
  for (const IslandId& id : run.members) {
    among.push_back(run.memberships.at(id).record.part);
  }
  if (run.data.deal(among, out_)) {
    event(run.about.id, {}, "debug", "data_dealt",
          "the data of run " + run.about.name + " are dealt among " + list_of(islands_.names_of(run.members)),
          {Field{"members", islands_.names_of(run.members)}});
  }
}

void RoundRule::on_epoch(Run& run) {
  deal_data(run);
  run.in_rounds().stand.reset();
}

void RoundRule::on_admitted(Run& run) { run.in_rounds().hold_since.reset(); }

void RoundRule::on_left(Run& run, const IslandId& island, const std::string& why) {
  for (const Round round : run.rounds().forget(island)) {
    abort(run, round, why);
  }
}

// What was being exchanged with it comes again.
void RoundRule::on_moved(Run& run, const std::string& why) {
  for (const Round round : run.rounds().numbers()) {
    if (run.rounds().at(round).exchanging()) {
      abort(run, round, why);
    }
  }
}

// At once, unless it has contributed to rounds that are in flight; then after the newest of those.
bool RoundRule::may_leave(Run& run, Membership& membership, const Island& island) {
  if (!membership.leaves_after) {
    membership.leaves_after = run.rounds().newest_of(island.record.id).value_or(run.lineage.committed());
  }
  const bool in_hand = *membership.leaves_after > run.lineage.committed();
  return membership.record.state != MembershipState::active || !awaits_leavers(run) || !(in_hand || island.departure.contributes);
}

void RoundRule::account_unmerged(const Run& run, Membership& membership) {
  record_unmerged(run, membership, std::max(run.furthest(), run.lineage.committed()).next(), std::nullopt);
}

// It holds the state of a run that has not begun by the ledger.
bool RoundRule::began_before(const Run& run, const IslandId& island) const {
  const HeldRun& held = islands_.held(island, run.about.id);
  return !run.lineage.initialised() && run.lineage.number() == 0 && (held.live || !held.checkpoints.empty());
}

Status RoundRule::pause(Run& run) {
  const bool stands = run.lineage.initialised() && awaits_members(run);  // no round is done: it stands after the newest one
  if (run.life.is(RunState::paused) || (run.life.pausing() && !stands)) {
    return {};
  }
  if (run.at_end() && !run.members.empty()) {  // an island that stands for a pause would not take over what it lacks of the last round
    return Error{Code::conflict, "run " + run.about.name + " has taken its last round: it is complete in a moment"};
  }
  if (!run.lineage.initialised() || run.members.empty()) {
    core_.pause_now(run);
  } else {
    core_.pause_after(run, stands ? run.lineage.committed() : next_stand(run));
  }
  return {};
}

std::string RoundRule::where_paused(const Run& run) const { return "paused after round " + std::to_string(run.lineage.committed().value); }

void RoundRule::finish_pause(Run& run, Round last, const std::vector<std::string>& writing) {
  if (const std::optional<Wait> wait = decide_pause({last, writing, !run.life.enough().empty()})) {
    run.wait = *wait;
  } else if (!run.life.enough().empty()) {
    core_.complete_early(run);
  } else {
    core_.pause_now(run);
  }
}

void RoundRule::recover(Run& run, const RoundRecord& value) {
  if (value.committed && value.round <= run.lineage.committed()) {
    run.lineage.recover(Committed{value.round, value.attempt, value.digest, value.checkpoint, value.members, {}, value.parts});
    if (!value.members.empty() && value.round > Round(0)) {
      closing_.on_committed(run, value.round, value.fragment);
    }
  } else if (!value.committed && run.lineage.initialised() && value.round > run.lineage.committed()) {
    const bool exchanging = value.epoch == run.epoch && !value.members.empty();
    run.rounds().open(value.round).recover(value, exchanging, out_);
  }
}

// It stands as it did before the restart.
void RoundRule::settle_recovered(Run& run) {
  if (run.life.is(RunState::interrupted) && !run.members.empty() && run.members.size() >= run.spec.islands.min) {
    run.in_rounds().stand = Stand{now() - settings_.stands_after, run.life.reason().text};
  }
}

void RoundRule::describe(const Run& run, RunView& view) const {
  view.spread = run.in_rounds().spread;
  view.spread_round = run.in_rounds().spread_round;
  if (const OpenRound* round = run.rounds().find(run.lineage.next())) {
    view.round = run.lineage.next();
    if (round->exchanging()) {
      view.attempt = round->attempt();
    }
  }
}

}  // namespace atl::coordinator
