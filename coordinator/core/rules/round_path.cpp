// The path of a round, from top to bottom: contributed to, collected, planned, exchanged, committed or tried again.
//
//   Ready ─► collect ─ decide_round ─► plan ─ Exchange ─► Exchanged ─ decide_attempt ─┬─► commit ─ Commit
//              ▲                                                                      │
//              └────────────────────────── Abort ◄────────────────────────────────────┘
#include <algorithm>

#include "coordinator/core/core_state.hpp"
#include "coordinator/core/rules/round_rule.hpp"
#include "strategies/aggregate.hpp"
#include "strategies/specification/model_kind.hpp"
#include "transport/base/planted.hpp"

namespace atl::coordinator {

// Whether a member says this in the present epoch; else it is told what the present epoch is.
bool RoundRule::current(Run& run, Membership& membership, Epoch epoch) {
  if (epoch != run.epoch || !run.is_member(membership.record.island)) {
    send(membership.record.island, core_.new_epoch_of(run, membership.record.island));
    return false;
  }
  return true;
}

// It did not hear that this round is committed.
void RoundRule::answer_committed(Run& run, Membership& membership, Round round, const Digest& digest) {
  const Committed* found = run.lineage.recent(round);
  if (found == nullptr || (!digest.empty() && digest != found->digest)) {
    send(membership.record.island, core_.new_epoch_of(run, membership.record.island));
    return;
  }
  send(membership.record.island, commit_of(run, membership.record.island, *found));
}

void RoundRule::hear(Run& run, Membership& membership, const atl::Ready& message) {
  if (islands_commit(run, message.round)) {
    hear_own(run, membership, message);
  } else if (run.lineage.initialised()) {
    hear_collected(run, membership, message);
  }
}

// A contribution to a round that is planned here.
void RoundRule::hear_collected(Run& run, Membership& membership, const atl::Ready& message) {
  if (message.round <= run.lineage.committed()) {
    answer_committed(run, membership, message.round, Digest{});
    return;
  }
  if (!current(run, membership, message.epoch) || !fits(run, membership, message) ||
      !is_in_place(run, membership, message.round, message.facts)) {
    return;
  }
  run.data.claim(message.facts.data);
  // A merge of islands' own states trains nothing: its weight is all that an island trained on in the rounds before, which have counted it.
  ContributionFacts trained = message.facts;
  trained.tokens = trains() ? trained.tokens : 0;
  membership.progress.contribute(message.round, trained);
  look_for_alike(run, membership, message);
  contribute(run, membership, message.round, contribution_in(message));
}

// Whether a contribution, or what is said instead of one, is of the fragment of its round and of data that can count. Else its island was
// left out.
bool RoundRule::is_in_place(Run& run, Membership& membership, Round round, const ContributionFacts& facts) {
  const IslandId island = membership.record.island;
  if (const std::string why = run.data.stale(membership.record.part, facts.data); !why.empty() && !closing_.is_counted(run, facts.data)) {
    core_.leave_epoch(run, island, why, true);
    return false;
  }
  if (const std::string why = misplaced(run, round, facts); !why.empty()) {
    core_.leave_epoch(run, island, why, true);
    core_.offend(run, island, why);
    return false;
  }
  return true;
}

// Two islands that train the same are one: the run goes on, and its operator hears of it.
void RoundRule::look_for_alike(Run& run, const Membership& membership, const atl::Ready& message) {
  run.alike.look(membership.record.island, membership.record.part, message.round, message.facts.fragment, message.facts.fingerprint);
  if (run.alike.take_news(message.round)) {
    event(run.about.id, {}, "warning", "islands_alike",
          core_.text_of_alike(run) + ": their contributions to round " + std::to_string(message.round.value) +
              " have the same values, so they compute what one of them would. Give each island data of its own; a program of your own "
              "chooses "
              "its samples by island.part, island.parts, island.seed and island.position",
          {Field{"round", static_cast<std::int64_t>(message.round.value)}, Field{"members", islands_.names_of(run.alike.islands())}});
  }
}

// Why a contribution can be none to its round: it is of another fragment than the round, or of data that are far from what is committed.
// Empty: it may be one.
std::string RoundRule::misplaced(const Run& run, Round round, const ContributionFacts& facts) {
  const DataRange& data = facts.data;
  const std::uint64_t position = run.data.position(data.part);
  if (data.to > position && data.to - position > kSequencesAhead) {
    return "its contribution claims sequence " + std::to_string(data.to) + " of its data, of which " + std::to_string(position) +
           " are committed";
  }
  const Result<RoundPlan> plan = run.schedule ? run.schedule->round_at(round) : Error{Code::not_found, ""};
  if (plan && plan->fragment != facts.fragment) {
    return "its contribution to round " + std::to_string(round.value) + " is of fragment " + std::to_string(facts.fragment) +
           ", and the round is of fragment " + std::to_string(plan->fragment);
  }
  return "";
}

void RoundRule::hear(Run& run, Membership& membership, const Withdrawn& message) {
  if (islands_commit(run, message.round)) {
    if (message.round > membership.progress.contributed) {  // else it is repeated
      membership.progress.contribute(message.round, unmeasured(message.facts.fragment));
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
  if (!current(run, membership, message.epoch) || message.round.value > run.lineage.committed().value + closing_.rounds_ahead()) {
    return;
  }
  if (!is_in_place(run, membership, message.round, message.facts)) {
    return;
  }
  run.data.claim(message.facts.data);
  const OpenRound* round = run.rounds().find(message.round);
  const bool known = round != nullptr && round->answer_of(membership.record.island) == Answer::withdrawn;
  membership.progress.contribute(message.round, unmeasured(message.facts.fragment));
  Contribution withdrawn{.withdrawn = true,
                         .facts = {.fragment = message.facts.fragment, .data = closing_.withdrawn_data(message.facts.data)}};
  withdrawn.why_not = bounded(message.error.why, 512);
  withdrawn.spoilt = known ? round->contribution_of(membership.record.island)->spoilt
                           : message.error.code == Code::corrupt && message.fate != Fate::overrun;
  contribute(run, membership, message.round, withdrawn);
  if (!known) {
    tell_rejected(run, membership, message);
  }
}

// The verdict of an island on its own contribution. A contribution that came after the last round of its fragment has none: its island
// tells of it itself.
void RoundRule::reject(Run& run, Membership& membership, const Withdrawn& message) {
  tell_rejected(run, membership, message);
  if (message.fate != Fate::overrun && message.error.code == Code::corrupt) {
    core_.offend(run, membership.record.island, bounded(message.error.why, 512));
  }
}

void RoundRule::tell_rejected(const Run& run, const Membership& membership, const Withdrawn& message) {
  if (message.fate == Fate::overrun) {
    return;
  }
  event(run.about.id, membership.record.island, "warning", "contribution_rejected",
        "the contribution of island " + islands_.name_of(membership.record.island) + " to round " + std::to_string(message.round.value) +
            " does not count: " + bounded(message.error.why),
        {Field{"round", static_cast<std::int64_t>(message.round.value)}});
}

// Others' contributions count: whose own was not fit to has offended. Where nobody's was, no island is to blame. False: somebody was
// quarantined, and what that means is decided anew.
bool RoundRule::blame_withdrawn(Run& run, Round number, const std::vector<IslandId>& participants) {
  for (const IslandId& id : participants) {
    if (const std::optional<std::string> offence = run.rounds().at(number).take_offence(id)) {
      core_.offend(run, id, *offence);
      if (!run.is_member(id)) {
        return false;
      }
    }
  }
  return true;
}

// Nobody's contribution counts: the round has a result of nothing, and the islands train on.
void RoundRule::tell_skipped(const Run& run, Round number, const std::string& why) {
  if (run.rounds().find(number)->attempt() > Attempt(0)) {
    return;  // told with the first attempt
  }
  event(run.about.id, {}, "warning", "round_skipped", "run " + run.about.name + ": " + why,
        {Field{"round", static_cast<std::int64_t>(number.value)}});
}

void RoundRule::contribute(Run& run, Membership& membership, Round round, const Contribution& contribution) {
  const IslandId& island = membership.record.island;
  if (const Island* leaver = islands_.find(island); leaver != nullptr && leaver->leaving() && leaver->departure.contributes) {
    membership.leaves_after = std::max(membership.leaves_after.value_or(round), round);  // the one that it announced
    islands_.contributed(island);
  }
  if (membership.leaves_after && round > *membership.leaves_after) {
    return;  // it is about to go; it must not be needed for one round after the other
  }
  closing_.before_contribution(run, island, round, contribution.facts.fragment);
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

void RoundRule::advance_rounds(Run& run) {
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
void RoundRule::wait_for(Run& run, const Wait& wait) {
  if (wait.until) {
    wake_at(*wait.until);
  }
  if (run.wait.text.empty()) {
    run.wait = wait;
  }
}

void RoundRule::advance_collecting(Run& run, Round number) {
  keep_pace(run, number);
  if (!closing_.may_close(run, number)) {
    return;
  }
  const RoundDecision decision = decide_round(round_input(run, number));
  const bool skip = decision.kind == RoundDecision::Kind::skip;
  wait_for(run, decision.wait);
  if (decision.kind == RoundDecision::Kind::hopeless) {
    core_.end_run(run, RunState::failed, decision.wait.text, Error{Code::corrupt, decision.wait.text});
  }
  if (decision.kind != RoundDecision::Kind::plan && !skip) {
    return;
  }
  for (const IslandId& id : decision.left_out) {
    core_.leave_epoch(run, id, decision.why_left_out, !decision.stragglers);
  }
  if (run.members.size() < run.spec.islands.min) {
    return;
  }
  if (skip) {
    tell_skipped(run, number, decision.wait.text);
  } else if (!blame_withdrawn(run, number, decision.participants)) {
    return;
  }
  reject_unbelievable(run, number);
  if (run.rounds().find(number) == nullptr ||
      !std::ranges::all_of(decision.participants, [&](const IslandId& id) { return run.is_member(id); })) {
    return;  // somebody was quarantined: what that means is decided anew
  }
  if (const std::optional<Wait> apart = core_.data_paths.wait_for(run)) {
    wait_for(run, *apart);
    stand(run, number, apart->text);
    return;
  }
  closing_.before_plan(run, number, decision.participants);
  const DetourDecision detour = core_.data_paths.detour_among(run, decision.participants);
  if (!detour.left_out.empty() && run.members.size() >= run.spec.islands.min + detour.left_out.size()) {
    for (const IslandId& id : detour.left_out) {
      core_.leave_epoch(run, id, core_.data_paths.why_apart(id, decision.participants),
                        !core_.data_paths.steadiness().restless(id, decision.participants));
    }
    return;  // what that means is decided anew
  }
  if (const std::optional<Wait> pause = pause_before(run, number, decision.participants)) {
    wait_for(run, *pause);
    return;
  }
  plan(run, number, decision.participants, detour.left_out.empty() ? detour.shares : std::vector<std::uint8_t>());
}

RoundInput RoundRule::round_input(Run& run, Round number) {
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
    const Contribution* contribution = round.contribution_of(id);
    input.members.push_back(RoundMember{id, islands_.name_of(id), closing_.answer_in(run, round, id), closing_.late(run, round, id),
                                        run.memberships.at(id).progress.trainer_lost,
                                        contribution == nullptr ? std::string() : contribution->why_not,
                                        run.memberships.at(id).progress.let_in});
  }
  input.may_skip = trains();
  input.skipped = run.in_rounds().skipped;
  input.last_round = run.in_rounds().last_round;
  closing_.describe(run, round, input);
  input.hold = hold_for_joiners(run);
  return input;
}

// Contributions whose norm is out of all proportion, or that claim more tokens than they can hold, do not count: their islands receive the
// result, and are named.
void RoundRule::reject_unbelievable(Run& run, Round number) {
  std::vector<JudgedNorm> norms;
  // The merge of all islands' models is weighted by all that they trained on: little of who came late, so no other's tokens are a measure.
  AmountInput amounts{{}, trains() ? run.spec.strategy.inner_steps : run.spec.training.steps, 0};
  // Where rounds close with a quorum a trainer goes on while its island is away: what it contributes then may hold any number of steps.
  if (closing_.bounds_steps()) {
    amounts.tokens_per_step = most_tokens_per_step(run.spec);
  }
  std::uint32_t fragment = 0;
  for (const auto& [id, contribution] : run.rounds().at(number).contributions()) {
    if (!contribution.withdrawn) {
      norms.push_back(judged(run, id, contribution));
      amounts.amounts.push_back(
          {id, contribution.facts.tokens, closing_.missed_by(run, contribution), trains() && contribution.facts.steps > 0});
      fragment = contribution.facts.fragment;
    }
  }
  for (const auto& [id, usual, why] : run.guards.judge(fragment, norms).rejected) {
    const double norm = run.rounds().at(number).contribution_of(id)->facts.norm;
    if (!reject_contribution(run, number, id, why, {Field{"norm", norm}, Field{"median", usual}})) {
      return;
    }
    std::erase_if(amounts.amounts, [&rejected = id](const JudgedAmount& judged) { return judged.island == rejected; });
  }
  for (const auto& [id, why] : decide_amounts(amounts)) {
    if (!reject_contribution(run, number, id, why, {})) {
      return;
    }
  }
}

// What the guard of norms looks at. An island may claim as many inner steps as a round has, once more for each round that it missed: with
// more it could claim any norm.
JudgedNorm RoundRule::judged(const Run& run, const IslandId& island, const Contribution& contribution) const {
  const std::uint64_t most = run.spec.strategy.inner_steps * (1ULL + closing_.missed_by(run, contribution));
  return {island, contribution.facts.norm, closing_.spanned_by(run, contribution), std::min(contribution.facts.steps, most)};
}

// False: somebody was quarantined, and the round is given up.
bool RoundRule::reject_contribution(Run& run, Round number, const IslandId& island, const std::string& why, std::vector<Field> fields) {
  OpenRound& round = run.rounds().at(number);
  const ContributionFacts rejected = accounted(round.contribution_of(island)->facts);
  round.reject(island, why);
  record(DroppedRecord{run.about.id, run.lineage.number(), island, number, Fate::rejected, rejected});
  fields.insert(fields.begin(), Field{"round", static_cast<std::int64_t>(number.value)});
  event(run.about.id, island, "warning", "contribution_rejected",
        "the contribution of island " + islands_.name_of(island) + " to round " + std::to_string(number.value) + " does not count: " + why,
        std::move(fields));
  core_.offend(run, island, why);
  return run.rounds().find(number) != nullptr;
}

void RoundRule::plan(Run& run, Round number, const std::vector<IslandId>& participants, std::vector<std::uint8_t> shares) {
  OpenRound& round = run.rounds().at(number);
  round.plan_attempt(participants, out_, run.guards.sums_in(number, participants, std::move(shares)));
  record(record_of(run, number, round));
  const std::vector<std::string> names = islands_.names_of(participants);
  event(run.about.id, {}, "debug", "round_planned",
        "round " + std::to_string(number.value) + " of run " + run.about.name + ", attempt " + std::to_string(round.attempt().value) +
            ": " + list_of(names) + " exchange",
        {Field{"round", static_cast<std::int64_t>(number.value)}, Field{"attempt", static_cast<std::int64_t>(round.attempt().value)},
         Field{"epoch", static_cast<std::int64_t>(run.epoch.value)}, Field{"members", names},
         Field{"member_tokens", each_of(round.plan().contributions, &ContributionFacts::tokens)}});
  send_exchange(run, number, participants, false);
  run.wait = Wait{"round " + std::to_string(number.value) + ": exchanging", std::nullopt};
  touch(run);
}

RoundRecord RoundRule::record_of(const Run& run, Round number, const OpenRound& round) const {
  RoundRecord value;
  value.run = run.about.id;
  value.lineage = run.lineage.number();
  value.round = number;
  value.epoch = run.epoch;
  value.attempt = round.attempt();
  value.planned = round.plan().planned;
  value.fragment = round.fragment().value_or(0);
  value.members = round.plan().members;
  std::ranges::transform(round.plan().contributions, std::back_inserter(value.contributions), recorded);
  return value;
}

// The order is the same for all, but for islands whose contribution does not count. Again: it names everybody, as an island may not know
// the epoch's members.
void RoundRule::send_exchange(Run& run, Round number, const std::vector<IslandId>& to, bool again) {
  if (to.empty()) {
    return;
  }
  const OpenRound& round = run.rounds().at(number);
  const bool norms = closing_.needs_norms() || needs_norms(run.spec.strategy.aggregator);
  const std::vector<IslandId> nobody;
  Exchange order = round.exchange_of(again ? nobody : run.members, norms);
  if (const double largest = round.largest_norm(); !norms && largest > 0 && trains()) {  // of a merge no norms are measured
    order.terms.norms = {largest};                                                       // what no contribution may go beyond
  }
  order.run = run.about.id;
  order.epoch = run.epoch;
  order.round = number;
  for (const IslandId& id : to) {
    order.rejected = round.rejects(id);
    send(id, order);
  }
}

void RoundRule::commit(Run& run, Round number, const Digest& digest) {
  const OpenRound round = run.rounds().close(number);
  const AttemptPlan& plan = round.plan();
  RoundRecord value = record_of(run, number, round);
  value.committed = true;
  value.digest = digest;
  value.committed_at = now();
  value.checkpoint = wants_checkpoint(run, number);
  for (std::size_t i = 0; i < plan.contributions.size(); ++i) {
    value.contributions[i].data = closing_.counted_by(run, plan.contributions[i]);
    run.data.count_in(value.contributions[i].data, plan.contributions[i].sequences, out_);
  }
  if (const std::optional<std::uint32_t> fragment = round.fragment()) {
    closing_.on_committed(run, number, *fragment);
  }
  const std::vector<DataRange> parts = run.data.snapshot();
  value.parts = value.checkpoint ? parts : std::vector<DataRange>();
  run.lineage.count_tokens(sequences_held(value), tokens_per_sequence(run.spec));
  if (run.in_rounds().hold_since && now() >= *run.in_rounds().hold_since + hold_limit(run)) {
    run.in_rounds().hold_since.reset();  // it has had its time; the next hold is another one
  }
  run.in_rounds().last_round = now() - run.last_commit;
  run.in_rounds().stand.reset();
  run.last_commit = now();
  run.lineage.commit(Committed{number, round.attempt(), digest, value.checkpoint, plan.members, round.times(now()), parts});
  run.lineage.decide_in(run.epoch, settings_.generation);
  record(value);
  record(run.to_record());
  tell_commit(run, value);
  note_accepted(run, round);
  note_shares(run, plan);
  if (value.checkpoint) {
    ask_for_copy(run, number, round.holders(digest), parts);
  }
  const Committed committed{number, round.attempt(), digest, value.checkpoint, {}};
  for (const IslandId& id : plan.members) {
    if (round.contribution_of(id) != nullptr) {
      islands_.contributed(id);  // what was coming has come
    }
    if (round.holds_result(id, digest)) {
      send(id, commit_of(run, id, committed));
      run.memberships.at(id).entry.succeeded();
    }
  }
  run.in_rounds().skipped = std::ranges::all_of(plan.contributions, [](const ContributionFacts& each) { return each.tokens == 0; })
                                ? run.in_rounds().skipped + 1
                                : 0;
  core_.end_by_tokens(run);
  for (auto& [id, membership] : run.memberships) {
    if (islands_.trains(id, run.about.id).value_or(true)) {
      membership.progress.trainer_lost.reset();  // it begins the next round with the others
    }
    if (membership.record.state == MembershipState::joining && membership.entry.caught_up()) {
      membership.entry.missed_boundary();
    }
  }
  touch(run);
}

// Every member is to write a checkpoint of this round.
bool RoundRule::wants_checkpoint(const Run& run, Round number) const {
  const std::uint64_t every = rounds_between_checkpoints(run.spec);
  const bool due_round = every > 0 && number.value % every == 0;
  const bool leaving = std::ranges::any_of(run.members, [&](const IslandId& id) { return islands_.leaving(id); });
  return due_round || leaving || run.life.pauses_after() == number || number.value >= run.spec.rounds;
}

void RoundRule::tell_commit(const Run& run, const RoundRecord& round) {
  std::uint64_t tokens = 0;
  std::vector<std::string> samples;
  for (const ContributionFacts& each : round.contributions) {
    tokens += each.tokens;
    samples.push_back(std::to_string(each.data.part) + ":" + std::to_string(each.data.from) + "-" + std::to_string(each.data.to));
  }
  event(
      run.about.id, {}, "info", "round_committed",
      "round " + std::to_string(round.round.value) + " of run " + run.about.name + " is committed by " +
          std::to_string(round.members.size()) + " island" + (round.members.size() == 1 ? "" : "s"),
      {Field{"round", static_cast<std::int64_t>(round.round.value)}, Field{"attempt", static_cast<std::int64_t>(round.attempt.value)},
       Field{"islands", static_cast<std::int64_t>(round.members.size())}, Field{"tokens", static_cast<std::int64_t>(tokens)},
       Field{"seconds", seconds(run.in_rounds().last_round)}, Field{"epoch", static_cast<std::int64_t>(run.epoch.value)},
       Field{"members", islands_.names_of(round.members)}, Field{"member_tokens", each_of(round.contributions, &ContributionFacts::tokens)},
       Field{"data", samples}, Field{"digest", to_hex(round.digest)}, Field{"checkpoint", std::int64_t{round.checkpoint ? 1 : 0}}});
}

void RoundRule::note_accepted(Run& run, const OpenRound& round) {
  for (const auto& [id, contribution] : round.contributions()) {
    const auto membership = run.memberships.find(id);
    if (contribution.withdrawn || membership == run.memberships.end()) {
      continue;
    }
    run.guards.usual(contribution.facts.fragment, judged(run, id, contribution));
    forgive(run, membership->second);
  }
}

// After an accepted contribution; enough of them in a row and offences are forgotten.
void RoundRule::forgive(Run& run, const Membership& membership) {
  if (run.guards.accepted(membership.record.island, membership.record.state == MembershipState::active)) {
    core_.save(run, membership);
  }
}

// Each member's share of the committed tokens.
void RoundRule::note_shares(Run& run, const AttemptPlan& plan) {
  constexpr double kNewest = 0.3;  // weight of this round in the share that people see
  std::uint64_t tokens = 0;
  for (const ContributionFacts& each : plan.contributions) {
    tokens += each.tokens;
  }
  for (std::size_t i = 0; i < plan.members.size(); ++i) {
    const double share = tokens == 0 ? 0 : static_cast<double>(plan.contributions[i].tokens) / static_cast<double>(tokens);
    double& smoothed = run.memberships.at(plan.members[i]).progress.share;
    smoothed = smoothed == 0 ? share : (1 - kNewest) * smoothed + kNewest * share;
  }
}

}  // namespace atl::coordinator
