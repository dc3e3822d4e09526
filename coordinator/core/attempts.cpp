// What becomes of a round: collected, planned, exchanged, committed or tried again.
#include <algorithm>

#include "coordinator/core/core_state.hpp"
#include "strategies/specification/run_rules.hpp"

namespace atl::coordinator {

void Core::State::advance_rounds(Run& run) {
  if (run.members.empty()) {
    return;
  }
  run.rounds().open(run.lineage.next());
  for (const Round number : run.rounds().numbers()) {
    const OpenRound* round = run.rounds().find(number);
    if (round == nullptr || run.life.over()) {
      continue;
    }
    if (round->exchanging()) {
      advance_exchanging(run, number);
    } else {
      advance_collecting(run, number);
    }
  }
}

// What a wait of the newest round is for is said; the rounds behind it have to wait anyway.
void Core::State::wait_for(Run& run, const Wait& wait) {
  if (wait.until) {
    wake_at(*wait.until);
  }
  if (run.wait.text.empty()) {
    run.wait = wait;
  }
}

RoundInput Core::State::round_input(Run& run, Round number) {
  const OpenRound& round = run.rounds().at(number);
  RoundInput input;
  input.now = now();
  input.round = number;
  input.min = run.spec.islands.min;
  input.first_answer = round.first_answer();
  input.deadline = run.spec.islands.deadline;
  if (number == run.lineage.next()) {
    input.begun = run.last_commit;
    input.straggler_factor = run.spec.islands.straggler_factor;
  }
  for (const IslandId& id : run.members) {
    input.members.push_back(RoundMember{id, islands.name_of(id), round.answer_of(id)});
  }
  input.hold = hold_for_joiners(run);
  return input;
}

void Core::State::advance_collecting(Run& run, Round number) {
  keep_pace(run, number);
  const RoundDecision decision = decide_round(round_input(run, number));
  wait_for(run, decision.wait);
  if (decision.kind == RoundDecision::Kind::hopeless) {
    end_run(run, RunState::failed, decision.wait.text, Error{Code::corrupt, decision.wait.text});
  }
  if (decision.kind != RoundDecision::Kind::plan) {
    return;
  }
  for (const IslandId& id : decision.left_out) {
    leave_epoch(run, id, decision.why_left_out, !decision.stragglers);
  }
  if (run.members.size() < run.spec.islands.min) {
    return;
  }
  reject_exploding(run, number);
  if (run.rounds().find(number) == nullptr ||
      !std::ranges::all_of(decision.participants, [&](const IslandId& id) { return run.is_member(id); })) {
    return;  // somebody was quarantined: what that means is decided anew
  }
  plan(run, number, decision.participants);
}

// Adaptive pace: once the first island has come to the synchronisation point the others are told to come as they are.
void Core::State::keep_pace(Run& run, Round number) {
  OpenRound& round = run.rounds().at(number);
  if (run.spec.strategy.pace != Pace::adaptive || run.private_states() || round.contributions().empty()) {
    return;
  }
  const bool again = round.cut_is_due(out);
  for (const IslandId& id : run.members) {
    if (again && round.contribution_of(id) == nullptr) {
      send(id, Cut{run.about.id, run.epoch, number});
    }
  }
  wake_at(round.next_cut());
}

// Contributions whose norm is out of all proportion do not count: their islands receive the result, and are named.
void Core::State::reject_exploding(Run& run, Round number) {
  std::vector<std::pair<IslandId, double>> norms;
  std::uint32_t fragment = 0;
  for (const auto& [id, contribution] : run.rounds().at(number).contributions()) {
    if (!contribution.withdrawn) {
      norms.emplace_back(id, contribution.norm);
      fragment = contribution.fragment;
    }
  }
  const NormDecision decision = run.guards.judge(fragment, norms);
  for (const auto& [id, why] : decision.rejected) {
    OpenRound& round = run.rounds().at(number);
    const double norm = round.contribution_of(id)->norm;
    round.withdraw(id);
    event(run.about.id, id, "warning", "contribution_rejected",
          "the contribution of island " + islands.name_of(id) + " to round " + std::to_string(number.value) + " does not count: " + why,
          {Field{"round", static_cast<std::int64_t>(number.value)}, Field{"norm", norm}, Field{"median", decision.median}});
    offend(run, id, why);
    if (run.rounds().find(number) == nullptr) {
      return;
    }
  }
}

RoundRecord Core::State::record_of(const Run& run, Round number, const OpenRound& round) const {
  RoundRecord value;
  value.run = run.about.id;
  value.lineage = run.lineage.number();
  value.round = number;
  value.epoch = run.epoch;
  value.attempt = round.attempt();
  value.planned = round.plan().planned;
  return value;
}

void Core::State::plan(Run& run, Round number, const std::vector<IslandId>& participants) {
  OpenRound& round = run.rounds().at(number);
  round.plan_attempt(participants, out);
  RoundRecord value = record_of(run, number, round);
  value.members = round.plan().members;
  value.tokens = round.plan().tokens;
  for (const IslandId& id : participants) {
    value.data.push_back(round.contribution_of(id)->data);
  }
  record(std::move(value));
  const std::vector<std::string> names = islands.names_of(participants);
  event(run.about.id, {}, "debug", "round_planned",
        "round " + std::to_string(number.value) + " of run " + run.about.name + ", attempt " + std::to_string(round.attempt().value) +
            ": " + list_of(names) + " exchange",
        {Field{"round", static_cast<std::int64_t>(number.value)}, Field{"attempt", static_cast<std::int64_t>(round.attempt().value)},
         Field{"epoch", static_cast<std::int64_t>(run.epoch.value)}, Field{"members", names}, Field{"member_tokens", round.plan().tokens}});
  for (const IslandId& id : participants) {
    send_exchange(run, number, id);
  }
  run.wait = Wait{"round " + std::to_string(number.value) + ": exchanging", std::nullopt};
  touch(run);
}

void Core::State::send_exchange(Run& run, Round number, const IslandId& island) {
  const OpenRound& round = run.rounds().at(number);
  send(island, Exchange{run.about.id, run.epoch, number, round.attempt(), round.plan().members, round.plan().tokens});
}

void Core::State::advance_exchanging(Run& run, Round number) {
  OpenRound& round = run.rounds().at(number);
  for (const IslandId& id : round.silent_and_due(out)) {
    send_exchange(run, number, id);
  }
  if (!round.recovered()) {
    wake_at(round.next_resend());
  }
  AttemptInput input;
  round.describe(input);
  input.now = now();
  input.round = number;
  input.grace = settings.accusation_grace;
  input.limit = std::max<Duration>(run.spec.islands.deadline, std::chrono::minutes(1));
  for (AttemptMember& member : input.members) {
    member.name = islands.name_of(member.island);
  }
  const AttemptDecision decision = decide_attempt(input);
  wait_for(run, decision.wait);
  if (decision.kind == AttemptDecision::Kind::retry) {
    const std::string why = round.blame(decision);
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
  OpenRound& round = run.rounds().at(number);
  round.give_up();
  record(record_of(run, number, round));  // without members: given up
  event(run.about.id, {}, "warning", "round_retried",
        "round " + std::to_string(number.value) + " of run " + run.about.name + " is tried again: " + why,
        {Field{"round", static_cast<std::int64_t>(number.value)}, Field{"attempt", static_cast<std::int64_t>(round.attempt().value)}});
  for (const IslandId& id : round.plan().members) {
    send(id, Abort{run.about.id, run.epoch, number, round.attempt(), why});
  }
  touch(run);
}

// Every member is to write a checkpoint of this round.
bool Core::State::wants_checkpoint(const Run& run, Round number) const {
  const bool due_round = run.spec.checkpoint.every_rounds > 0 && number.value % run.spec.checkpoint.every_rounds == 0;
  const bool leaving = std::ranges::any_of(run.members, [&](const IslandId& id) { return islands.leaving(id); });
  return due_round || leaving || run.life.pauses_after() == number || number.value >= run.spec.rounds;
}

void Core::State::commit(Run& run, Round number, const Digest& digest) {
  const OpenRound round = run.rounds().close(number);
  const AttemptPlan& plan = round.plan();
  RoundRecord value = record_of(run, number, round);
  value.committed = true;
  value.members = plan.members;
  value.tokens = plan.tokens;
  value.digest = digest;
  value.committed_at = now();
  value.checkpoint = wants_checkpoint(run, number);
  std::uint64_t sequences = 0;  // each once; the weights count those of a step with each fragment
  for (std::size_t i = 0; i < plan.members.size(); ++i) {
    const Contribution* found = round.contribution_of(plan.members[i]);
    const Contribution contribution = found == nullptr ? Contribution{} : *found;
    value.data.push_back(contribution.data);
    sequences += plan.tokens[i] > 0 ? contribution.data.sequences() : 0;
    run.data.count_in(contribution.data, contribution.sequences, out);
  }
  const std::vector<DataRange> parts = run.data.snapshot();
  if (value.checkpoint) {
    value.parts = parts;
  }
  run.lineage.count_tokens(sequences * tokens_per_sequence(run.spec));
  if (run.in_rounds().hold_since && now() >= *run.in_rounds().hold_since + hold_limit(run)) {
    run.in_rounds().hold_since.reset();  // it has had its time; the next hold is another one
  }
  run.in_rounds().last_round = now() - run.last_commit;
  run.last_commit = now();
  run.lineage.commit(Committed{number, round.attempt(), digest, value.checkpoint, plan.members, round.times(now()), parts});
  record(value);
  record(run.to_record());
  tell_commit(run, value);
  note_accepted(run, round);
  note_shares(run, plan);
  const Commit message{run.about.id, run.epoch, number, round.attempt(), digest, value.checkpoint, run.life.pauses_after() == number};
  for (const IslandId& id : plan.members) {
    islands.contributed(id);  // what was coming has come
    if (round.holds_result(id, digest)) {
      send(id, message);
      run.memberships.at(id).entry.failures = 0;
    }
  }
  for (auto& [id, membership] : run.memberships) {
    membership.entry.boundaries_missed += membership.record.state == MembershipState::joining && membership.entry.caught_up ? 1U : 0U;
  }
  touch(run);
}

void Core::State::tell_commit(const Run& run, const RoundRecord& round) {
  std::uint64_t tokens = 0;
  std::vector<std::string> samples;
  for (std::size_t i = 0; i < round.members.size(); ++i) {
    tokens += round.tokens[i];
    samples.push_back(std::to_string(round.data[i].part) + ":" + std::to_string(round.data[i].from) + "-" +
                      std::to_string(round.data[i].to));
  }
  event(run.about.id, {}, "info", "round_committed",
        "round " + std::to_string(round.round.value) + " of run " + run.about.name + " is committed by " +
            std::to_string(round.members.size()) + " island" + (round.members.size() == 1 ? "" : "s"),
        {Field{"round", static_cast<std::int64_t>(round.round.value)}, Field{"attempt", static_cast<std::int64_t>(round.attempt.value)},
         Field{"islands", static_cast<std::int64_t>(round.members.size())}, Field{"tokens", static_cast<std::int64_t>(tokens)},
         Field{"seconds", seconds(run.in_rounds().last_round)}, Field{"epoch", static_cast<std::int64_t>(run.epoch.value)},
         Field{"members", islands.names_of(round.members)}, Field{"member_tokens", round.tokens}, Field{"data", samples},
         Field{"digest", to_hex(round.digest)}, Field{"checkpoint", std::int64_t{round.checkpoint ? 1 : 0}}});
}

void Core::State::note_accepted(Run& run, const OpenRound& round) {
  for (const auto& [id, contribution] : round.contributions()) {
    const auto membership = run.memberships.find(id);
    if (contribution.withdrawn || membership == run.memberships.end()) {
      continue;
    }
    run.guards.usual(contribution.fragment, contribution.norm);
    forgive(run, membership->second);
  }
}

// Each member's share of the committed tokens.
void Core::State::note_shares(Run& run, const AttemptPlan& plan) {
  constexpr double kNewest = 0.3;  // weight of this round in the share that people see
  std::uint64_t tokens = 0;
  for (const std::uint64_t count : plan.tokens) {
    tokens += count;
  }
  for (std::size_t i = 0; i < plan.members.size(); ++i) {
    const double share = tokens == 0 ? 0 : static_cast<double>(plan.tokens[i]) / static_cast<double>(tokens);
    double& smoothed = run.memberships.at(plan.members[i]).progress.share;
    smoothed = smoothed == 0 ? share : (1 - kNewest) * smoothed + kNewest * share;
  }
}

// After an accepted contribution; enough of them in a row and offences are forgotten.
void Core::State::forgive(Run& run, const Membership& membership) {
  if (run.guards.accepted(membership.record.island, membership.record.state == MembershipState::active)) {
    save(run, membership);
  }
}

}  // namespace atl::coordinator
