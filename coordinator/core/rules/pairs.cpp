// Runs whose islands meet in pairs: the coordinator keeps the membership and learns of the rest by reports. Every island commits its
// own rounds; only the rounds at the end, which merge all islands' outer parameters, are planned and committed here (round_path.cpp).
#include <algorithm>
#include <cmath>
#include <functional>

#include "coordinator/core/core_state.hpp"
#include "coordinator/core/rules/own_state_rule.hpp"

namespace atl::coordinator {

namespace {

// The mean squared distance of islands to their mean, from their projections (strategies/projection.hpp states its variance), as its root.
double spread_of(const std::vector<const std::vector<float>*>& projections) {
  if (projections.empty()) {
    return 0;
  }
  double sum = 0;
  const std::size_t size = projections.front()->size();
  for (std::size_t k = 0; k < size; ++k) {
    double mean = 0;
    for (const std::vector<float>* projection : projections) {
      mean += static_cast<double>((*projection)[k]) / static_cast<double>(projections.size());
    }
    for (const std::vector<float>* projection : projections) {
      const double difference = static_cast<double>((*projection)[k]) - mean;
      sum += difference * difference / static_cast<double>(projections.size());
    }
  }
  return std::sqrt(sum);
}

}  // namespace

bool GossipRule::merging(const Run& run) const { return run.lineage.committed() >= run.terms().last_trained() && !run.at_end(); }

Status GossipRule::pause(Run& run) {
  if (merging(run) && !run.life.is(RunState::paused) && !run.life.pausing()) {
    return Error{Code::conflict, "run " + run.about.name +
                                     " has taken its last round, and its islands are merged into one model: it is complete in a moment"};
  }
  return RoundRule::pause(run);
}

void GossipRule::on_merged_newer(Run& run, Membership& membership, const Merged& message) {
  OwnStateRule::on_merged_newer(run, membership, message);
  note_pair_round(run, membership, message);
}

void GossipRule::come_to(Run& run, Membership& membership, const CaughtUp& message) {
  const std::optional<CatchUp>& order = membership.entry.catch_up();
  if (!run.at_end() && order && order->committed == message.round && order->digest == message.digest) {
    membership.progress.merged = message.round;
    core_.activate(run, membership);
  }
}

// The merges at the end go around paths by themselves.
PlaceCouples GossipRule::paths_to_avoid(const Run& run) const {
  return merging(run) ? PlaceCouples() : core_.data_paths.to_avoid(run.members);
}

// Whom an island meets is a function of what it was told with its epoch: other paths to avoid are an epoch of their own.
void GossipRule::draw_around_paths(Run& run) {
  if (const std::optional<TimePoint> change = core_.data_paths.paths().next_change(now())) {
    wake_at(*change);
  }
  if (!run.members.empty() && paths_to_avoid(run) != run.avoid) {
    core_.new_epoch(run, "its pairs avoid other paths than before");
  }
}

// What the round brought on an island; once all have reported it, how far they are apart.
void GossipRule::note_pair_round(Run& run, Membership& membership, const Merged& message) {
  membership.progress.progressed = now();
  if (message.projection.empty()) {
    return;
  }
  membership.progress.projection = message.projection;
  membership.progress.projected = message.round;
  std::vector<const std::vector<float>*> projections;
  Round oldest = message.round;
  for (const IslandId& id : run.members) {
    const Membership& other = run.memberships.at(id);
    if (other.progress.projection.size() != message.projection.size()) {
      return;
    }
    projections.push_back(&other.progress.projection);
    oldest = std::min(oldest, other.progress.projected);
  }
  if (projections.size() < 2 || oldest <= run.in_rounds().spread_round) {
    return;
  }
  run.in_rounds().spread_round = oldest;
  run.in_rounds().spread = spread_of(projections);
  event(run.about.id, {}, "info", "consensus",
        "round " + std::to_string(oldest.value) + " of run " + run.about.name + ": " + std::to_string(projections.size()) +
            " islands are at a distance of " + std::to_string(run.in_rounds().spread) + " from their mean (estimated)",
        {Field{"round", static_cast<std::int64_t>(oldest.value)}, Field{"islands", static_cast<std::int64_t>(projections.size())},
         Field{"distance", run.in_rounds().spread}});
}

void GossipRule::hear(Run& run, Membership& membership, const PairQuery& message) {
  if (message.asker == membership.record.island && current(run, membership, message.asked_in) && run.is_member(message.asked)) {
    send(message.asked, message);
  }
}

void GossipRule::hear(Run& run, Membership& membership, const PairAnswer& message) {
  if (message.answerer == membership.record.island && current(run, membership, message.asked_in) && run.is_member(message.asker)) {
    send(message.asker, message);
  }
}

// A joiner, or one that comes back, copies the state of one island; where nobody has any, everyone goes on from its own checkpoint.
void GossipRule::advance_pair_joins(Run& run) {
  const bool others = std::any_of(run.members.begin(), run.members.end(), [&](const IslandId& id) { return islands_.alive(id); });
  if (!others) {
    return;
  }
  for (auto& [id, membership] : run.memberships) {
    membership.entry.offer_memory(false);  // whoever left the epoch comes back with another's state: what it decided with partners is void
  }
  // Once the islands are being merged nobody is needed that copies one of them, but for their number.
  // Nor does anybody come in when the run is about to be paused.
  const bool late = run.lineage.committed().value + run.spec.merge_rounds >= run.spec.rounds || run.life.pausing();
  if (!late || run.members.size() < run.spec.islands.min) {
    invite_joiners(run);
  }
  offer(run);
  for (auto& [id, membership] : run.memberships) {
    if (membership.record.state != MembershipState::joining) {
      continue;
    }
    if (membership.entry.due(out_)) {
      invite(run, membership);
      membership.entry.drop_order();
    }
    wake_at(membership.entry.next_repeat());
    if (membership.entry.catch_up()) {
      continue;
    }
    // The furthest; after a try that failed another one.
    std::vector<const Membership*> sources;
    for (const IslandId& member : run.members) {
      if (const Membership& candidate = run.memberships.at(member); candidate.source.offering && candidate.source.offered) {
        sources.push_back(&candidate);
      }
    }
    std::ranges::stable_sort(sources, std::greater<>(), [](const Membership* one) { return one->source.offered->round; });
    if (!sources.empty()) {
      const Membership* source = sources[membership.entry.failures() % sources.size()];
      const Checkpointed& has = *source->source.offered;
      membership.entry.ordered(CatchUp{run.about.id,
                                       run.epoch,
                                       has.round,
                                       has.file,
                                       has.file_bytes,
                                       has.round,
                                       has.digest,
                                       {islands_.member_of(source->record.island)},
                                       0,
                                       0},
                               out_);
      const Member joiner = islands_.member_of(id);
      send(source->record.island, Serve{run.about.id, joiner.public_key, has.round, true, joiner.bulk_address});
      send(id, *membership.entry.catch_up());
    }
  }
}

// Everybody was lost while all islands' outer parameters were merged. Whoever has a checkpoint of the newest merge goes on from there and
// the others copy it; without one everybody merges anew what it had before. False: not yet.
bool GossipRule::restore_merged(Run& run) {
  const TimePoint until = run.nobody_since + settings_.restore_grace;
  if (now() < until) {
    run.wait = Wait{"waits for the islands that were being merged", until};
    wake_at(until);
    return false;
  }
  const Round own = run.terms().last_trained();
  run.lineage.allow(own);
  const auto genuine = [&](const HeldCheckpoint& held) { return held.round > own && run.lineage.confirms(held.round, held.digest); };
  Round newest = own;
  bool anybody = false;
  for (const auto& [id, membership] : run.memberships) {
    if (membership.record.state == MembershipState::absent && core_.may_come_back(run, id)) {
      anybody = true;
      for (const HeldCheckpoint& held : islands_.held(id, run.about.id).checkpoints) {
        newest = genuine(held) ? std::max(newest, held.round) : newest;
      }
    }
  }
  if (!anybody) {
    run.wait = Wait{"waits for the islands that were being merged", std::nullopt};
    return false;
  }
  if (newest < run.lineage.committed()) {
    roll_back(run, newest);
  }
  for (auto& [id, membership] : run.memberships) {
    if (newest == own || membership.record.state != MembershipState::absent || !core_.may_come_back(run, id)) {
      continue;
    }
    const std::vector<HeldCheckpoint>& held = islands_.held(id, run.about.id).checkpoints;
    if (std::any_of(held.begin(), held.end(),
                    [&](const HeldCheckpoint& checkpoint) { return checkpoint.round == newest && genuine(checkpoint); })) {
      core_.add_membership(run, id, MembershipState::absent, StartFrom::checkpoint);
      membership.entry.assign(newest);
      core_.activate(run, membership);
      invite(run, membership);
    }
  }
  return true;
}

// Who left last, of those that have the run's state, and of all.
OwnCopies GossipRule::own_copies(const Run& run) const {
  OwnCopies copies;
  Epoch last;
  Epoch last_here;
  for (const auto& [id, membership] : run.memberships) {
    if (membership.record.state == MembershipState::absent) {
      last = std::max(last, membership.record.left);
      last_here = has_state(run, id) ? std::max(last_here, membership.record.left) : last_here;
    }
  }
  for (const auto& [id, membership] : run.memberships) {
    if (membership.record.state != MembershipState::absent) {
      continue;
    }
    const bool free = core_.may_come_back(run, id);
    copies.anybody = copies.anybody || free;
    if (has_state(run, id) && membership.record.left == last_here) {
      copies.newest.push_back(id);
    } else if (!has_state(run, id) && free) {
      copies.without.push_back(id);
    }
    if ((!islands_.alive(id) || !core_.serves_another(run, id).empty()) && membership.record.left == last) {
      copies.missing.push_back(islands_.name_of(id));
    }
  }
  return copies;
}

// Nobody takes part. Those who left last go on, all in one epoch, so that they meet as they would have met: from memory, or from their own
// checkpoints. The others copy one of them: what they decided with partners may be void, since those were told that they had left.
void GossipRule::restore_own(Run& run) {
  bool begun = run.data.begun();
  for (auto& [id, membership] : run.memberships) {
    if (membership.record.state == MembershipState::joining) {
      core_.vacate(run, membership, MembershipState::absent, "the islands that it copied from are gone");
      membership.entry.retry(now());
    }
    begun = begun || membership.progress.merged > Round(0);
  }
  const OwnCopies copies = own_copies(run);
  if (!copies.anybody) {
    return;  // the reason is that of advance_alone
  }
  const TimePoint until = run.nobody_since + settings_.restore_grace;
  if (const std::optional<Wait> wait = decide_own_restore({now(), until, copies.missing, !copies.newest.empty(), begun})) {
    run.wait = *wait;
    if (wait->until) {
      wake_at(*wait->until);
    }
    return;
  }
  std::vector<IslandId> chosen = copies.newest.empty() ? copies.without : copies.newest;
  chosen.resize(std::min<std::size_t>(chosen.size(), run.spec.islands.max));
  for (const IslandId& id : chosen) {
    admit_with_own_state(run, id, MembershipState::absent);
  }
  core_.activate(run, chosen);
  for (const IslandId& id : chosen) {
    if (run.memberships.at(id).entry.from() != StartFrom::memory) {
      invite(run, run.memberships.at(id));
    }
  }
}

// A connected island that could go on by itself.
bool GossipRule::has_state(const Run& run, const IslandId& id) const {
  const HeldRun& held = islands_.held(id, run.about.id);
  return core_.may_come_back(run, id) && (held.live || !held.checkpoints.empty());
}

void GossipRule::advance(Run& run) {
  const bool ended = std::any_of(run.memberships.begin(), run.memberships.end(),
                                 [](const auto& membership) { return membership.second.record.state == MembershipState::ended; });
  if (run.members.empty() && !ended && run.spec.merge_rounds > 0 && !islands_commit(run, run.lineage.committed()) && !restore_merged(run)) {
    return;
  }
  if (run.at_end()) {
    core_.advance_end(run);
    return;
  }
  if (run.life.pausing() && run.members.empty() && run.life.enough().empty()) {
    core_.pause_now(run);
    return;
  }
  advance_pair_joins(run);
  advance_alone(run, false);
  draw_around_paths(run);
  if (run.members.empty() && !run.life.over() && !ended) {
    restore_own(run);
  }
  if (run.life.pausing() && !run.life.over()) {
    advance_pause(run);
    return;
  }
  if (run.life.over() || run.members.empty() || run.spec.merge_rounds == 0) {
    return;
  }
  const Round own = run.terms().last_trained();
  const Round number(std::max(run.lineage.committed().value, own.value) + 1);
  const OpenRound* merge = run.rounds().find(number);
  if (merge == nullptr) {
    return;
  }
  // Whoever still has rounds to do is waited for as long as it gets on with them.
  std::vector<std::string> pending;
  TimePoint until = now();
  for (const IslandId& id : run.members) {
    if (merge->contribution_of(id) == nullptr) {
      pending.push_back(islands_.name_of(id));
      until = std::max(
          until, std::max(run.memberships.at(id).progress.progressed, merge->first_answer().value_or(now())) + run.spec.islands.deadline);
    }
  }
  if (const std::optional<Wait> wait = decide_merge({now(), until, pending, merge->exchanging()})) {
    run.wait = *wait;
    wake_at(until);
    return;
  }
  if (run.lineage.committed() < own) {
    run.lineage.reach(own);
  }
  run.wait = Wait{};
  advance_rounds(run);
}

}  // namespace atl::coordinator
