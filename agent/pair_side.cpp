// Rounds that two islands take together, and the rounds that merge all islands' outer parameters at the end.
#include <algorithm>

#include "agent/core_state.hpp"
#include "strategies/pairing.hpp"

namespace atl::agent {

// Empty: nobody in this round.
IslandId Core::State::partner_in(Round round) const {
  std::vector<IslandId> members;
  for (const Member& member : run->members) {
    members.push_back(member.island);
  }
  if (std::find(members.begin(), members.end(), identity.island) == members.end()) {
    return {};
  }
  for (const IslandId& island : group_of(identity.island, run->spec.seed, round, members)) {
    if (island != identity.island) {
      return island;
    }
  }
  return {};
}

// The next round's partner is known: the outer parameters travel while the trainer works.
void Core::State::prepare_pair() {
  if (!run || !run->pairs() || !run->has_state || !run->active || !run->schedule || run->committed >= run->last_own()) {
    return;
  }
  const Round next = run->committed.next();
  const Result<RoundPlan> plan = run->schedule->round_at(next);
  const IslandId partner = partner_in(next);
  if (plan && !partner.empty()) {
    effect(PreparePair{run->id, run->epoch, next, plan->fragment, partner});
  }
}

void Core::State::meet_partner(Round number) {
  RoundInHand& round = run->rounds.at(number);
  round.attempt = Attempt(1);
  round.phase = RoundInHand::Phase::exchanging;
  round.pair_epoch = run->epoch;
  const double usual = run->norms.median(round.fragment);
  const NormGuard guard{run->spec.guards.norm_factor, usual > 0 ? std::max(usual, round.ready.norm) : 0};  // what both islands do is no offence
  effect(MeetPartner{run->id, run->epoch, number, round.attempt, round.fragment, partner_in(number), now + run->spec.islands.deadline, guard, round.withdrawn});
}

// Its own contribution does not count: the partner goes alone, and this island goes on from the outer state that it has.
void Core::State::reject_own(Round number, const Error& error) {
  RoundInHand& round = run->rounds.at(number);
  round.withdrawn = true;
  run->cut_short = false;
  run->tokens_published -= std::min(run->tokens_published, round.ready.tokens);
  if (welcomed) {
    send(Withdrawn{run->id, run->epoch, number, error});
  } else {
    tell("warning", "contribution_rejected", "the contribution of island " + identity.name + " to round " + std::to_string(number.value) + " does not count: " + error.why);
  }
  meet_partner(number);
}

// What came of a round with its partner, or without.
void Core::State::note_met(const RoundInHand& round, const ExchangeDone& event) {
  send(round.exchanged);  // nobody decides anything by it: what the round moved
  run->own_rounds[event.round].partner = event.partner;
  if (!round.withdrawn) {
    run->norms.add(round.fragment, round.ready.norm);
  }
  if (!event.partner.empty()) {
    run->met.emplace(round.pair_epoch, event.round);
    run->norms.add(round.fragment, event.norm);
  } else if (event.rejected) {
    tell("warning", "contribution_rejected", "the contribution of this island's partner to round " + std::to_string(event.round.value) + " does not count: " + event.why);
  } else if (!event.why.empty()) {
    tell("info", "pair_alone", "round " + std::to_string(event.round.value) + " was taken alone: " + event.why);
  }
}

void Core::State::leave_pairs() {
  if (!run->pairs()) {
    return;
  }
  std::vector<IslandId> members;
  for (const Member& member : run->members) {
    members.push_back(member.island);
  }
  effect(LeavePairs{run->id, run->epoch, std::move(members)});
}

// Adaptive pace: the partner waits, or has gone on. What the trainer has done until now is this round's contribution.
void Core::State::on_engine(const PartnerAhead& event) {
  if (run->composition.adaptive_pace && run->active && event.round > run->committed && run->rounds.count(event.round) == 0) {
    run->cut = event.round;
    keep_pace();
  }
}

// This island promised, and does not hear what was decided: by way of the coordinator, if that is there.
void Core::State::on_engine(const PairInDoubt& event) {
  if (welcomed && run->active) {
    send(PairQuery{run->id, event.epoch, event.round, identity.island, event.decider});
  }
}

// Silent while it has not decided. What it met it remembers as long as the run is open; anything else it can never meet any more.
void Core::State::on_pair_query(const PairQuery& message) {
  if (message.decider != identity.island || !run->pairs() || !run->has_state) {
    return;
  }
  const bool met = run->met.contains({message.epoch, message.round});
  const bool past = run->committed >= message.round || (run->epoch > message.epoch && run->rounds.count(message.round) == 0);
  if (met || past) {
    send(PairAnswer{run->id, message.epoch, message.round, message.asker, met});
  }
}

void Core::State::on_pair_answer(const PairAnswer& message) {
  if (message.asker == identity.island && run->pairs()) {
    effect(SettlePair{run->id, message.epoch, message.round, message.met});
  }
}

// After the last own round: every island's outer parameters, merged into one model as a group of all exchanges and commits.
void Core::State::drive_merges() {
  if (!run || over || run->ended || !run->pairs() || !run->active || !run->has_state || !run->schedule || !run->rounds.empty() ||
      !run->merging.empty() || run->committed < run->last_own() || run->at_end()) {
    return;
  }
  const Round number = run->committed.next();
  RoundInHand& round = run->rounds[number];
  round.fragment = run->merged_fragment(number);
  round.ready.fragment = round.fragment;
  round.ready.run = run->id;
  round.ready.round = number;
  round.ready.tokens = std::max<std::uint64_t>(run->tokens_published, 1);
  round.ready.training_loss = run->progress.training_loss;
  effect(FormMergeContribution{run->id, number, round.fragment});
}

}  // namespace atl::agent
