// Nobody has the run's state in memory any more: it goes on from the newest checkpoint, or from what islands know, or starts over.
#include <algorithm>
#include <iterator>

#include "coordinator/core/core_state.hpp"
#include "coordinator/core/rules/shared_rule.hpp"
#include "strategies/specification/model_kind.hpp"
#include "transport/base/planted.hpp"

namespace atl::coordinator {

// Lets in whoever has loaded its checkpoint, once all have that try, or the others have had their time. They begin together, so that the
// first round after a pause has the members that it would have had.
bool SharedRule::finish_restore(Run& run) {
  std::vector<IslandId> loaded;
  bool loading = false;
  Round newest;
  for (const auto& [id, membership] : run.memberships) {
    if (membership.record.state == MembershipState::joining && membership.entry.from_checkpoint()) {
      loading = loading || !membership.entry.caught_up();
      if (membership.entry.caught_up()) {
        loaded.push_back(id);
        newest = std::max(newest, *membership.entry.caught_up());
      }
    }
  }
  if (loaded.empty()) {
    run.in_rounds().loaded_since.reset();
    return false;
  }
  const TimePoint until = run.in_rounds().loaded_since.value_or(now()) + settings_.restore_grace;
  if (loading && now() < until) {
    wake_at(until);
    return false;
  }
  run.in_rounds().loaded_since.reset();
  if (newest < run.lineage.committed()) {
    roll_back(run, newest);
  }
  // In one epoch: were they let in one after the other, the data would be dealt among the first of them, and dealt anew with each one more,
  // and nobody would go on in the order of data that it had.
  std::vector<IslandId> newest_loaded;
  std::ranges::copy_if(loaded, std::back_inserter(newest_loaded),
                       [&](const IslandId& id) { return run.memberships.at(id).entry.caught_up() == newest; });
  core_.activate(run, newest_loaded);
  for (const IslandId& id : loaded) {
    run.memberships.at(id).entry.start_from(StartFrom::peers);
  }
  return true;
}

// A new lineage begins with the round it starts from, so that the ledger can say what that was.
void RoundRule::record_lineage(const Run& run) {
  RoundRecord base;
  base.run = run.about.id;
  base.lineage = run.lineage.number();
  base.round = run.lineage.committed();
  base.epoch = run.epoch;
  base.committed = true;
  base.checkpoint = true;
  base.digest = run.lineage.digest();
  base.parts = run.data.snapshot();
  base.planned = now();
  base.committed_at = now();
  record(std::move(base));
}

// The tokens of rounds that were taken over. Those of contributions that did not count are among them: which samples these were is not
// known here.
void RoundRule::recount_tokens(Run& run) {
  std::uint64_t sequences = 0;
  for (const DataRange& part : run.data.snapshot()) {
    sequences += part.sequences();
  }
  run.lineage.recount_tokens(sequences, tokens_per_sequence(run.spec));
}

void RoundRule::roll_back(Run& run, Round round) {
  const Round lost = run.lineage.committed();
  const std::string range = round.next() == lost ? "round " + std::to_string(lost.value)
                                                 : "rounds " + std::to_string(round.value + 1) + " to " + std::to_string(lost.value);
  const bool tokens_known = run.lineage.tokens_after(round).has_value();
  run.data.return_to(run.lineage.roll_back(round), out_);
  run.lineage.give_up_before(run.epoch.next());
  run.lineage.decide_in(run.epoch.next(), settings_.generation);  // that of those who go on: whoever has a lost round knows an older one
  if (!tokens_known) {
    recount_tokens(run);
  }
  run.copies.roll_back(round);
  run.rounds().clear();
  run.in_rounds().hold_since.reset();
  for (auto& [id, membership] : run.memberships) {
    membership.progress.merged = std::min(membership.progress.merged, round);
    membership.progress.unmerged.clear();
    // Who was away from a round that is taken anew is away from its second time on.
    for (Absence& absence : membership.record.absences) {
      absence.from = std::min(absence.from, round.next());
      absence.to = absence.to ? std::optional(std::min(*absence.to, round.next())) : absence.to;
    }
    core_.save(run, membership);
  }
  record_lineage(run);
  event(run.about.id, {}, "warning", "rolled_back",
        range + " of run " + run.about.name + " lost with every copy in memory; the run goes on from the newest checkpoint, of round " +
            std::to_string(round.value),
        {Field{"from", static_cast<std::int64_t>(lost.value)}, Field{"to", static_cast<std::int64_t>(round.value)},
         Field{"digest", to_hex(run.lineage.digest())}});
}

// Nothing is left of the run's state: it begins anew, from the seed.
void SharedRule::start_over(Run& run, const std::string& why) {
  event(run.about.id, {}, "warning", "rolled_back",
        "all rounds up to round " + std::to_string(run.lineage.committed().value) + " of run " + run.about.name + " are lost: " + why +
            "; it starts over",
        {Field{"from", static_cast<std::int64_t>(run.lineage.committed().value)}, Field{"to", std::int64_t{0}}});
  run.lineage.start_over();
  run.lineage.give_up_before(run.epoch.next());
  run.lineage.decide_in(run.epoch.next(), settings_.generation);
  run.copies.roll_back(Round(0));
  run.data.return_to({}, out_);
  run.data.begin_anew(out_);
  recount_tokens(run);
  run.rounds().clear();
  for (auto& [id, membership] : run.memberships) {
    membership.progress.merged = Round(0);
    membership.progress.unmerged.clear();
    for (Absence& absence : membership.record.absences) {
      absence.from = Round(0);
      absence.to = absence.to ? std::optional(Round(0)) : absence.to;
    }
    core_.save(run, membership);
  }
  core_.set_state(run, RunState::queued, "starts over: " + why);
}

AdoptionInput SharedRule::adoption_input(const Run& run) const {
  AdoptionInput input;
  input.now = now();
  if (!run.lineage.digest().empty()) {
    input.committed = run.lineage.committed();
  }
  input.min = run.spec.islands.min;
  input.since = run.nobody_since;
  input.grace = settings_.restore_grace;
  for (const auto& [id, membership] : run.memberships) {
    if (islands_.find(id) == nullptr) {
      continue;  // revoked: its claims went with it, and nobody waits for it
    }
    AdoptionCandidate candidate{id, islands_.name_of(id), islands_.alive(id), Epoch(0), {}, membership.entry.ahead()};
    if (candidate.connected) {
      const HeldRun& held = islands_.held(id, run.about.id);
      candidate.generation = held.generation;
      candidate.epoch = held.state_epoch();
      if (held.live && !run.lineage.superseded(held.generation)) {
        candidate.known.push_back(KnownRound{held.committed, held.digest});
      }
      for (const HeldCheckpoint& checkpoint : held.checkpoints) {
        if (run.lineage.lost_before(checkpoint)) {
          continue;
        }
        candidate.known.push_back(KnownRound{checkpoint.round, checkpoint.digest});
      }
    }
    input.candidates.push_back(std::move(candidate));
  }
  return input;
}

// The ledger came from a backup: rounds that were committed after it are taken over from the islands. True: wait, or look again.
bool SharedRule::adopt_newer(Run& run) {
  const AdoptionDecision decision = decide_adoption(adoption_input(run));
  if (decision.kind == AdoptionDecision::Kind::wait) {
    run.wait = decision.wait;
    if (decision.wait.until) {
      wake_at(*decision.wait.until);
    }
    return true;
  }
  const Round before = run.lineage.committed();
  // Islands know epochs that were made after the backup, and drop what is of older ones.
  for (const auto& [id, membership] : run.memberships) {
    if (islands_.alive(id)) {
      core_.heed_epoch(run, id);
    }
  }
  KnownRound onward{run.lineage.committed(), run.lineage.digest()};
  if (decision.kind == AdoptionDecision::Kind::adopt) {
    onward = decision.round;
    for (const auto& [id, membership] : run.memberships) {
      if (!islands_.alive(id)) {
        continue;
      }
      const HeldRun& held = islands_.held(id, run.about.id);
      const bool live = held.live && held.committed == decision.round.round && held.digest == decision.round.digest;
      const bool stored = !held.live && !held.checkpoints.empty() && held.checkpoints.back().round == decision.round.round &&
                          held.checkpoints.back().digest == decision.round.digest;
      if (live || stored) {
        core_.adopt_position(run, held);
      }
    }
  }
  run.rounds().clear();
  run.lineage.adopt(onward, run.data.snapshot());
  run.lineage.decide_in(run.epoch, settings_.generation);
  recount_tokens(run);
  record_lineage(run);
  event(run.about.id, {}, "warning", "ledger_restored",
        "run " + run.about.name + " goes on from a backup of the ledger at round " + std::to_string(before.value) +
            (run.lineage.committed() > before
                 ? "; the rounds up to round " + std::to_string(run.lineage.committed().value) + " were taken over from its islands"
                 : ""),
        {Field{"from", static_cast<std::int64_t>(before.value)}, Field{"to", static_cast<std::int64_t>(run.lineage.committed().value)},
         Field{"digest", to_hex(run.lineage.digest())}});
  for (auto& [id, membership] : run.memberships) {
    membership.entry.adopted(islands_.alive(id), islands_.held(id, run.about.id).live, now());
  }
  record(run.to_record());
  touch(run);
  return true;
}

// Islands that load their checkpoints. Whoever copied from peers has nobody to copy from any more.
std::optional<Wait> SharedRule::wait_for_loading(Run& run) {
  std::vector<std::string> loading;
  for (auto& [id, membership] : run.memberships) {
    if (membership.record.state == MembershipState::joining && membership.entry.from_checkpoint()) {
      loading.push_back(islands_.name_of(id));
      if (membership.entry.caught_up() && !ATOLL_PLANTED(wakes_for_ever)) {
        continue;  // it waits for the others: nothing is due
      }
      if (!membership.entry.caught_up() && membership.entry.due(out_)) {
        invite(run, membership);
      }
      wake_at(membership.entry.next_repeat());
    } else if (membership.record.state == MembershipState::joining) {
      core_.vacate(run, membership, MembershipState::absent, "the islands that it copied from are gone");
      membership.entry.retry(now());
    }
  }
  if (!loading.empty()) {
    return Wait{
        list_of(loading) + (loading.size() == 1 ? " loads its checkpoint" : " load their checkpoints"),
        run.in_rounds().loaded_since ? std::optional<TimePoint>(*run.in_rounds().loaded_since + settings_.restore_grace) : std::nullopt};
  }
  return std::nullopt;
}

// The newest checkpoint that an island has, or may fetch a copy of, and that the ledger confirms.
std::optional<Round> SharedRule::restorable(const Run& run, const IslandId& id) const {
  std::optional<Round> newest;
  const auto known = run.memberships.find(id);
  const bool failed_now = known != run.memberships.end() && now() < known->second.entry.retry_at();
  if (run.copies.newest() > Round(0) && run.lineage.digest_of(run.copies.newest()) && may_copy(run, id) && !failed_now) {
    newest = run.copies.newest();
  }
  for (const HeldCheckpoint& held : islands_.held(id, run.about.id).checkpoints) {
    if (run.lineage.confirms(held.round, held.digest)) {
      newest = std::max(newest, std::optional(held.round));
    }
  }
  return newest;
}

RestoreInput SharedRule::restore_input(const Run& run) const {
  RestoreInput input;
  input.copies = run.spec.checkpoint.copy;
  input.now = now();
  input.committed = run.lineage.committed();
  input.min = run.spec.islands.min;
  input.max = run.spec.islands.max;
  input.since = run.nobody_since;
  input.grace = settings_.restore_grace;
  for (const auto& [id, membership] : run.memberships) {
    if (islands_.find(id) == nullptr) {
      continue;  // revoked: nobody waits for it
    }
    if (membership.record.state != MembershipState::absent || (islands_.alive(id) && !core_.is_free_for(run, id))) {
      continue;  // here, and busy with something else
    }
    RestoreCandidate candidate{id, islands_.name_of(id), islands_.stays(id), std::nullopt, {}, core_.serves_another(run, id)};
    if (!membership.record.absences.empty()) {
      candidate.away_since = membership.record.absences.back().since;
    }
    if (candidate.connected) {
      candidate.checkpoint = restorable(run, id);
    }
    input.candidates.push_back(std::move(candidate));
  }
  for (const auto& [id, island] : islands_.all()) {
    if (run.memberships.contains(id) || !island.greeted || !core_.admits_name(run, island) || !core_.obstacle_of(run, island).empty()) {
      continue;
    }
    // It had no part in the run yet. Where every island of the run lost its disk, or is gone, it may come with a copy.
    if (const std::optional<Round> round = restorable(run, id)) {
      input.candidates.push_back({id, island.record.name, true, round, {}, {}});
    } else {
      ++input.others;
    }
  }
  return input;
}

// Who holds rounds, or the initial state, of a run that has not begun by the ledger.
std::vector<IslandId> SharedRule::holders_of_beginning(const Run& run) const {
  std::vector<IslandId> holders;
  for (const auto& [id, island] : islands_.all()) {
    if (island.greeted && core_.admits_name(run, island) && began_before(run, id)) {
      holders.push_back(id);
    }
  }
  return holders;
}

// It claims rounds of a run that has not begun by the ledger, and fewer than min islands do: the ledger is believed. The island is not told
// to begin, because that would end what it may have.
bool SharedRule::claims_alone(const Run& run, const IslandId& island) const {
  return began_before(run, island) && core_.newest_held(run, islands_.held(island, run.about.id)) > Round(0) &&
         holders_of_beginning(run).size() < run.spec.islands.min;
}

// The run had begun, and the ledger is from before: it goes on from what its islands have. False: it has not begun, as far as at least min
// islands say.
bool SharedRule::take_over_beginning(Run& run) {
  const std::vector<IslandId> holders = holders_of_beginning(run);
  if (holders.empty() || holders.size() < run.spec.islands.min) {
    return false;
  }
  if (!run.lineage.restored()) {
    event(run.about.id, {}, "warning", "ledger_behind",
          "island " + islands_.name_of(holders.front()) + " has rounds of run " + run.about.name +
              ", and the run has not begun by the ledger: an older copy of the ledger was put in place of the newer one. What the islands "
              "have is taken over",
          {Field{"ledger", std::int64_t{0}},
           Field{"island", static_cast<std::int64_t>(core_.newest_held(run, islands_.held(holders.front(), run.about.id)).value)}});
  }
  run.members.clear();
  for (auto& [id, membership] : run.memberships) {
    if (membership.record.state == MembershipState::starting) {
      core_.vacate(run, membership, MembershipState::absent, "the run had begun before");
    }
  }
  // Parts that two claim are given out last: else one that claims another's would take away a third one's.
  const auto part_of = [&](const IslandId& id) { return islands_.held(id, run.about.id).part; };
  std::vector<IslandId> in_order = holders;
  std::ranges::stable_partition(in_order, [&](const IslandId& id) { return std::ranges::count(holders, part_of(id), part_of) == 1; });
  for (const IslandId& id : in_order) {
    MembershipRecord& value = run.memberships[id].record;
    value.island = id;
    value.part = part_of(id);  // as it was
    core_.add_membership(run, id, MembershipState::absent, StartFrom::peers);
  }
  if (run.life.is(RunState::queued)) {
    run.life.invite(now());
  }
  run.lineage.begin_unknown();
  run.data.deal_anew();
  core_.set_state(run, RunState::interrupted, "goes on from what its islands have");
  return true;
}

void SharedRule::notice_older_ledger(Run& run) {
  if (run.lineage.restored() || !run.lineage.initialised() || ATOLL_PLANTED(age_unnoticed)) {
    return;
  }
  const auto newer = find_newer_than_ledger(adoption_input(run));
  if (!newer) {
    return;
  }
  event(run.about.id, {}, "warning", "ledger_behind",
        "island " + newer->first + " has round " + std::to_string(newer->second.value) + " of run " + run.about.name +
            ", and the ledger ends with round " + std::to_string(run.lineage.committed().value) +
            ": an older copy of the ledger was put in place of the newer one. What the islands have is taken over",
        {Field{"ledger", static_cast<std::int64_t>(run.lineage.committed().value)},
         Field{"island", static_cast<std::int64_t>(newer->second.value)}});
  run.lineage.fall_behind();
  record(run.to_record());
}

void SharedRule::advance_restore(Run& run) {
  notice_older_ledger(run);
  if (run.lineage.restored() && adopt_newer(run)) {
    return;
  }
  if (finish_restore(run)) {
    return;
  }
  if (std::optional<Wait> loading = wait_for_loading(run)) {
    run.wait = *loading;
    return;
  }
  for (const auto& [id, membership] : run.memberships) {
    if (run.copies.newest() > Round(0) && now() < membership.entry.retry_at()) {
      wake_at(membership.entry.retry_at());  // it may try the copy again
    }
  }
  const RestoreDecision decision = decide_restore(restore_input(run));
  if (decision.start_over) {
    start_over(run, decision.wait.text);
    return;
  }
  if (!decision.restore) {
    run.wait = decision.wait;
    return;
  }
  for (const IslandId& id : decision.islands) {
    core_.add_membership(run, id, MembershipState::joining, StartFrom::checkpoint);
    Membership& membership = run.memberships.at(id);
    membership.entry.assign(decision.round);
    invite(run, membership);
    event(run.about.id, id, "info", "island_restoring",
          "island " + islands_.name_of(id) + " restores run " + run.about.name + " from its checkpoint of round " +
              std::to_string(decision.round.value) + (holds(run, id, decision.round) ? "" : ", of which it fetches the copy"));
  }
}

bool SharedRule::holds(const Run& run, const IslandId& id, Round round) const {
  return std::ranges::any_of(islands_.held(id, run.about.id).checkpoints, [&](const HeldCheckpoint& held) { return held.round == round; });
}

}  // namespace atl::coordinator
