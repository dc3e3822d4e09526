// What islands say of rounds: contributions, exchanges, results; and round 0, on which everybody agrees.
#include <algorithm>
#include <limits>

#include "coordinator/core/core_state.hpp"
#include "transport/base/planted.hpp"

namespace atl::coordinator {
namespace {

constexpr std::uint64_t kRoundsAhead = 64;    // of the newest committed one that a contribution may be for
constexpr double kToldWait = 1.0;             // seconds that a trainer waited for a result, and
constexpr double kToldShare = 0.1;            // the share of a round: less is not worth an event
constexpr std::size_t kAccountedWaits = 256;  // of an island; its spans come within seconds

Contribution contribution_of(const atl::Ready& message) {
  return {false, std::max<std::uint64_t>(message.tokens, 1), message.fragment, message.norm, message.data, message.sequences};
}

}  // namespace

// Whether a member says this in the present epoch; else it is told what the present epoch is.
bool Core::State::current(Run& run, Membership& membership, Epoch epoch) {
  if (epoch != run.epoch || !run.is_member(membership.record.island)) {
    send(membership.record.island, new_epoch_of(run));
    return false;
  }
  return true;
}

// It did not hear that this round is committed.
void Core::State::answer_committed(Run& run, Membership& membership, Round round, const Digest& digest) {
  const Committed* found = run.lineage.recent(round);
  if (found == nullptr || (!digest.empty() && digest != found->digest)) {
    send(membership.record.island, new_epoch_of(run));
    return;
  }
  send(membership.record.island,
       Commit{run.about.id, run.epoch, round, found->attempt, found->digest, found->checkpoint, run.life.pauses_after() == round});
}

void Core::State::on_initial(Run& run, Membership& membership, const atl::Ready& message) {
  if (run.lineage.initialised()) {
    answer_committed(run, membership, Round(0), message.digest);
  } else if (current(run, membership, message.epoch) && membership.record.state == MembershipState::starting) {
    membership.entry.initial = message.digest;
    touch(run);
  }
}

// An island that waits repeats its answer until it hears of the round.
bool Core::State::says_nothing_new(const IslandId& id, const atl::Ready& message) const {
  const Island* island = islands.find(id);
  const auto run = runs.find(message.run);
  if (island == nullptr || !island->greeted || island->probe || island->leaving() || run == runs.end() || run->second.phased()) {
    return false;
  }
  const OpenRound* round = run->second.rounds().find(message.round);
  if (round == nullptr || round->recovered() || run->second.private_states()) {
    return false;
  }
  const Contribution* known = round->contribution_of(id);
  return known != nullptr && *known == contribution_of(message);
}

void Core::State::on_ready(Run& run, Membership& membership, const atl::Ready& message) {
  if (run.own(message.round)) {
    if (message.round > membership.progress.last.round) {
      forgive(run, membership);
    }
    membership.progress.last = LastContribution{message.round, message.tokens, message.training_loss, message.norm, 0, 0};
    run.data.count_in(message.data, message.sequences, out);
    membership.progress.settled =
        current(run, membership, message.epoch) || membership.progress.settled;  // one that missed a membership is told
    return;
  }
  if (message.round == Round(0)) {
    on_initial(run, membership, message);
    return;
  }
  if (!run.lineage.initialised()) {
    return;
  }
  if (message.round <= run.lineage.committed()) {
    answer_committed(run, membership, message.round, Digest{});
    return;
  }
  if (!current(run, membership, message.epoch) ||
      (!run.private_states() && message.round.value > run.lineage.committed().value + kRoundsAhead)) {
    return;
  }
  // With overlap it was said, or said again, before the island heard of the newest commits: any digest of the run's history will do.
  if (!run.private_states() && message.round == run.lineage.next() && message.digest != run.lineage.digest() &&
      !run.lineage.on_history(message.digest)) {
    leave_epoch(run, membership.record.island, "its state is not that of round " + std::to_string(run.lineage.committed().value), true);
    return;
  }
  if (const std::string why = run.data.stale(membership.record.part, message.data); !why.empty()) {
    leave_epoch(run, membership.record.island, why, true);
    return;
  }
  membership.progress.last = LastContribution{message.round, message.tokens, message.training_loss, message.norm, 0, 0};
  contribute(run, membership, message.round, contribution_of(message));
}

void Core::State::on_withdrawn(Run& run, Membership& membership, const Withdrawn& message) {
  if (run.own(message.round)) {
    if (message.round > membership.progress.last.round) {  // else it is repeated
      membership.progress.last = LastContribution{message.round, 0, std::numeric_limits<double>::quiet_NaN(), 0, 0, 0};
      reject(run, membership, message);
    }
    return;
  }
  if (!run.lineage.initialised()) {
    return;
  }
  if (message.round <= run.lineage.committed()) {
    answer_committed(run, membership, message.round, Digest{});
    return;
  }
  if (!current(run, membership, message.epoch) || message.round.value > run.lineage.committed().value + kRoundsAhead) {
    return;
  }
  if (const std::string why = run.data.stale(membership.record.part, message.data); !why.empty()) {
    leave_epoch(run, membership.record.island, why, true);
    return;
  }
  const OpenRound* round = run.rounds().find(message.round);
  const bool known = round != nullptr && round->answer_of(membership.record.island) == Answer::withdrawn;
  contribute(run, membership, message.round, Contribution{true, 0, 0, 0, message.data, 0});
  if (!known) {
    reject(run, membership, message);
  }
}

// The verdict of an island on its own contribution.
void Core::State::reject(Run& run, Membership& membership, const Withdrawn& message) {
  event(run.about.id, membership.record.island, "warning", "contribution_rejected",
        "the contribution of island " + islands.name_of(membership.record.island) + " to round " + std::to_string(message.round.value) +
            " does not count: " + bounded(message.error.why),
        {Field{"round", static_cast<std::int64_t>(message.round.value)}});
  if (message.error.code == Code::corrupt) {
    offend(run, membership.record.island, bounded(message.error.why, 512));
  }
}

void Core::State::contribute(Run& run, Membership& membership, Round round, const Contribution& contribution) {
  const IslandId& island = membership.record.island;
  if (const Island* leaver = islands.find(island); leaver != nullptr && leaver->leaving() && leaver->departure.contributes) {
    membership.leaves_after = std::max(membership.leaves_after.value_or(round), round);  // the one that it announced
    islands.contributed(island);
  }
  if (membership.leaves_after && round > *membership.leaves_after) {
    return;  // it is about to go; it must not be needed for one round after the other
  }
  OpenRound& open = run.rounds().open(round);
  const OpenRound::Acceptance acceptance = open.accepts(island);
  if (acceptance == OpenRound::Acceptance::no) {
    return;
  }
  if (acceptance == OpenRound::Acceptance::restarts) {
    abort(run, round, "the coordinator was restarted");
  }
  open.contribute(island, contribution, now());
  touch(run);
}

void Core::State::on_exchanged(Run& run, Membership& membership, const Exchanged& message) {
  if (run.own(message.round)) {
    note_bytes(membership, message);
    return;
  }
  if (!run.lineage.initialised()) {
    return;
  }
  if (message.round <= run.lineage.committed()) {
    answer_committed(run, membership, message.round, message.digest);
    return;
  }
  if (!ATOLL_PLANTED(stale_attempt) && !current(run, membership, message.epoch)) {
    return;
  }
  OpenRound* round = run.rounds().find(message.round);
  if (round == nullptr) {
    return;
  }
  const OpenRound::Report report = round->exchanged(membership.record.island, message, now());
  if (report == OpenRound::Report::stale) {
    send(membership.record.island, Abort{run.about.id, run.epoch, message.round, message.attempt, "the attempt was given up"});
  } else if (report == OpenRound::Report::counted) {
    note_bytes(membership, message);
    touch(run);
  }
}

// What the round's exchange moved, for the metrics of it.
void Core::State::note_bytes(Membership& membership, const Exchanged& message) const {
  if (membership.progress.last.round == message.round) {
    membership.progress.last.bytes_sent = message.bytes_sent;
    membership.progress.last.bytes_received = message.bytes_received;
  }
}

void Core::State::on_exchange_failed(Run& run, Membership& membership, const ExchangeFailed& message) {
  if (run.own(message.round) || message.round <= run.lineage.committed() || !current(run, membership, message.epoch)) {
    return;
  }
  OpenRound* round = run.rounds().find(message.round);
  const std::string text = islands.name_of(membership.record.island) + ": " + bounded(message.error.why, 512);
  if (round == nullptr || round->failed(membership.record.island, message, text, now()) == OpenRound::Report::stale) {
    send(membership.record.island, Abort{run.about.id, run.epoch, message.round, message.attempt, "the attempt was given up"});
    return;
  }
  touch(run);
}

void Core::State::on_merged(Run& run, Membership& membership, const Merged& message) {
  if (message.round <= membership.progress.merged && membership.progress.merged.value > 0) {
    return;
  }
  if (!run.own(message.round) && message.round > run.lineage.committed()) {
    return;
  }
  membership.progress.merged = message.round;
  membership.progress.settled = true;
  note_own_round(run, message.round);
  note_pair_round(run, membership, message);
  MetricRecord metric;
  metric.time = now();
  metric.run = run.about.id;
  metric.island = membership.record.island;
  metric.round = message.round;
  metric.step = message.step;
  metric.outer_loss = message.outer_loss;
  metric.local_loss = message.local_loss;
  metric.wait_seconds = message.wait_seconds;
  account_wait(run, membership, message.round, message.wait_seconds);
  const Island& island = islands.at(membership.record.island);
  if (membership.progress.last.round == message.round) {
    metric.training_loss = membership.progress.last.training_loss;
    metric.norm = membership.progress.last.norm;
    metric.tokens = membership.progress.last.tokens;
    metric.bytes_sent = membership.progress.last.bytes_sent;
    metric.bytes_received = membership.progress.last.bytes_received;
  } else {
    const auto report = island.reports.find(run.about.id);
    metric.training_loss = report == island.reports.end() ? std::numeric_limits<double>::quiet_NaN() : report->second.training_loss;
  }
  record(std::move(metric));
}

std::string Core::State::text_of(const WaitKey& key) const {
  switch (key.what) {
    case WaitFor::ready:
      return islands.name_of(key.island) + " to be ready";
    case WaitFor::link:
      return key.from.empty() ? "the exchange of " + islands.name_of(key.island)
                              : "the link " + islands.name_of(key.from) + " → " + islands.name_of(key.island);
    case WaitFor::commit:
      return "the coordinator to commit";
  }
  return "";
}

// Counts what an island waited for a round's result, by whom it waited for; a wait that matters is told.
void Core::State::account_wait(Run& run, Membership& membership, Round round, double wait_seconds) {
  const std::vector<RoundTimes> times = run.lineage.times_until(round);
  if (!(wait_seconds > 0) || run.own(round) || times.empty()) {
    return;
  }
  std::string causes;
  membership.progress.accounted.push_back({round, decide_wait_shares(times, wait_seconds, membership.record.island)});
  if (membership.progress.accounted.size() > kAccountedWaits) {
    membership.progress.accounted.pop_front();
  }
  for (const WaitShare& share : membership.progress.accounted.back().shares) {
    const WaitKey key{share.what, share.island, share.from};
    membership.progress.waits[key] += share.seconds;
    causes += (causes.empty() ? "" : ", ") + human_duration(from_seconds(share.seconds)) + " for " + text_of(key);
  }
  if (wait_seconds >= std::max(kToldWait, seconds(run.in_rounds().last_round) * kToldShare)) {
    event(run.about.id, membership.record.island, "info", "island_waited",
          "island " + islands.name_of(membership.record.island) + " waited for round " + std::to_string(round.value) + ": " + causes,
          {Field{"round", static_cast<std::int64_t>(round.value)}, Field{"seconds", wait_seconds}});
  }
}

// Round 0: every member says the digest of its initial state; the first one's stands.
void Core::State::advance_initial(Run& run) {
  const TimePoint deadline = run.last_commit + run.spec.islands.deadline;
  for (const auto& [id, island] : islands.all()) {
    const bool present = run.memberships.count(id) > 0 && run.memberships.at(id).record.state != MembershipState::absent;
    if (run.members.size() < run.spec.islands.max && !run.members.empty() &&
        (now() < deadline || run.members.size() < run.spec.islands.min) && !present && island.greeted && admits_name(run, island) &&
        obstacle_of(run, island).empty()) {
      add_membership(run, id, MembershipState::starting, StartFrom::scratch);
      run.members.push_back(id);
      new_epoch(run, island.record.name + " joined");
      send_invite(run, run.memberships.at(id));
    }
  }
  if (run.members.empty()) {
    run.epoch = run.epoch.next();
    set_state(run, RunState::queued, "the islands that it was starting on are gone");
    touch(run);
    return;
  }
  std::vector<std::string> starting;
  const Digest* digest = nullptr;
  std::size_t ready = 0;
  for (const IslandId& id : run.members) {
    Membership& membership = run.memberships.at(id);
    if (membership.entry.initial) {
      ++ready;
      digest = digest == nullptr ? &*membership.entry.initial : digest;
      continue;
    }
    starting.push_back(islands.name_of(id));
    if (due(membership.entry.resend)) {
      send_invite(run, membership);
    }
    wake_at(membership.entry.resend.next);
  }
  const InitialDecision decision = decide_initial({now(), deadline, run.spec.islands.min, ready, starting});
  if (decision.commit) {
    commit_initial(run, *digest);
    return;
  }
  run.wait = decision.wait;
  if (decision.wait.until) {
    wake_at(*decision.wait.until);
  }
}

void Core::State::commit_initial(Run& run, const Digest& chosen) {
  const Digest digest = chosen;
  RoundRecord value;
  value.run = run.about.id;
  value.lineage = run.lineage.number();
  value.epoch = run.epoch;
  value.committed = true;
  value.checkpoint = true;
  value.digest = digest;
  value.planned = now();
  value.committed_at = now();
  std::vector<std::pair<IslandId, std::string>> others;
  for (const IslandId& id : run.members) {
    Membership& membership = run.memberships.at(id);
    if (membership.entry.initial == digest) {
      value.members.push_back(id);
      value.tokens.push_back(0);
      membership.record.state = MembershipState::active;
      save(run, membership);
    } else {
      others.emplace_back(id,
                          membership.entry.initial ? "its initial state differs from the first island's" : "was not ready by the deadline");
    }
  }
  run.lineage.commit(Committed{Round(0), Attempt(0), digest, true, value.members});
  record(std::move(value));
  // A state that is agreed on exists only in later epochs than every order to begin from scratch: a late one is stale.
  new_epoch(run, "the initial state is agreed");
  for (const auto& [id, cause] : others) {
    leave_epoch(run, id, cause, false);
  }
  run.last_commit = now();
  event(run.about.id, {}, "info", "round_committed", "the initial state of run " + run.about.name + " is agreed",
        {Field{"round", std::int64_t{0}}, Field{"epoch", static_cast<std::int64_t>(run.epoch.value)},
         Field{"members", islands.names_of(run.members)}, Field{"digest", to_hex(digest)}});
  for (const IslandId& id : run.members) {
    send(id, Commit{run.about.id, run.epoch, Round(0), Attempt(0), digest, true});
  }
  touch(run);
}

}  // namespace atl::coordinator
