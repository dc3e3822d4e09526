// What is exchanged and committed: contributions, attempts, commits.
#include <algorithm>
#include <limits>

#include "coordinator/core/core_state.hpp"
#include "strategies/specification/run_rules.hpp"
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
  if (epoch != run.record.epoch || !run.is_member(membership.record.island)) {
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
       Commit{run.record.id, run.record.epoch, round, found->attempt, found->digest, found->checkpoint, run.record.pause_after == round});
}

void Core::State::on_initial(Run& run, Membership& membership, const atl::Ready& message) {
  if (run.lineage.initialised()) {
    answer_committed(run, membership, Round(0), message.digest);
  } else if (current(run, membership, message.epoch) && membership.record.state == MembershipState::starting) {
    membership.initial = message.digest;
    changed = true;
  }
}

// An island that waits repeats its answer until it hears of the round.
bool Core::State::says_nothing_new(const IslandId& id, const atl::Ready& message) const {
  const Island* island = islands.find(id);
  const auto run = runs.find(message.run);
  if (island == nullptr || !island->greeted || island->probe || island->leaving() || run == runs.end()) {
    return false;
  }
  const auto flight = run->second.rounds.find(message.round);
  if (flight == run->second.rounds.end() || flight->second.recovered || run->second.private_states()) {
    return false;
  }
  const auto known = flight->second.contributions.find(id);
  return known != flight->second.contributions.end() && known->second == contribution_of(message);
}

