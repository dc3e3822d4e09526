// Rounds that two islands take together, and the rounds that merge all islands' outer parameters at the end.
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
  if (!run || !run->terms.in_groups() || !run->outer.held() || !run->life.active() || !run->trainer.schedule() ||
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
  RoundInHand& round = run->rounds.at(number);
  round.attempt = Attempt(1);
  round.phase = RoundInHand::Phase::exchanging;
  round.pair_epoch = run->members.epoch();
  const double usual = run->norms.median(round.fragment);
  const NormGuard guard{run->terms.spec.guards.norm_factor,
                        usual > 0 ? std::max(usual, round.ready.norm) : 0};  // what both islands do is no offence
  effect(MeetPartner{run->terms.id, run->members.epoch(), number, round.attempt, round.fragment, group_in(number),
                     now + run->terms.spec.islands.deadline, guard, round.withdrawn});
}

// Its own contribution does not count: the partner goes alone, and this island goes on from the outer state that it has.
void Core::State::reject_own(Round number, const Error& error) {
  RoundInHand& round = run->rounds.at(number);
  round.withdrawn = true;
  departure.contributed();
  run->tokens_published -= std::min(run->tokens_published, round.ready.tokens);
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
  send(round.exchanged);  // nobody decides anything by it: what the round moved
  run->own_rounds[event.round].partner = event.partner;
  if (!round.withdrawn) {
    run->norms.add(round.fragment, round.ready.norm);
  }
  if (!event.partner.empty()) {
    run->met.emplace(round.pair_epoch, event.round);
    for (const double norm : event.norms) {
      run->norms.add(round.fragment, norm);
    }
  } else if (event.rejected) {
    tell("warning", "contribution_rejected",
         "the contribution of this island's partner to round " + std::to_string(event.round.value) + " does not count: " + event.why);
  } else if (!event.why.empty()) {
    tell("info", "pair_alone", "round " + std::to_string(event.round.value) + " was taken alone: " + event.why);
  }
}

void Core::State::leave_pairs() {
  if (!run->terms.in_groups()) {
    return;
  }
  effect(LeavePairs{run->terms.id, run->members.epoch(), run->members.islands()});
}

// Adaptive pace: the partner waits, or has gone on. What the trainer has done until now is this round's contribution.
void Core::State::on_engine(const PartnerAhead& event) {
  if (run->terms.composition.adaptive_pace && run->life.active() && !run->life.standing() && event.round > run->outer.committed() &&
      run->rounds.count(event.round) == 0) {
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
std::optional<PairWord> Core::State::word_on(Epoch epoch, Round round) const {
  if (epoch < run->outer.since()) {
    return PairWord::voided;
  }
  if (run->met.contains({epoch, round})) {
    return PairWord::met;
  }
  const auto hand = run->rounds.find(round);
  const bool elsewhere = run->members.epoch() > epoch && (hand == run->rounds.end() || hand->second.pair_epoch != epoch);
  return run->outer.committed() >= round || elsewhere ? std::optional(PairWord::alone) : std::nullopt;
}

void Core::State::on_pair_query(const PairQuery& message) {
  if (message.asked != island() || !run->terms.in_groups() || !run->life.active() || !run->outer.held() ||
      message.asked_in != run->members.epoch()) {
    return;
  }
  if (const std::optional<PairWord> word = word_on(message.epoch, message.round)) {
    send(PairAnswer{run->terms.id, message.epoch, message.round, message.asker, island(), *word, message.asked_in});
  } else {
    effect(RenouncePair{run->terms.id, message.epoch, message.round, message.asker, message.asked_in});
  }
}

void Core::State::on_pair_answer(const PairAnswer& message) {
  if (message.asker == island() && run->terms.in_groups()) {
    effect(HearOfPair{run->terms.id, message.epoch, message.round, message.answerer, message.asked_in, message.word});
  }
}

// This round, whose result is about to be applied, is the last before the pause.
void Core::State::stand_after(Round round) {
  run->life.stand(round, run->members.epoch());
  run->rounds.at(round).checkpoint = true;
  run->trainer.finish(round, false);
}

// Its state is, or goes back to, one before the round that it was to stand after: it comes to that round again.
void Core::State::forget_stand() {
  if (run->terms.own_states() && run->life.standing() && *run->life.stands_after() > run->outer.committed()) {
    run->life.go_on();
  }
}

// The coordinator pauses a run whose islands commit their rounds themselves: all stand after one and the same round, so that they
// meet again as they would have met. An island that had come further before it heard stands there, and the coordinator names that round to
// all.
void Core::State::pause_own_rounds() {
  if (!run->terms.own_states() || !run->life.active() || !run->outer.held() || run->outer.at_end() || !run->life.pause_after()) {
    return;
  }
  if (run->life.stands_after() && *run->life.pause_after() > *run->life.stands_after() &&
      run->outer.committed() >= *run->life.stands_after() && !settling()) {
    go_on_after_pause();
  }
  if (!run->life.standing() && run->outer.committed() >= *run->life.pause_after()) {
    run->life.stand(run->outer.committed(), run->members.epoch());
  }
  if (!run->life.standing() || run->outer.committed() < *run->life.stands_after() || settling()) {
    return;
  }
  if (run->checkpoints.has(run->outer.committed(), run->outer.digest())) {
    run->checkpoints.tell(now);
  } else {
    write_checkpoint();
  }
}

// The trainer was told to stand: it is loaded anew. What was exchanged with partners counts.
void Core::State::go_on_after_pause() {
  run->life.go_on();
  if (!run->terms.own_states()) {
    drop_rounds();
    return;
  }
  run->trainer.drop_orders();
  const auto held = run->rounds.find(run->outer.committed().next());
  if (held != run->rounds.end() && held->second.phase == RoundInHand::Phase::exchanged && run->terms.commits_itself(held->first)) {
    if (run->life.pause_after() && held->first >= *run->life.pause_after()) {
      stand_after(held->first);
    }
    apply(held->first);
  }
}

// After the last own round: every island's outer parameters, merged into one model as a group of all exchanges and commits.
void Core::State::drive_merges() {
  if (!run || departure.gone() || run->life.ended() || !run->terms.in_groups() || !run->life.active() || !run->outer.held() ||
      !run->trainer.schedule() || !run->rounds.empty() || !run->merging.empty() || run->life.stands_after() || run->life.pause_after() ||
      run->outer.committed() < run->terms.last_trained() || run->outer.at_end()) {
    return;
  }
  const Round number = run->outer.committed().next();
  RoundInHand& round = run->rounds[number];
  round.fragment = run->terms.rounds.terms(number).fragment;
  round.ready.fragment = round.fragment;
  round.ready.run = run->terms.id;
  round.ready.round = number;
  round.ready.tokens = std::max<std::uint64_t>(run->tokens_published, 1);
  round.ready.training_loss = run->trainer.training_loss();
  effect(FormMergeContribution{run->terms.id, number, round.fragment});
}

}  // namespace atl::agent
