// Who comes, or comes back, while others have the state: from memory, or from peers.
#include <algorithm>
#include <functional>
#include <utility>

#include "coordinator/core/core_state.hpp"
#include "coordinator/core/rules/shared_rule.hpp"

namespace atl::coordinator {
namespace {

constexpr Duration kOfferPatience = std::chrono::seconds(2);  // for the other sources, once one has a checkpoint

// Whether it came to what it was told, which took so long that the round is no longer known: it would be told of that for ever.
bool forget_order(Membership& membership, const CaughtUp& message, TimePoint now) {
  const std::optional<CatchUp>& order = membership.entry.catch_up();
  if (!order || order->committed != message.round || order->digest != message.digest) {
    return false;
  }
  membership.entry.drop_progress();
  membership.entry.repeat_at(now);
  return true;
}

// The newest checkpoint, of several files the one that most offer; after a try that failed another one. Nothing: nobody offers any.
std::optional<Checkpointed> offer_for(const Membership& joiner, std::vector<Checkpointed> offers) {
  const auto supporters = [&offers](const Digest& file) { return std::ranges::count(offers, file, &Checkpointed::file); };
  std::vector<Checkpointed> files;
  for (const Checkpointed& offer : offers) {
    if (std::ranges::find(files, offer.file, &Checkpointed::file) == files.end()) {
      files.push_back(offer);
    }
  }
  std::ranges::stable_sort(files, std::greater<>(),
                           [&](const Checkpointed& offer) { return std::pair(offer.round, supporters(offer.file)); });
  return files.empty() ? std::nullopt : std::optional(files[joiner.entry.failures() % files.size()]);
}

}  // namespace

void SharedRule::advance_joins(Run& run) {
  if (run.life.pausing() && run.members.size() >= run.spec.islands.min) {
    return;  // nobody comes in any more: the run is about to be paused
  }
  readmit(run);
  if (!run.members.empty()) {
    invite_joiners(run);
    offer(run);
    for (auto& [id, membership] : run.memberships) {
      if (membership.record.state == MembershipState::joining) {
        order_catch_up(run, membership);
      }
    }
    admit_joiners(run);
  }
}

// An island that was away and still has the state of the newest round: it goes on where it was.
void SharedRule::readmit(Run& run) {
  if (run.lineage.restored()) {
    return;  // of a backup: first it is found out how far the run is
  }
  const bool exchanging = run.rounds().any_exchanging();
  for (auto& [id, membership] : run.memberships) {
    if (!membership.entry.memory_offered() || membership.record.state != MembershipState::absent || !core_.may_come_back(run, id) ||
        now() < membership.entry.retry_at()) {
      continue;
    }
    if (!core_.is_free_for(run, id)) {
      continue;  // it may have another task by now
    }
    const HeldRun& held = islands_.held(id, run.about.id);
    if (held.committed != run.lineage.committed() || held.digest != run.lineage.digest() || run.members.size() >= run.spec.islands.max) {
      membership.entry.offer_memory(false);
    } else if (!exchanging && core_.data_paths.reaches(id, run) && islands_.trains(id, run.about.id).value_or(true)) {
      membership.entry.start_from(StartFrom::memory);
      core_.activate(run, membership);
    }
  }
}

// Sends a joiner what it should come to next, if that has changed, or again if it has not answered.
void SharedRule::order_catch_up(Run& run, Membership& membership) {
  const IslandId island = membership.record.island;
  const bool stale = membership.entry.catch_up() && membership.entry.caught_up() && membership.entry.lacks(run.lineage.committed()) &&
                     membership.entry.catch_up()->committed < run.lineage.committed();
  bool again = membership.entry.due(out_);
  wake_at(membership.entry.next_repeat());
  if (again && membership.entry.lacks(run.lineage.committed())) {
    invite(run, membership);
  }
  if ((membership.entry.from_checkpoint() && !membership.entry.caught_up()) || !takes_state(run, island)) {
    return;
  }
  if (!membership.entry.catch_up() || stale) {
    std::vector<Checkpointed> offers;
    bool all_told = true;
    for (const IslandId& id : run.members) {
      const Source& source = run.memberships.at(id).source;
      all_told = all_told && (!source.offering || source.offered);
      if (source.offering && source.offered) {
        offers.push_back(*source.offered);
      }
    }
    const std::optional<Checkpointed> best = offer_for(membership, std::move(offers));
    if (!best || (!all_told && run.in_rounds().offers_since && now() < *run.in_rounds().offers_since + kOfferPatience)) {
      if (best) {
        wake_at(*run.in_rounds().offers_since + kOfferPatience);
      }
      return;
    }
    CatchUp order{run.about.id,         run.epoch, best->round, best->file, best->file_bytes, run.lineage.committed(),
                  run.lineage.digest(), {},        0,           0};
    for (const IslandId& id : run.members) {
      const Membership& source = run.memberships.at(id);
      if (source.source.offering && source.source.offered && source.source.offered->round == best->round &&
          source.source.offered->file == best->file) {
        order.sources.push_back(islands_.member_of(id));
      }
    }
    membership.entry.ordered(std::move(order), out_);
    again = true;
  }
  if (again && membership.entry.lacks(membership.entry.catch_up()->committed)) {
    const CatchUp& order = membership.entry.repeat_order(
        run.epoch, membership.record.part,
        run.data.position(membership.record.part, run.lineage.parts_after(membership.entry.catch_up()->committed)));
    const Member joiner = islands_.member_of(island);
    for (const Member& source : order.sources) {
      send(source.island, Serve{run.about.id, joiner.public_key, order.checkpoint_round, true, joiner.bulk_address});
    }
    send(island, order);
  }
}

void SharedRule::admit_joiners(Run& run) {
  for (const IslandId& id : decide_admission(admission_input(run)).admit) {
    core_.activate(run, run.memberships.at(id));
  }
}

// Whoever joins copies the state while the others stand: not before it can train.
bool LockstepRule::takes_state(const Run& run, const IslandId& joiner) const {
  return islands_.trains(joiner, run.about.id).value_or(false);
}

// All members write the same bytes. Whose file is another than that of more than half of them leaves; of one word against another nobody
// can tell which is true.
void SharedRule::compare_files(Run& run, const IslandId& teller, Round round) {
  const Lineage::OtherFiles others = run.lineage.other_files(round, run.members);
  const std::string what = "outer state of round " + std::to_string(round.value);
  if (!others.islands.empty() && !others.known) {
    event(run.about.id, teller, "warning", "state_differs",
          "the islands' " + what + " differs although all its rounds agree, at " + list_of(islands_.names_of(others.islands)) +
              " from others: which memory or disk is faulty cannot be told yet");
    return;
  }
  for (const IslandId& id : others.islands) {
    event(run.about.id, id, "error", "state_differs",
          "island " + islands_.name_of(id) + "'s " + what +
              " differs from its peers' although all its rounds agree: its memory or disk is faulty");
    islands_.keeps_not(id, run.about.id, round);
    core_.leave_epoch(run, id, "its " + what + " differs from its peers'", true);
    core_.release(id, run);
    core_.offend(run, id, "its " + what + " differs from its peers'");
  }
}

// Whether a checkpoint is of the run's present history, and the same as its peers'. An island whose checkpoint differs leaves the epoch.
bool SharedRule::takes_checkpoint(Run& run, Membership& membership, const Checkpointed& message) {
  const IslandId island = membership.record.island;
  if (!run.lineage.confirms(message.round, message.digest)) {
    return false;  // of rounds that were given up
  }
  if (const bool news = run.lineage.tell_file(message.round, island, message.file); news && compares_files() && run.is_member(island)) {
    compare_files(run, island, message.round);
    if (!run.is_member(island)) {
      return false;
    }
  }
  run.lineage.has_checkpoint(message.round);
  return true;
}

bool SharedRule::has_newest(const Run& run, const CaughtUp& message) const {
  return !message.error && message.round == run.lineage.committed() && message.digest == run.lineage.digest();
}

// A joiner has come to the state that it was told of.
void SharedRule::come_to(Run& run, Membership& membership, const CaughtUp& message) {
  if (membership.entry.from_checkpoint() && message.round != membership.entry.assigned()) {
    return;  // of an earlier order, or of what it had in memory: neither is the checkpoint that it was asked for since
  }
  if (!run.lineage.confirms(message.round, message.digest)) {
    if (forget_order(membership, message, now())) {
      touch(run);
    }
    return;  // else of an older lineage
  }
  if (!membership.entry.lacks(message.round)) {
    return;
  }
  membership.entry.come_to(message.round, now());
  touch(run);
  if (run.members.empty() && membership.entry.from_checkpoint()) {
    run.in_rounds().loaded_since = run.in_rounds().loaded_since.value_or(now());  // all that load begin together
    return;
  }
  membership.entry.start_from(StartFrom::peers);
}

}  // namespace atl::coordinator