void Core::State::on_ready(Run& run, Membership& membership, const atl::Ready& message) {
  if (run.own(message.round)) {
    if (message.round > membership.last.round) {
      forgive(run, membership);
    }
    membership.last = LastContribution{message.round, message.tokens, message.training_loss, message.norm, 0, 0};
    run.data.count_in(message.data, message.sequences, out);
    membership.settled = current(run, membership, message.epoch) || membership.settled;  // one that missed a membership is told
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
  membership.last = LastContribution{message.round, message.tokens, message.training_loss, message.norm, 0, 0};
  contribute(run, membership, message.round, contribution_of(message));
}

void Core::State::on_withdrawn(Run& run, Membership& membership, const Withdrawn& message) {
  if (run.own(message.round)) {
    if (message.round > membership.last.round) {  // else it is repeated
      membership.last = LastContribution{message.round, 0, std::numeric_limits<double>::quiet_NaN(), 0, 0, 0};
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
  const auto flight = run.rounds.find(message.round);
  const bool known = flight != run.rounds.end() && flight->second.contributions.count(membership.record.island) > 0 &&
                     flight->second.contributions.at(membership.record.island).withdrawn;
  contribute(run, membership, message.round, Contribution{true, 0, 0, 0, message.data, 0});
  if (!known) {
    reject(run, membership, message);
  }
}

// The verdict of an island on its own contribution.
void Core::State::reject(Run& run, Membership& membership, const Withdrawn& message) {
  event(run.record.id, membership.record.island, "warning", "contribution_rejected",
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
  RoundInFlight& flight = run.rounds[round];
  if (flight.exchanging) {
    // A repeated answer. If a former coordinator planned this attempt, this island never heard of it, or gave it up.
    const bool planned = std::find(flight.members.begin(), flight.members.end(), island) != flight.members.end();
    if (!flight.recovered || !planned || flight.exchanged.count(island) > 0) {
      return;
    }
    abort(run, round, "the coordinator was restarted");
  }
  if (flight.contributions.count(island) == 0) {
    flight.last_ready = island;
  }
  flight.contributions[island] = contribution;
  if (!flight.first_answer) {
    flight.first_answer = now();
  }
  changed = true;
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
  const auto found = run.rounds.find(message.round);
  if (found == run.rounds.end()) {
    return;
  }
  RoundInFlight& flight = found->second;
  if (!flight.exchanging || (message.attempt != flight.attempt && !ATOLL_PLANTED(stale_attempt))) {
    if (!flight.exchanging || message.attempt < flight.attempt) {
      send(membership.record.island, Abort{run.record.id, run.record.epoch, message.round, message.attempt, "the attempt was given up"});
    }
    return;
  }
  if (flight.exchanged.count(membership.record.island) == 0) {
    // Not who says so last: where the round before held them up, all say it at once.
    if (message.arrived_seconds > flight.arrived_seconds) {
      flight.last_exchanged = membership.record.island;
      flight.slowest = message.slowest;
      flight.arrived_seconds = message.arrived_seconds;
    }
    flight.all_exchanged = now();
  }
  flight.exchanged[membership.record.island] = message.digest;
  flight.failed.erase(membership.record.island);
  note_bytes(membership, message);
  changed = true;
}

// What the round's exchange moved, for the metrics of it.
void Core::State::note_bytes(Membership& membership, const Exchanged& message) const {
  if (membership.last.round == message.round) {
    membership.last.bytes_sent = message.bytes_sent;
    membership.last.bytes_received = message.bytes_received;
  }
}

void Core::State::on_exchange_failed(Run& run, Membership& membership, const ExchangeFailed& message) {
  if (run.own(message.round) || message.round <= run.lineage.committed() || !current(run, membership, message.epoch)) {
    return;
  }
  const auto found = run.rounds.find(message.round);
  if (found == run.rounds.end() || !found->second.exchanging || message.attempt != found->second.attempt) {
    send(membership.record.island, Abort{run.record.id, run.record.epoch, message.round, message.attempt, "the attempt was given up"});
    return;
  }
  RoundInFlight& flight = found->second;
  if (!flight.first_failure) {
    flight.first_failure = now();
    flight.failure = islands.name_of(membership.record.island) + ": " + bounded(message.error.why, 512);
  }
  flight.exchanged.erase(membership.record.island);
  flight.failed[membership.record.island] = message.accused;
  changed = true;
}

void Core::State::on_merged(Run& run, Membership& membership, const Merged& message) {
  if (message.round <= membership.merged && membership.merged.value > 0) {
    return;
  }
  if (!run.own(message.round) && message.round > run.lineage.committed()) {
    return;
  }
  membership.merged = message.round;
  membership.settled = true;
  note_own_round(run, message.round);
  note_pair_round(run, membership, message);
  MetricRecord metric;
  metric.time = now();
  metric.run = run.record.id;
  metric.island = membership.record.island;
  metric.round = message.round;
  metric.step = message.step;
  metric.outer_loss = message.outer_loss;
  metric.local_loss = message.local_loss;
  metric.wait_seconds = message.wait_seconds;
  account_wait(run, membership, message.round, message.wait_seconds);
  const Island& island = islands.at(membership.record.island);
  if (membership.last.round == message.round) {
    metric.training_loss = membership.last.training_loss;
    metric.norm = membership.last.norm;
    metric.tokens = membership.last.tokens;
    metric.bytes_sent = membership.last.bytes_sent;
    metric.bytes_received = membership.last.bytes_received;
  } else {
    const auto report = island.reports.find(run.record.id);
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
  membership.accounted.push_back({round, decide_wait_shares(times, wait_seconds, membership.record.island)});
  if (membership.accounted.size() > kAccountedWaits) {
    membership.accounted.pop_front();
  }
  for (const WaitShare& share : membership.accounted.back().shares) {
    const WaitKey key{share.what, share.island, share.from};
    membership.waits[key] += share.seconds;
    causes += (causes.empty() ? "" : ", ") + human_duration(from_seconds(share.seconds)) + " for " + text_of(key);
  }
  if (wait_seconds >= std::max(kToldWait, seconds(run.last_round) * kToldShare)) {
    event(run.record.id, membership.record.island, "info", "island_waited",
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
    run.record.epoch = run.record.epoch.next();
    set_state(run, RunState::queued, "the islands that it was starting on are gone");
    changed = true;
    return;
  }
  std::vector<std::string> starting;
  const Digest* digest = nullptr;
  std::size_t ready = 0;
  for (const IslandId& id : run.members) {
    Membership& membership = run.memberships.at(id);
    if (membership.initial) {
      ++ready;
      digest = digest == nullptr ? &*membership.initial : digest;
      continue;
    }
    starting.push_back(islands.name_of(id));
    if (due(membership.resend)) {
      send_invite(run, membership);
    }
    wake_at(membership.resend.next);
  }
  if (ready >= std::max<std::size_t>(1, run.spec.islands.min) && (starting.empty() || now() >= deadline)) {
    commit_initial(run, *digest);
  } else if (starting.empty()) {
    run.wait = Wait{"waits for " + std::to_string(run.spec.islands.min - ready) + " more islands (needs " +
                        std::to_string(run.spec.islands.min) + ", has " + std::to_string(ready) + ")",
                    std::nullopt};
  } else {
    run.wait = Wait{list_of(starting) + (starting.size() == 1 ? " is" : " are") + " starting", deadline};
    if (now() < deadline) {
      wake_at(deadline);
    } else {  // fewer than min are there: only their answers help
      run.wait.until.reset();
      run.wait.text += "; the deadline has passed, but only " + std::to_string(ready) + " of at least " +
                       std::to_string(run.spec.islands.min) + " are ready";
    }
  }
}

void Core::State::commit_initial(Run& run, const Digest& chosen) {
  const Digest digest = chosen;
  RoundRecord value;
  value.run = run.record.id;
  value.lineage = run.lineage.number();
  value.epoch = run.record.epoch;
  value.committed = true;
  value.checkpoint = true;
  value.digest = digest;
  value.planned = now();
  value.committed_at = now();
  std::vector<std::pair<IslandId, std::string>> others;
  for (const IslandId& id : run.members) {
    Membership& membership = run.memberships.at(id);
    if (membership.initial == digest) {
      value.members.push_back(id);
      value.tokens.push_back(0);
      membership.record.state = MembershipState::active;
      save(run, membership);
    } else {
      others.emplace_back(id, membership.initial ? "its initial state differs from the first island's" : "was not ready by the deadline");
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
  event(run.record.id, {}, "info", "round_committed", "the initial state of run " + run.record.name + " is agreed",
        {Field{"round", std::int64_t{0}}, Field{"epoch", static_cast<std::int64_t>(run.record.epoch.value)},
         Field{"members", islands.names_of(run.members)}, Field{"digest", to_hex(digest)}});
  for (const IslandId& id : run.members) {
    send(id, Commit{run.record.id, run.record.epoch, Round(0), Attempt(0), digest, true});
  }
  changed = true;
}

void Core::State::advance_rounds(Run& run) {
  if (run.members.empty()) {
    return;
  }
  static_cast<void>(run.rounds[run.lineage.next()]);
  std::vector<Round> numbers;
  for (const auto& [number, flight] : run.rounds) {
    numbers.push_back(number);
  }
  for (const Round number : numbers) {
    const auto flight = run.rounds.find(number);
    if (flight == run.rounds.end() || has_ended(run.record.state)) {
      continue;
    }
    if (flight->second.exchanging) {
      advance_exchanging(run, number);
    } else {
      advance_collecting(run, number);
    }
  }
}

void Core::State::advance_collecting(Run& run, Round number) {
  RoundInFlight& flight = run.rounds.at(number);
  RoundInput input;
  input.now = now();
  input.round = number;
  input.min = run.spec.islands.min;
  input.first_answer = flight.first_answer;
  input.deadline = run.spec.islands.deadline;
  if (number == run.lineage.next()) {
    input.begun = run.last_commit;
    input.straggler_factor = run.spec.islands.straggler_factor;
  }
  keep_pace(run, number);
  for (const IslandId& id : run.members) {
    const auto answer = flight.contributions.find(id);
    input.members.push_back(RoundMember{id, islands.name_of(id),
                                        answer == flight.contributions.end() ? Answer::none
                                        : answer->second.withdrawn           ? Answer::withdrawn
                                                                             : Answer::ready});
  }
  input.hold = hold_for_joiners(run);
  RoundDecision decision = decide_round(input);
  if (decision.wait.until) {
    wake_at(*decision.wait.until);
  }
  if (run.wait.text.empty()) {
    run.wait = decision.wait;
  }
  if (decision.kind == RoundDecision::Kind::hopeless) {
    end_run(run, RunState::failed, decision.wait.text, Error{Code::corrupt, decision.wait.text});
  } else if (decision.kind == RoundDecision::Kind::plan) {
    for (const IslandId& id : decision.left_out) {
      leave_epoch(run, id, decision.why_left_out, !decision.stragglers);
    }
    if (run.members.size() >= run.spec.islands.min) {
      reject_exploding(run, number);
      if (run.rounds.count(number) == 0 ||
          !std::all_of(decision.participants.begin(), decision.participants.end(), [&](const IslandId& id) { return run.is_member(id); })) {
        return;  // somebody was quarantined: what that means is decided anew
      }
      plan(run, number, decision.participants);
    }
  }
}

// Adaptive pace: once the first island has come to the synchronisation point the others are told to come as they are.
void Core::State::keep_pace(Run& run, Round number) {
  RoundInFlight& flight = run.rounds.at(number);
  if (run.spec.strategy.pace != Pace::adaptive || run.private_states() || flight.contributions.empty()) {
    return;
  }
  const bool again = due(flight.cut);
  for (const IslandId& id : run.members) {
    if (again && flight.contributions.count(id) == 0) {
      send(id, Cut{run.record.id, run.record.epoch, number});
    }
  }
  wake_at(flight.cut.next);
}

// Contributions whose norm is out of all proportion do not count: their islands receive the result, and are named.
void Core::State::reject_exploding(Run& run, Round number) {
  RoundInFlight& flight = run.rounds.at(number);
  std::vector<std::pair<IslandId, double>> norms;
  std::uint32_t fragment = 0;
  for (const auto& [id, contribution] : flight.contributions) {
    if (!contribution.withdrawn) {
      norms.emplace_back(id, contribution.norm);
      fragment = contribution.fragment;
    }
  }
  const NormDecision decision = run.guards.judge(fragment, std::move(norms));
  for (const auto& [id, why] : decision.rejected) {
    Contribution& contribution = flight.contributions.at(id);
    const double norm = contribution.norm;
    contribution = Contribution{true, 0, contribution.fragment, 0, contribution.data, contribution.sequences};
    event(run.record.id, id, "warning", "contribution_rejected",
          "the contribution of island " + islands.name_of(id) + " to round " + std::to_string(number.value) + " does not count: " + why,
          {Field{"round", static_cast<std::int64_t>(number.value)}, Field{"norm", norm}, Field{"median", decision.median}});
    offend(run, id, why);
    if (run.rounds.count(number) == 0) {
      return;
    }
  }
}

void Core::State::note_accepted(Run& run, const RoundInFlight& flight) {
  for (const auto& [id, contribution] : flight.contributions) {
    const auto membership = run.memberships.find(id);
    if (contribution.withdrawn || membership == run.memberships.end()) {
      continue;
    }
    run.guards.usual(contribution.fragment, contribution.norm);
    forgive(run, membership->second);
  }
}

// After an accepted contribution; enough of them in a row and offences are forgotten.
void Core::State::forgive(Run& run, const Membership& membership) {
  if (run.guards.accepted(membership.record.island, membership.record.state == MembershipState::active)) {
    save(run, membership);
  }
}

void Core::State::plan(Run& run, Round number, const std::vector<IslandId>& participants) {
  RoundInFlight& flight = run.rounds.at(number);
  flight.attempt = flight.attempt.next();
  flight.exchanging = true;
  flight.recovered = false;
  flight.members = participants;
  flight.tokens.clear();
  flight.exchanged.clear();
  flight.last_exchanged = {};
  flight.slowest = {};
  flight.arrived_seconds = -1;
  flight.failed.clear();
  flight.first_failure.reset();
  flight.planned = now();
  restart(flight.resend);
  for (const IslandId& id : participants) {
    flight.tokens.push_back(flight.contributions.at(id).tokens);
  }
  RoundRecord value;
  value.run = run.record.id;
  value.lineage = run.lineage.number();
  value.round = number;
  value.epoch = run.record.epoch;
  value.attempt = flight.attempt;
  value.members = flight.members;
  value.tokens = flight.tokens;
  for (const IslandId& id : participants) {
    value.data.push_back(flight.contributions.at(id).data);
  }
  value.planned = now();
  record(std::move(value));
  event(run.record.id, {}, "debug", "round_planned",
        "round " + std::to_string(number.value) + " of run " + run.record.name + ", attempt " + std::to_string(flight.attempt.value) +
            ": " + list_of(islands.names_of(participants)) + " exchange",
        {Field{"round", static_cast<std::int64_t>(number.value)}, Field{"attempt", static_cast<std::int64_t>(flight.attempt.value)},
         Field{"epoch", static_cast<std::int64_t>(run.record.epoch.value)}, Field{"members", islands.names_of(participants)},
         Field{"member_tokens", flight.tokens}});
  for (const IslandId& id : participants) {
    send_exchange(run, number, id);
  }
  run.wait = Wait{"round " + std::to_string(number.value) + ": exchanging", std::nullopt};
  changed = true;
}

void Core::State::send_exchange(Run& run, Round number, const IslandId& island) {
  const RoundInFlight& flight = run.rounds.at(number);
  send(island, Exchange{run.record.id, run.record.epoch, number, flight.attempt, flight.members, flight.tokens});
}

void Core::State::advance_exchanging(Run& run, Round number) {
  RoundInFlight& flight = run.rounds.at(number);
  AttemptInput input;
  input.now = now();
  input.round = number;
  input.attempt = flight.attempt;
  input.planned = flight.planned;
  input.first_failure = flight.first_failure;
  input.grace = settings.accusation_grace;
  input.limit = std::max<Duration>(run.spec.islands.deadline, std::chrono::minutes(1));
  input.bad_attempts = flight.bad_attempts;
  input.blame = flight.blame;
  const bool again = !flight.recovered && due(flight.resend);
  for (const IslandId& id : flight.members) {
    AttemptMember member{id, islands.name_of(id), std::nullopt, false, {}};
    if (const auto done = flight.exchanged.find(id); done != flight.exchanged.end()) {
      member.done = done->second;
    } else if (const auto failed = flight.failed.find(id); failed != flight.failed.end()) {
      member.failed = true;
      member.accused = failed->second;
    } else if (again) {
      send_exchange(run, number, id);
    }
    input.members.push_back(std::move(member));
  }
  if (!flight.recovered) {
    wake_at(flight.resend.next);
  }
  AttemptDecision decision = decide_attempt(input);
  if (decision.wait.until) {
    wake_at(*decision.wait.until);
  }
  if (run.wait.text.empty()) {
    run.wait = decision.wait;
  }
  if (decision.kind == AttemptDecision::Kind::retry) {
    const std::string why = flight.failure.empty() ? decision.why : decision.why + " (" + flight.failure + ")";
    flight.bad_attempts = decision.left_out.empty() ? flight.bad_attempts + 1 : 0;
    flight.blame = decision.left_out.empty() ? decision.blame : std::map<IslandId, unsigned>{};
    flight.failure.clear();
    abort(run, number, why);
    for (const IslandId& id : decision.left_out) {
      leave_epoch(run, id, why, true);
    }
  } else if (decision.kind == AttemptDecision::Kind::commit && number == run.lineage.next()) {
    commit(run, number, decision.digest);
    for (const IslandId& id : decision.left_out) {
      leave_epoch(run, id, decision.why, true);
      offend(run, id, decision.why);
    }
  }
}

void Core::State::abort(Run& run, Round number, const std::string& why) {
  RoundInFlight& flight = run.rounds.at(number);
  flight.exchanging = false;
  flight.recovered = false;
  RoundRecord value;
  value.run = run.record.id;
  value.lineage = run.lineage.number();
  value.round = number;
  value.epoch = run.record.epoch;
  value.attempt = flight.attempt;
  value.planned = flight.planned;
  record(std::move(value));  // without members: given up
  event(run.record.id, {}, "warning", "round_retried",
        "round " + std::to_string(number.value) + " of run " + run.record.name + " is tried again: " + why,
        {Field{"round", static_cast<std::int64_t>(number.value)}, Field{"attempt", static_cast<std::int64_t>(flight.attempt.value)}});
  for (const IslandId& id : flight.members) {
    send(id, Abort{run.record.id, run.record.epoch, number, flight.attempt, why});
  }
  changed = true;
}

void Core::State::commit(Run& run, Round number, const Digest& digest) {
  const RoundInFlight flight = std::move(run.rounds.at(number));
  run.rounds.erase(number);
  RoundRecord value;
  value.run = run.record.id;
  value.lineage = run.lineage.number();
  value.round = number;
  value.epoch = run.record.epoch;
  value.attempt = flight.attempt;
  value.committed = true;
  value.members = flight.members;
  value.tokens = flight.tokens;
  value.digest = digest;
  value.planned = flight.planned;
  value.committed_at = now();
  const bool due_round = run.spec.checkpoint.every_rounds > 0 && number.value % run.spec.checkpoint.every_rounds == 0;
  const bool leaving = std::any_of(run.members.begin(), run.members.end(), [&](const IslandId& id) { return islands.leaving(id); });
  const bool pause = run.record.pause_after == number;
  value.checkpoint = due_round || leaving || pause || number.value >= run.spec.rounds;
  std::uint64_t tokens = 0;
  for (const std::uint64_t count : flight.tokens) {
    tokens += count;
  }
  std::uint64_t sequences = 0;  // each once; the weights count those of a step with each fragment
  std::vector<std::string> samples;
  for (std::size_t i = 0; i < flight.members.size(); ++i) {
    const auto found = flight.contributions.find(flight.members[i]);
    const Contribution contribution = found == flight.contributions.end() ? Contribution{} : found->second;
    value.data.push_back(contribution.data);
    samples.push_back(std::to_string(contribution.data.part) + ":" + std::to_string(contribution.data.from) + "-" +
                      std::to_string(contribution.data.to));
    sequences += flight.tokens[i] > 0 ? contribution.data.sequences() : 0;
    run.data.count_in(contribution.data, contribution.sequences, out);
  }
  const std::vector<DataRange> parts = run.data.snapshot();
  if (value.checkpoint) {
    value.parts = parts;
  }
  run.record.tokens += sequences * tokens_per_sequence(run.spec);
  if (run.hold_since && now() >= *run.hold_since + hold_limit(run)) {
    run.hold_since.reset();  // it has had its time; the next hold is another one
  }
  run.last_round = now() - run.last_commit;
  run.last_commit = now();
  // When the last pieces came; the news of it took longer, where the round before held it up.
  const Duration arrived = flight.arrived_seconds > 0
                               ? from_seconds(std::min(flight.arrived_seconds, seconds(flight.all_exchanged - flight.planned)))
                               : Duration(0);
  run.lineage.commit(Committed{
      number, flight.attempt, digest, value.checkpoint, flight.members,
      RoundTimes{flight.planned, flight.planned + arrived, now(), flight.last_ready, flight.last_exchanged, flight.slowest}, parts});
  const Commit message{run.record.id, run.record.epoch, number, flight.attempt, digest, value.checkpoint, pause};
  record(std::move(value));
  record(run.to_record());
  event(run.record.id, {}, "info", "round_committed",
        "round " + std::to_string(number.value) + " of run " + run.record.name + " is committed by " +
            std::to_string(flight.members.size()) + " island" + (flight.members.size() == 1 ? "" : "s"),
        {Field{"round", static_cast<std::int64_t>(number.value)}, Field{"attempt", static_cast<std::int64_t>(flight.attempt.value)},
         Field{"islands", static_cast<std::int64_t>(flight.members.size())}, Field{"tokens", static_cast<std::int64_t>(tokens)},
         Field{"seconds", seconds(run.last_round)}, Field{"epoch", static_cast<std::int64_t>(run.record.epoch.value)},
         Field{"members", islands.names_of(flight.members)}, Field{"member_tokens", flight.tokens}, Field{"data", samples},
         Field{"digest", to_hex(digest)}, Field{"checkpoint", std::int64_t{message.checkpoint ? 1 : 0}}});
  note_accepted(run, flight);
  for (std::size_t i = 0; i < flight.members.size(); ++i) {
    constexpr double kNewest = 0.3;  // weight of this round in the share that people see
    const double share = tokens == 0 ? 0 : static_cast<double>(flight.tokens[i]) / static_cast<double>(tokens);
    double& smoothed = run.memberships.at(flight.members[i]).share;
    smoothed = smoothed == 0 ? share : (1 - kNewest) * smoothed + kNewest * share;
  }
  for (const IslandId& id : flight.members) {
    islands.contributed(id);  // what was coming has come
    if (flight.exchanged.count(id) > 0 && (flight.exchanged.at(id) == digest || ATOLL_PLANTED(digest_unchecked))) {
      send(id, message);
      run.memberships.at(id).failures = 0;
    }
  }
  for (auto& [id, membership] : run.memberships) {
    membership.boundaries_missed += membership.record.state == MembershipState::joining && membership.caught_up ? 1U : 0U;
  }
  changed = true;
}

}  // namespace atl::coordinator
