// Rounds that members commit among themselves, and the rounds that merge all islands' outer parameters at the end.
#include <algorithm>

#include "agent/core/core_state.hpp"
#include "strategies/pairing.hpp"

namespace atl::agent {

// This island among them; alone: nobody to meet in this round.
std::vector<IslandId> Core::State::group_in(Round round) const {
  if (!run->members.includes(island())) {
    return {};
  }
  return group_of(island(), run->terms.spec.seed, round, run->members.islands(), run->terms.composition.group_size);
}

// The next round's partner is known: the outer parameters travel while the trainer works.
void Core::State::prepare_pair() {
  if (!run || !run->terms.gossips() || !run->outer.held() || !run->life.active() || !run->trainer.schedule() ||
      run->outer.committed() >= run->terms.last_trained()) {
    return;
  }
  const Round next = run->outer.committed().next();
  const Result<RoundPlan> plan = run->trainer.schedule()->round_at(next);
  std::vector<IslandId> group = group_in(next);
  if (plan && group.size() > 1) {
    effect(PreparePair{run->terms.id, run->members.epoch(), next, plan->fragment, std::move(group)});
  }
}

void Core::State::meet_partner(Round number) {
  RoundInHand& round = *run->rounds.find(number);
  round.begin_exchange(Attempt(1), run->members.epoch());
  NormGuard guard = run->partners.guard(round.fragment());
  if (guard.usual > 0) {
    guard.usual = std::max(guard.usual, round.ready().norm);  // what both islands do is no offence
  }
  effect(MeetPartner{run->terms.id, run->members.epoch(), number, round.attempt(), round.fragment(), group_in(number),
                     now + run->terms.spec.islands.deadline, guard, round.withdrawn()});
}

// Its own contribution does not count: the partner goes alone, and this island goes on from the outer state that it has.
void Core::State::reject_own(Round number, const Error& error) {
  RoundInHand& round = *run->rounds.find(number);
  round.reject();
  departure.contributed();
  run->partners.reject(round.ready().tokens);
  if (session.welcomed()) {
    send(Withdrawn{run->terms.id, run->members.epoch(), number, error});
  } else {
    tell("warning", "contribution_rejected",
         "the contribution of island " + session.identity().name + " to round " + std::to_string(number.value) +
             " does not count: " + error.why);
  }
  meet_partner(number);
}

// What came of a round with its partner, or without.
void Core::State::note_met(const RoundInHand& round, const ExchangeDone& event) {
  send(round.exchanged());  // nobody decides anything by it: what the round moved
  run->rounds.note_partner(event.round, event.partner);
  run->partners.note(round, event);
  if (!event.partner.empty()) {
    return;
  }
  if (event.rejected) {
    tell("warning", "contribution_rejected",
         "the contribution of this island's partner to round " + std::to_string(event.round.value) + " does not count: " + event.why);
  } else if (!event.why.empty()) {
    tell("info", "pair_alone", "round " + std::to_string(event.round.value) + " was taken alone: " + event.why);
  }
}

// The members are others: groups of the old epoch are left, and the next round's is drawn anew.
void Core::State::change_groups() {
  if (run->terms.gossips()) {
    effect(LeavePairs{run->terms.id, run->members.epoch(), run->members.islands()});
    prepare_pair();
  }
}

// Adaptive pace: the partner waits, or has gone on. What the trainer has done until now is this round's contribution.
void Core::State::on_engine(const PartnerAhead& event) {
  if (run->terms.composition.adaptive_pace && run->life.active() && !run->life.standing() && event.round > run->outer.committed() &&
      !run->rounds.contains(event.round)) {
    run->trainer.hurry(event.round, run->outer.committed());
  }
}

// This island promised, and does not hear what was decided: by way of the coordinator, if that is there.
void Core::State::on_engine(const PairInDoubt& event) {
  if (!session.welcomed() || !run->life.active()) {
    return;
  }
  for (const IslandId& asked : event.asked) {
    send(PairQuery{run->terms.id, event.epoch, event.round, island(), asked, event.asked_in});
  }
}

void Core::State::on_engine(const PairRenounced& event) {
  send(PairAnswer{run->terms.id, event.epoch, event.round, event.asker, island(), PairWord::doubt, event.asked_in});
}

// Nothing while it has not decided. What it met it remembers as long as the run is open; anything else it can never meet any more.
std::optional<PairWord> Core::State::word_on(Epoch epoch, Round round) {
  if (epoch < run->outer.since()) {
    return PairWord::voided;
  }
  if (run->partners.met(epoch, round)) {
    return PairWord::met;
  }
  const RoundInHand* hand = run->rounds.find(round);
  const bool elsewhere = run->members.epoch() > epoch && (hand == nullptr || hand->group_epoch() != epoch);
  return run->outer.committed() >= round || elsewhere ? std::optional(PairWord::alone) : std::nullopt;
}

void Core::State::on_pair_query(const PairQuery& message) {
  if (message.asked != island() || !run->life.active() || !run->outer.held() || message.asked_in != run->members.epoch()) {
    return;
  }
  if (const std::optional<PairWord> word = word_on(message.epoch, message.round)) {
    send(PairAnswer{run->terms.id, message.epoch, message.round, message.asker, island(), *word, message.asked_in});
  } else {
    effect(RenouncePair{run->terms.id, message.epoch, message.round, message.asker, message.asked_in});
  }
}

void Core::State::on_pair_answer(const PairAnswer& message) {
  if (message.asker == island()) {
    effect(HearOfPair{run->terms.id, message.epoch, message.round, message.answerer, message.asked_in, message.word});
  }
}

// After the last own round: every island's outer parameters, merged into one model as a group of all exchanges and commits.
void Core::State::drive_merges() {
  if (!run || departure.gone() || run->life.ended() || !run->terms.gossips() || !run->life.active() || !run->outer.held() ||
      !run->trainer.schedule() || !run->rounds.empty() || run->rounds.merging() || run->life.stands_after() || run->life.pause_after() ||
      run->outer.committed() < run->terms.last_trained() || run->outer.at_end()) {
    return;
  }
  const Round number = run->outer.committed().next();
  RoundInHand& round = run->rounds.add(number, run->terms.rounds.terms(number).fragment);
  round.weigh(run->partners.weight(), run->trainer.training_loss());
  effect(FormMergeContribution{run->terms.id, number, round.fragment()});
}

}  // namespace atl::agent
