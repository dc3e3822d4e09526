// What a run of one outer state answers as a rule.
#include "coordinator/core/rules/shared_rule.hpp"

#include <algorithm>

#include "coordinator/core/core_state.hpp"

namespace atl::coordinator {
namespace {

// Why an island that says what it holds of a run cannot go on where it was.
std::string why_not_verified(const Run& run, bool new_boot, const HeldRun* held) {
  const std::string newest = "round " + std::to_string(run.lineage.committed().value);
  if (held != nullptr && held->live && held->committed > run.lineage.committed()) {
    return "its state is of round " + std::to_string(held->committed.value) + ", newer than the ledger's " + newest;
  }
  return new_boot ? "its agent was restarted" : "its state is not that of " + newest;
}

}  // namespace

void SharedRule::hear(Run& run, Membership& membership, const atl::Ready& message) {
  if (message.round == Round(0)) {
    on_initial(run, membership, message);
  } else {
    RoundRule::hear(run, membership, message);
  }
}

// With overlap it was said, or said again, before the island heard of the newest commits: any digest of the run's history will do.
bool SharedRule::fits(Run& run, Membership& membership, const atl::Ready& message) {
  if (message.round.value > run.lineage.committed().value + closing_.rounds_ahead()) {
    return false;
  }
  if (message.round == run.lineage.next() && message.digest != run.lineage.digest() && !run.lineage.on_history(message.digest)) {
    core_.leave_epoch(run, membership.record.island, "its state is not that of round " + std::to_string(run.lineage.committed().value),
                      true);
    return false;
  }
  return true;
}

void SharedRule::account(const Run& run, const IslandId& island, const Withdrawn& message) {
  if (message.round.value <= run.spec.rounds) {
    record(DroppedRecord{message.run, run.lineage.number(), island, message.round, message.fate, message.facts});
  }
}

// Of rounds in which it took part. Nobody else may have one as new.
void SharedRule::account(const Run& run, const IslandId& island, const Checkpointed& message) {
  if (!message.error && confirms(run, message.round, message.digest)) {
    islands_.keeps(island, run.about.id, HeldCheckpoint{message.round, message.digest});
  }
}

void SharedRule::enlist(Run& run, const IslandId& island) {
  core_.add_membership(run, island, MembershipState::starting, StartFrom::scratch);
}

void SharedRule::begin(Run& run) { run.lineage.begin_anew(); }

// What the run knows by what an island holds of it: whether the ledger is older, and how far the data are.
void SharedRule::compare_held(Run& run, Membership& membership, const HeldRun* held) {
  const IslandId island = membership.record.island;
  membership.entry.is_ahead(core_.is_ahead(run, held));
  const auto ahead =
      std::ranges::count_if(run.memberships, [&](const auto& each) { return each.second.entry.ahead() && islands_.alive(each.first); });
  // Who is here and goes on from the ledger's newest round says the contrary.
  const auto beside = std::ranges::count_if(
      run.members, [&](const IslandId& id) { return islands_.alive(id) && !run.memberships.at(id).entry.ahead() && id != island; });
  const bool enough = membership.entry.ahead() && static_cast<std::size_t>(ahead) >= run.spec.islands.min && ahead >= beside;
  if (enough && !run.lineage.restored() && run.lineage.initialised()) {
    // The ledger is an older copy. Nobody goes on from the round that it ends with, or copies it, before it is known what all have. One
    // that came before them with such a round was taken for one that has to catch up.
    for (auto& [id, other] : run.memberships) {
      if (other.record.state == MembershipState::joining) {
        core_.vacate(run, other, MembershipState::absent, "the ledger is older than what " + islands_.name_of(island) + " has");
      }
    }
    const std::vector<IslandId> members = run.members;
    for (const IslandId& id : members) {
      core_.leave_epoch(run, id, "the ledger is older than what " + islands_.name_of(island) + " has", false);
    }
  }
  if (run.lineage.number() > 0 && !run.lineage.restored()) {
    core_.follow_epoch(run, island, held);
  }
  core_.follow_position(run, membership, held);
}

void SharedRule::greet_active(Run& run, Membership& membership, bool new_boot, const HeldRun* held) {
  if (held == nullptr || !run.lineage.verified(membership.record.island, *held)) {
    core_.leave_epoch(run, membership.record.island, why_not_verified(run, new_boot, held), false);
  }
}

Round SharedRule::present_round(const Run& run) const { return run.lineage.initialised() ? run.lineage.next() : Round(0); }

bool SharedRule::confirms(const Run& run, Round round, const Digest& digest) const { return run.lineage.confirms(round, digest); }

bool SharedRule::awaits_leavers(const Run& run) const { return run.members.size() >= run.spec.islands.min; }

void SharedRule::advance(Run& run) {
  if (!run.lineage.initialised()) {
    advance_initial(run);
    return;
  }
  advance_joins(run);
  if (run.members.empty() && run.life.pausing() && run.life.enough().empty()) {
    core_.pause_now(run);
  } else if (run.members.empty()) {
    advance_restore(run);
  } else if (run.at_end()) {
    core_.advance_end(run);
  } else if (run.life.pausing() && run.lineage.committed() >= *run.life.pauses_after()) {
    advance_pause(run);
  } else {
    advance_rounds(run);
  }
}

// Every member's checkpoint of the round after which the run is paused, then nobody trains. Nobody is freed before at least one island has
// it on its disk: what is in memory would be lost.
void SharedRule::advance_pause(Run& run) {
  const Round last = run.lineage.committed();
  const bool safe = std::ranges::any_of(run.members, [&](const IslandId& id) {
    const std::optional<Checkpointed>& told = run.memberships.at(id).source.checkpointed;
    return told && told->round == last && told->digest == run.lineage.digest();
  });
  std::vector<std::string> writing;
  for (const IslandId& id : run.members) {
    Source& source = run.memberships.at(id).source;
    if (safe && source.checkpoint_settled && *source.checkpoint_settled >= last) {
      continue;
    }
    writing.push_back(islands_.name_of(id));
    // One that came in meanwhile was not told with the commit; one that failed may try again.
    const TimePoint patience = run.last_commit + settings_.resend;
    if (now() >= patience && due(source.offer_resend)) {
      send(id, Offer{run.about.id, true});
    }
    wake_at(std::max(patience, source.offer_resend.next));
  }
  finish_pause(run, last, writing);
}

// A new run in this ledger, and an older one for its islands: its rounds, epochs and data go on behind those of the copy.
void SharedRule::go_on_from_copy(Run& run, const CopyToGoOnFrom& copy) {
  run.epoch = copy.epoch;
  for (const DataRange& part : copy.data) {
    if (part.part < DataParts::kMostParts) {
      run.data.count_in(part, 0, out_);
    }
  }
  run.lineage.begin();
  run.lineage.adopt(KnownRound{copy.round, copy.digest}, run.data.snapshot());
  recount_tokens(run);
  run.copies = Copies(copy.round);
  run.life.invite(now());
  core_.set_state(run, RunState::interrupted, "goes on from the copy of round " + std::to_string(copy.round.value));
  record_lineage(run);
  core_.new_epoch(run, "goes on from a copy");
  event(run.about.id, {}, "info", "copy_taken_over",
        "run " + run.about.name + " goes on from the copy of its checkpoint of round " + std::to_string(copy.round.value) + " in " +
            run.spec.checkpoint.copy,
        {Field{"round", static_cast<std::int64_t>(copy.round.value)}, Field{"digest", to_hex(copy.digest)}});
}

}  // namespace atl::coordinator
